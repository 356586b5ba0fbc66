"""What the archive asks of the place that its files lie in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, order=True)
class File:
    """One file: its name relative to the store's root, with "/" between folders, and its bytes."""

    name: str
    size: int

    @property
    def base(self) -> str:
        """The name within its folder."""
        return self.name.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """The folder's name, "" for the root."""
        return self.name.rpartition("/")[0]


class Store(Protocol):
    """Files below one root, each written once, whole.

    Invariants:
        A written file appears under its name whole and durable, or not at all.
        What a finished `write` or `delete` did is in every listing that begins afterwards.

    Names are relative to the root; "" is the root. Errors are OSError of the operating system on a local disk, and
    ArchiveError elsewhere; a file that is not there is FileNotFoundError everywhere.

    Attributes:
        where: the root as people write it; no credentials.
        filesystem, base: pyarrow's file system, and the root's path in it.
        remote: every read is a request, so neighbouring reads are worth joining.
    """

    where: str
    filesystem: Any
    base: str
    remote: bool

    def files(self, folder: str = "") -> list[File]:
        """Files below a folder, by name, those of writers at work included; none where there is no such folder.

        A listing is no snapshot: what changes while it runs may be in it or not.
        """
        ...

    def exists(self, name: str) -> bool:
        """Whether a file or folder is there. The root of an object store always is."""
        ...

    def read(self, name: str) -> Any:
        """A pyarrow NativeFile that can seek."""
        ...

    def write(self, name: str) -> AbstractContextManager[Any]:
        """A binary file to write to and read from.

        It gets its name, in place of any other, when the context ends without an error.
        """
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Removes files, durably; those that are not there count as removed."""
        ...

    def settle(self, folder: str) -> None:
        """Makes durable what a listing of the folder has shown, whoever wrote it."""
        ...

    def prepare(self) -> None:
        """Makes the root, and finds out whether it can be written to.

        Raises:
            ArchiveError: it cannot.
        """
        ...

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Keeps others that take the same lock out, where the place knows locks; object stores know none.

        Raises:
            ArchiveError: somebody else holds it.
        """
        ...


def path_of(store: Store, name: str) -> str:
    """A file's path in the store's file system."""
    return f"{store.base}/{name}" if name else store.base


def label(store: Store, name: str) -> str:
    """A file's name for people: the root, and the name in it."""
    return f"{store.where}/{name}" if name else store.where

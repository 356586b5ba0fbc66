"""Archives on a local disk: whole files by temporary name, fsync and rename."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from pyarrow import fs

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.port import File

TEMPORARY_SUFFIX = ".tmp"
_PROBE = ".spanlite-probe"


def make_folder(path: Path) -> Path:
    """The folder, created durably, and those above it."""
    for missing in reversed(list(takewhile(lambda folder: not folder.is_dir(), (path, *path.parents)))):
        missing.mkdir(exist_ok=True)
        sync_folder(missing.parent)
    return path


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class WholeFile:
    """A file that appears under its name only when it is whole and on disk; otherwise it leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
        self._file: Any = None

    def __enter__(self) -> Any:
        self._file = self._temporary.open("w+b")
        return self._file

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            self._file.close()
            self._temporary.unlink(missing_ok=True)
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self.path)
        sync_folder(self.path.parent)


class LocalStore:
    """A folder. Only folders named `key=value` are looked into: others beside them are not the archive's."""

    remote = False

    def __init__(self, root: Path) -> None:
        self._root = root
        self.where = str(root)
        self.filesystem = fs.LocalFileSystem()
        self.base = str(root)

    def files(self, folder: str = "") -> list[File]:
        return sorted(_walk(self._root, folder))

    def exists(self, name: str) -> bool:
        return (self._root / name).exists() if name else self._root.is_dir()

    def read(self, name: str) -> Any:
        return self.filesystem.open_input_file(str(self._root / name))

    def write(self, name: str) -> WholeFile:
        path = self._root / name
        return WholeFile(make_folder(path.parent) / path.name)

    def delete(self, names: Sequence[str]) -> None:
        paths = [self._root / name for name in names]
        for path in paths:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in paths}:
            sync_folder(folder)

    def settle(self, folder: str) -> None:
        path = self._root / folder
        for each in (path, *path.parents):
            if each.is_dir():
                sync_folder(each)
            if each == self._root:
                return

    def prepare(self) -> None:
        probe = self._root / _PROBE
        try:
            make_folder(self._root)
            probe.touch()
            probe.unlink(missing_ok=True)  # another writer's probe may be the same file
        except OSError as error:
            raise ArchiveError(
                f"{self._root}: cannot hold an archive ({error.strerror or error}); choose a folder that can be written"
            ) from error

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        try:
            handle = (self._root / name).open("w")
        except OSError as error:
            raise ArchiveError(f"{self._root}: cannot be written to ({error}); correct the permissions") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ArchiveError(f"{self._root}: {name} is locked by another process; wait for it to end") from error
            yield


def _walk(root: Path, folder: str) -> Iterator[File]:
    try:
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    if "=" in entry.name:
                        yield from _walk(root, name)
                elif (size := _size(entry)) is not None:
                    yield File(name, size)
    except FileNotFoundError:  # no such folder, or one that has just been removed
        return
    except OSError as error:
        raise ArchiveError(f"{root / folder}: cannot be listed ({error.strerror}); correct the permissions") from error


def _size(entry: os.DirEntry[str]) -> int | None:
    try:
        return entry.stat().st_size
    except FileNotFoundError:  # removed since it was listed
        return None

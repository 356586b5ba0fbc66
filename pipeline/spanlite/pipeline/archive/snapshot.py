"""Which files of an archive count: all but what a compacted file replaces, also while a compaction runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.layout import COMPACT_PREFIX, is_partition
from spanlite.pipeline.archive.local import TEMPORARY_SUFFIX
from spanlite.pipeline.archive.port import File, Store, label
from spanlite.pipeline.archive.schema import REPLACES_KEY, read_facts, unreadable

_TRIES = 50


def settled(store: Store, folder: str = "") -> list[File]:
    """A listing that no compaction has cheated: what one listing has seen, the next one sees too.

    A single one may miss both a compacted file, which comes while it runs, and the inputs, which go while it runs. The
    next one cannot miss the compacted file then, since it is there before the first input goes.

    Raises:
        ArchiveError: it cannot be listed, or files go faster than that.
    """
    seen = store.files(folder)
    for _ in range(_TRIES):
        again = store.files(folder)
        if {file.name for file in seen} <= {file.name for file in again}:
            return again
        seen = again
    raise ArchiveError(f"{label(store, folder)}: its files go faster than they can be listed; try again")


def require(store: Store) -> None:
    """Raises ArchiveError where there is no such folder."""
    if not store.exists(""):
        raise ArchiveError(f"{store.where}: no such folder; give the folder that an archive was written to")


def partitions(store: Store) -> dict[str, list[File]]:
    """Folders that hold files, in the order of time, and all that lies in each.

    Raises:
        ArchiveError: no such folder, or it cannot be listed.
    """
    require(store)
    listed = sorted(settled(store), key=lambda file: (file.folder, file.base))
    return {folder: list(group) for folder, group in groupby(listed, lambda file: file.folder) if is_partition(folder)}


def is_temporary(file: File) -> bool:
    """Whether it is of a writer at work, or left by one that was killed."""
    return file.base.startswith(".") and file.base.endswith(TEMPORARY_SUFFIX)


def is_visible(file: File) -> bool:
    """Whether readers look at it."""
    return file.base.endswith(".parquet") and not file.base.startswith((".", "_"))


def split_files(store: Store, listed: Iterable[File]) -> tuple[list[File], list[File]]:
    """Files of one partition whose rows count, and those whose rows a compacted file holds as well.

    The second kind exists between two steps of a compaction, after a crash there, or when batches that were compacted
    are written again.

    Raises:
        ArchiveError: a compacted file is unreadable.
    """
    files = [file for file in listed if is_visible(file)]
    replaced: set[str] = set()
    for file in files:
        if file.base.startswith(COMPACT_PREFIX):
            replaced.update(replaced_by(store, file.name))
    live = [file for file in files if file.base not in replaced]
    return live, [file for file in files if file.base in replaced]


def replaced_by(store: Store, name: str) -> list[str]:
    """Names, within the folder, of the files whose rows a compacted file holds.

    Raises:
        ArchiveError: the file is unreadable.
    """
    try:
        names: list[str] = json.loads(read_facts(store, name).get(REPLACES_KEY, b"[]"))
    except FileNotFoundError as error:
        raise unreadable(store, name, error) from error
    return names


def live_files(store: Store) -> list[File]:
    """Every file whose rows count, in the order of time.

    Raises:
        ArchiveError: no such folder, or no file in it.
    """
    files = [file for listed in partitions(store).values() for file in split_files(store, listed)[0]]
    if not files:
        raise ArchiveError(f"{store.where}: holds no archive files (date=…/hour=…/bucket=…/*.parquet)")
    return files

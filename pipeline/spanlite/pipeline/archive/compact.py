"""Compaction: all files of a partition become one, sorted, each span once; safe to kill at any moment.

The new file is written whole and names in its footer the files that it replaces; only then are those removed. A reader
of this package leaves out what a compacted file replaces, so between the two steps, and after a crash there, nobody
sees a span twice. The next compaction removes what is left.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.layout import (
    COMPACT_PREFIX,
    HOUR_NS,
    TEMPORARY_SUFFIX,
    compact_name,
    parse_partition,
    partitions,
    replaced_by,
    split_files,
    sync_folder,
)
from spanlite.pipeline.archive.merge import Merge
from spanlite.pipeline.archive.schema import BUCKETS_KEY, REPLACES_KEY, open_file, writer_options
from spanlite.pipeline.archive.write import ROW_GROUP_ROWS, write_tables

LOCK_NAME = ".compact.lock"


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done to one partition.

    Attributes:
        folder: the partition.
        files_before, bytes_before: what lay there, replaced files included.
        files_after, bytes_after: what lies there now.
        spans: rows now.
        duplicates: rows that were there twice.
    """

    folder: Path
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    spans: int
    duplicates: int


def compact(
    root: Path | str, *, closed_before_ns: int | None = None, row_group_rows: int = ROW_GROUP_ROWS
) -> list[Compaction]:
    """Merges the files of every partition that has more than one.

    Args:
        root: the archive's folder.
        closed_before_ns: leave partitions alone whose hour ends later than this Unix time; none if not given.
        row_group_rows: about so many rows to a row group of the new files.

    Returns:
        one entry for each partition that changed.

    Raises:
        ArchiveError: no archive there, a damaged file, no permission, or a compaction that is running.
    """
    path = Path(root)
    folders = list(partitions(path))
    with _only_one(path):
        done = []
        for folder in folders:
            if closed_before_ns is not None and (parse_partition(folder)[0] + 1) * HOUR_NS > closed_before_ns:
                continue
            try:
                result = _compact_partition(folder, row_group_rows)
            except (OSError, pa.ArrowException) as error:
                raise ArchiveError(f"{folder}: cannot be compacted ({error}); nothing was removed") from error
            if result is not None:
                done.append(result)
        return done


def _compact_partition(folder: Path, row_group_rows: int) -> Compaction | None:
    for leftover in folder.glob(f".{COMPACT_PREFIX}*{TEMPORARY_SUFFIX}"):
        leftover.unlink()  # of a compaction that was killed: ours is the only one that runs
    live, replaced = split_files(folder)
    if len(live) <= 1 and not replaced:
        return None
    bytes_before = sum(path.stat().st_size for path in (*live, *replaced))
    duplicates = 0
    old = list(replaced)
    new = live
    if len(live) > 1:
        target, duplicates = _merge(folder, live, row_group_rows)
        old += [path for path in live if path != target]
        new = [target]
    remove(old)
    spans = 0
    for path in new:
        with open_file(path) as file:
            spans += file.metadata.num_rows
    return Compaction(
        folder=folder,
        files_before=len(live) + len(replaced),
        bytes_before=bytes_before,
        files_after=len(new),
        bytes_after=sum(path.stat().st_size for path in new),
        spans=spans,
        duplicates=duplicates,
    )


def _merge(folder: Path, live: list[Path], row_group_rows: int) -> tuple[Path, int]:
    replaces = {path.name for path in live}
    for path in live:
        if path.name.startswith(COMPACT_PREFIX):  # what it replaced may be written again by a producer that restarts
            replaces.update(replaced_by(path))
    with open_file(live[0]) as file:
        buckets = (file.metadata.metadata or {}).get(BUCKETS_KEY, b"1").decode()
    merge = Merge(live, row_group_rows)
    target = folder / compact_name(replaces)
    facts = {BUCKETS_KEY.decode(): buckets, REPLACES_KEY.decode(): json.dumps(sorted(replaces))}
    write_tables(target, _counted(merge), writer_options(()), facts)
    return target, merge.duplicates


def _counted(merge: Merge) -> Iterator[object]:
    yield from merge.tables()
    if merge.rows_in != merge.rows:  # raised inside the writing, so that the new file never gets its name
        raise ArchiveError(f"compaction read {merge.rows_in} of {merge.rows} spans; nothing was changed")


def remove(paths: list[Path]) -> None:
    """Removes files whose rows lie elsewhere, durably."""
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    try:
        handle = (root / LOCK_NAME).open("w")
    except OSError as error:
        raise ArchiveError(f"{root}: cannot be written to ({error}); correct the permissions") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ArchiveError(f"{root}: another compaction is running; wait for it to end") from error
        yield

"""Compaction: all files of a partition become one, sorted, each span once; safe to kill at any moment.

The new file is written whole and names in its footer the files that it replaces; only then are those removed. A reader
of this package leaves out what a compacted file replaces, so between the two steps, and after a crash there, nobody
sees a span twice. The next compaction removes what is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.layout import COMPACT_PREFIX, HOUR_NS, compact_name, parse_partition
from spanlite.pipeline.archive.merge import Merge
from spanlite.pipeline.archive.port import File, Store, label
from spanlite.pipeline.archive.provenance import read_provenance, to_json, union
from spanlite.pipeline.archive.schema import BATCHES_KEY, BUCKETS_KEY, REPLACES_KEY, open_file, writer_options
from spanlite.pipeline.archive.single import single_columns
from spanlite.pipeline.archive.snapshot import is_temporary, is_visible, partitions, replaced_by, require, split_files
from spanlite.pipeline.archive.store import Where, open_store
from spanlite.pipeline.archive.write import ROW_GROUP_ROWS, write_tables

LOCK_NAME = ".compact.lock"


@dataclass(frozen=True, slots=True)
class Compaction:
    """What was done to one partition.

    Attributes:
        folder: the partition's, relative to the archive.
        files_before, bytes_before: what lay there, replaced files included.
        files_after, bytes_after: what lies there now.
        spans: rows now.
        duplicates: rows that were there twice.
    """

    folder: str
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    spans: int
    duplicates: int


def compact(
    root: Where,
    *,
    closed_before_ns: int | None = None,
    row_group_rows: int = ROW_GROUP_ROWS,
    stop: Callable[[], bool] = lambda: False,
) -> list[Compaction]:
    """Merges the files of every partition that has more than one.

    Writers may write and readers read meanwhile. One compaction at a time: a local archive has a lock for that, an
    object store has none. Two at once lose nothing, but may leave rows twice until the next one.

    Args:
        root: the archive: a folder, a URI or a store, as `open_store` takes them.
        closed_before_ns: leave partitions alone whose hour ends later than this Unix time; none if not given.
        row_group_rows: about so many rows to a row group of the new files.
        stop: asked before each partition; the rest is left for next time when it says so.

    Returns:
        one entry for each partition that changed.

    Raises:
        ArchiveError: no archive there, a damaged file, no permission, or a compaction that is running.
    """
    store = open_store(root)
    require(store)
    with store.lock(LOCK_NAME):
        done = []
        for folder, listed in partitions(store).items():
            if stop():
                break
            if closed_before_ns is not None and (parse_partition(folder)[0] + 1) * HOUR_NS > closed_before_ns:
                continue
            try:
                result = _compact_partition(store, folder, listed, row_group_rows)
            except (OSError, pa.ArrowException) as error:
                text = f"{label(store, folder)}: cannot be compacted ({error}); nothing was removed"
                raise ArchiveError(text) from error
            if result is not None:
                done.append(result)
        return done


def _compact_partition(store: Store, folder: str, listed: list[File], row_group_rows: int) -> Compaction | None:
    # Of a compaction that was killed: ours is the only one that runs.
    store.delete([f.name for f in listed if is_temporary(f) and f.base.startswith(f".{COMPACT_PREFIX}")])
    live, replaced = split_files(store, listed)
    if len(live) <= 1 and not replaced:
        return None
    duplicates = 0
    new = live
    if len(live) > 1:
        target, duplicates = _merge(store, folder, live, row_group_rows)
        new = [target]
    kept = {file.name for file in new}
    before = [file for file in listed if is_visible(file)]
    store.delete([file.name for file in before if file.name not in kept])
    return Compaction(
        folder=folder,
        files_before=len(before),
        bytes_before=sum(file.size for file in before),
        files_after=len(new),
        bytes_after=sum(file.size for file in new),
        spans=sum(_rows(store, file) for file in new),
        duplicates=duplicates,
    )


def _merge(store: Store, folder: str, live: list[File], row_group_rows: int) -> tuple[File, int]:
    replaces = {file.base for file in live}
    for file in live:
        if file.base.startswith(COMPACT_PREFIX):  # what it replaced may be written again by a producer that restarts
            replaces.update(replaced_by(store, file.name))
    with open_file(store, live[0].name) as first:
        buckets = (first.metadata.metadata or {}).get(BUCKETS_KEY, b"1").decode()
    merge = Merge(store, [file.name for file in live], row_group_rows)
    facts = {
        BUCKETS_KEY.decode(): buckets,
        REPLACES_KEY.decode(): json.dumps(sorted(replaces)),
        BATCHES_KEY.decode(): to_json(union(read_provenance(store, file.name) for file in live)),
    }
    name = f"{folder}/{compact_name(replaces)}"
    options = writer_options((), _single(store, live))
    target = write_tables(store, name, _counted(merge), options, facts)
    written, expected = _rows(store, target), merge.rows - merge.duplicates
    if written != expected:
        raise ArchiveError(
            f"{label(store, name)}: holds {written} of {expected} spans; remove it: its inputs are still there"
        )
    return target, merge.duplicates


def _single(store: Store, live: list[File]) -> list[str]:
    """Columns with one value in all of the files."""

    def opened() -> Iterator[object]:
        for file in live:
            with open_file(store, file.name) as parquet:
                yield parquet

    return single_columns(opened())


def _counted(merge: Merge) -> Iterator[object]:
    yield from merge.tables()
    if merge.rows_in != merge.rows:  # raised inside the writing, so that the new file never gets its name
        raise ArchiveError(f"compaction read {merge.rows_in} of {merge.rows} spans; nothing was changed")


def _rows(store: Store, file: File) -> int:
    with open_file(store, file.name) as opened:
        rows: int = opened.metadata.num_rows
        return rows

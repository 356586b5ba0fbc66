"""Compacting an archive, and being killed while at it."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive import compact as module
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.archive.local import LocalStore
from spanlite.pipeline.archive.read import open_dataset, read_batches
from spanlite.pipeline.archive.verify import verify
from spanlite.pipeline.archive.write import write_batches

FactsOf = Callable[[Batch], dict[str, list[Any]]]


def write_apart(root: Path, batches: list[Batch], buckets: int = 1) -> None:
    """One file per batch and bucket."""
    for batch in batches:
        write_batches(root, [batch], buckets=buckets)


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*.parquet"))


def test_all_files_of_a_partition_become_one_with_equal_spans(
    tmp_path: Path, batches: list[Batch], facts: FactsOf
) -> None:
    """Ten files in two buckets become two; every value of every batch is as before, and the archive is sound."""
    write_apart(tmp_path, batches, buckets=2)
    assert len(files(tmp_path)) == 10
    done = compact(tmp_path)
    assert [(entry.files_before, entry.files_after, entry.duplicates) for entry in done] == [(5, 1, 0), (5, 1, 0)]
    assert sum(entry.spans for entry in done) == 20040
    assert len(files(tmp_path)) == 2
    assert [facts(batch) for batch in read_batches(tmp_path)] == [facts(batch) for batch in batches]
    assert verify(tmp_path).problems == []


def test_a_second_compaction_changes_nothing(tmp_path: Path, batches: list[Batch]) -> None:
    """It finds nothing to do and touches no file."""
    write_apart(tmp_path, batches)
    compact(tmp_path)
    before = [(path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.parquet")]
    assert compact(tmp_path) == []
    assert [(path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.parquet")] == before


def test_pieces_give_the_same_file_as_one_go(tmp_path: Path, batches: list[Batch]) -> None:
    """Merging in pieces of about 1000 rows, from files that overlap in time, equals sorting all rows at once."""
    halves = []
    for batch in batches:
        for part in (0, 1):
            columns = batch.columns.take(slice(part * 2004, (part + 1) * 2004))
            first = batch.first_row + part * 2004
            halves.append(replace(batch, columns=columns, sequence=2 * batch.sequence + part, first_row=first))
    for root, rows in ((tmp_path / "pieces", 1000), (tmp_path / "whole", 1 << 20)):
        write_batches(root, halves[0::2])
        write_batches(root, halves[1::2])
        compact(root, row_group_rows=rows)
    one, other = (pq.ParquetFile(next((tmp_path / name).rglob("*.parquet"))) for name in ("pieces", "whole"))
    assert one.num_row_groups > 10
    assert other.num_row_groups == 1
    assert one.read().equals(other.read())
    assert verify(tmp_path / "pieces").problems == []


def test_rows_without_a_trace_are_merged_too(tmp_path: Path, batches: list[Batch], facts: FactsOf) -> None:
    """A long run of one session, in several files, is cut into pieces by time."""
    loose = [replace(b, columns=replace(b.columns, trace=np.full(len(b.columns), -1, dtype=np.int32))) for b in batches]
    write_apart(tmp_path, loose)
    compact(tmp_path, row_group_rows=1000)
    assert [facts(batch) for batch in read_batches(tmp_path)] == [facts(batch) for batch in loose]
    assert verify(tmp_path).problems == []


def test_spans_written_twice_stay_once(tmp_path: Path, batches: list[Batch]) -> None:
    """Batches that were grouped otherwise when written again, so under other names: counted, and dropped."""
    write_batches(tmp_path, batches[:3])
    write_batches(tmp_path, batches[1:])
    (done,) = compact(tmp_path)
    assert (done.spans, done.duplicates) == (20040, 8016)
    assert verify(tmp_path).problems == []


def test_a_crash_before_the_removal_shows_no_span_twice(
    tmp_path: Path, batches: list[Batch], facts: FactsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the new file stands and the old ones too: readers see each span once; the next run cleans up."""
    write_apart(tmp_path, batches)

    class KilledError(BaseException):
        pass

    def killed(self: LocalStore, names: Sequence[str]) -> None:
        if names:
            (tmp_path / names[0]).unlink()  # even the removal got half-way
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", killed)
        with pytest.raises(KilledError):
            compact(tmp_path)
    assert len(files(tmp_path)) == 5
    assert open_dataset(tmp_path).count_rows() == 20040
    assert [facts(batch) for batch in read_batches(tmp_path)] == [facts(batch) for batch in batches]
    assert [problem.split(": ")[1] for problem in verify(tmp_path).problems] == [
        "its spans lie in a compacted file as well; run `spanlite archive compact`"
    ] * 4
    (done,) = compact(tmp_path)
    assert (done.files_before, done.files_after, done.spans) == (5, 1, 20040)
    assert verify(tmp_path).problems == []


def test_a_crash_while_writing_leaves_the_old_files(
    tmp_path: Path, batches: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of space in the new file: an error, and the archive as it was."""
    write_apart(tmp_path, batches)
    before = files(tmp_path)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_tables", full)
        with pytest.raises(ArchiveError, match=r"bucket=00: cannot be compacted .*No space left.*nothing was removed"):
            compact(tmp_path)
    assert files(tmp_path) == before
    assert verify(tmp_path).problems == []


def test_leftovers_of_a_killed_compaction_are_removed(tmp_path: Path, batches: list[Batch]) -> None:
    """A temporary file of a compaction belongs to nobody once another one runs."""
    write_apart(tmp_path, batches[:2])
    leftover = next(tmp_path.rglob("*.parquet")).with_name(".compact-0.parquet.tmp")
    leftover.write_bytes(b"half")
    compact(tmp_path)
    assert not leftover.exists()


def test_a_replaced_file_that_is_written_again_does_not_count(tmp_path: Path, batches: list[Batch]) -> None:
    """A producer restarts after compactions, twice, and repeats an early file: still each span once."""
    write_apart(tmp_path, batches[:2])
    compact(tmp_path)
    write_apart(tmp_path, batches[2:])
    compact(tmp_path)
    write_apart(tmp_path, batches[:1])
    assert len(files(tmp_path)) == 2
    assert open_dataset(tmp_path).count_rows() == 20040
    compact(tmp_path)
    assert len(files(tmp_path)) == 1


def test_open_hours_are_left_alone_on_request(tmp_path: Path, batches: list[Batch]) -> None:
    """Partitions whose hour has not ended by the given time keep their files."""
    write_apart(tmp_path, batches)
    hour = 3_600_000_000_000
    end = (int(batches[0].columns.start_ns.min()) // hour + 1) * hour
    assert compact(tmp_path, closed_before_ns=end - 1) == []
    assert len(compact(tmp_path, closed_before_ns=end)) == 1


def test_two_compactions_do_not_run_at_once(tmp_path: Path, batches: list[Batch]) -> None:
    """The second says so and changes nothing."""
    write_apart(tmp_path, batches[:2])
    with (tmp_path / module.LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ArchiveError, match="is locked by another process"):
            compact(tmp_path)
    assert len(files(tmp_path)) == 2


def test_foreign_files_are_not_compacted(tmp_path: Path, batches: list[Batch]) -> None:
    """A file of something else in a partition stops the compaction before anything is removed."""
    write_apart(tmp_path, batches[:2])
    shutil.copy(
        Path(__file__).parents[2] / "data" / "serve_slice.parquet",
        next(tmp_path.rglob("*.parquet")).with_name("x.parquet"),
    )
    with pytest.raises(ArchiveError, match="not a file of a spanlite archive"):
        compact(tmp_path)
    assert len(files(tmp_path)) == 3

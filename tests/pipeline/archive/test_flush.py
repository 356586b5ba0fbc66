"""Flushing what the archive does not hold yet, and what the ledger knows of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.archive.flush import FlushResult, flush_new
from spanlite.pipeline.archive.ledger import Ledger
from spanlite.pipeline.archive.local import LocalStore
from spanlite.pipeline.archive.port import File
from spanlite.pipeline.archive.provenance import Ranges
from spanlite.pipeline.archive.read import open_dataset, read_batches, scan
from spanlite.pipeline.archive.verify import verify
from spanlite.pipeline.archive.write import write_batches

FactsOf = Callable[[Batch], dict[str, list[Any]]]
HOUR_NS = 3_600_000_000_000


def other_producer(batch: Batch) -> Batch:
    return replace(batch, producer=b"\xff" * 16, session=7)


def test_batches_come_back_as_they_were(tmp_path: Path, batches: list[Batch], facts: FactsOf) -> None:
    """A sound archive, equal to what was given; DuckDB counts each span once; results say what was written."""
    store, ledger = LocalStore(tmp_path / "new" / "archive"), Ledger()
    result = flush_new(store, batches[:3], buckets=2, ledger=ledger)
    assert (len(result.files), result.spans_written, result.spans_skipped) == (2, 12024, 0)
    assert list(result.files) == store.files()
    again = flush_new(store, batches, buckets=2, ledger=ledger)
    assert (len(again.files), again.spans_written, again.spans_skipped) == (2, 8016, 12024)
    assert [facts(batch) for batch in read_batches(store)] == [facts(batch) for batch in batches]
    assert verify(store).problems == []
    query = f"select count(*), count(distinct (session, span_id)) from '{store.where}/date=*/**/*.parquet'"  # noqa: S608
    assert duckdb.sql(query).fetchall() == [(20040, 20040)]


def test_nothing_new_writes_nothing(tmp_path: Path, batches: list[Batch]) -> None:
    """No batches, empty ones, one twice in one call, and all of them with a ledger that starts again."""
    store, ledger = LocalStore(tmp_path), Ledger()
    empty = replace(batches[0], columns=batches[0].columns.take(slice(0, 0)))
    assert flush_new(store, [], ledger=ledger) == flush_new(store, [empty], ledger=ledger) == FlushResult((), 0, 0)
    assert flush_new(store, [batches[0], batches[0]], ledger=ledger).spans_skipped == 4008
    assert flush_new(store, [batches[0]], ledger=Ledger()) == FlushResult((), 0, 4008)
    compact(tmp_path)
    assert flush_new(store, [batches[0]], ledger=Ledger()) == FlushResult((), 0, 4008)


def test_files_hold_one_producer_each(tmp_path: Path, batches: list[Batch]) -> None:
    """So that a name's beginning tells whose it is, also when all came in one flush."""
    given = [batches[0], other_producer(batches[0]), batches[1]]
    result = flush_new(LocalStore(tmp_path), given, ledger=Ledger())
    assert [file.base[:27] for file in result.files] == [
        "0001020304050607-0000000000",
        "ffffffffffffffff-0000000000",
    ]
    dataset = open_dataset(tmp_path)
    for fragment in dataset.get_fragments():
        assert len(fragment.to_table(columns=["producer"])["producer"].unique()) == 1


def test_where_a_row_lies_follows_from_its_batch_alone(tmp_path: Path, batches: list[Batch]) -> None:
    """A trace whose start nobody tells, over the end of an hour: the second batch goes where it would go alone."""
    columns = batches[0].columns.take(slice(0, 4))
    traces = columns.traces.copy()
    traces["start_ns"] = 0
    at = 480_000 * HOUR_NS

    def batch(sequence: int, start: int) -> Batch:
        moved = replace(columns, traces=traces, start_ns=start + np.arange(4))
        return replace(batches[0], sequence=sequence, first_row=4 * sequence, columns=moved)

    before, after = batch(0, at - 10), batch(1, at + 10)
    flush_new(LocalStore(tmp_path / "alone"), [after], ledger=Ledger())
    flush_new(LocalStore(tmp_path / "both"), [before, after], ledger=Ledger())
    write_batches(tmp_path / "writer", [before, after])
    (alone,) = LocalStore(tmp_path / "alone").files()
    for name in ("both", "writer"):
        hours = {file.folder for file in LocalStore(tmp_path / name).files()}
        assert len(hours) == 2
        assert alone.folder in hours
        assert verify(tmp_path / name).problems == []
    assert flush_new(LocalStore(tmp_path / "both"), [after], ledger=Ledger()).spans_written == 0


def test_a_failed_write_can_be_repeated_in_other_groups(tmp_path: Path, batches: list[Batch]) -> None:
    """An error although the file got its name: the same ledger looks again instead of trusting its memory."""

    class Unsure(LocalStore):
        def write(self, name: str) -> Any:
            whole = super().write(name)
            leave = whole.__exit__

            class Late:
                def __enter__(self) -> Any:
                    return whole.__enter__()

                def __exit__(self, *failed: Any) -> None:
                    leave(*failed)
                    raise OSError(5, "the answer was lost")

            return Late()

    ledger = Ledger()
    with pytest.raises(ArchiveError, match="the answer was lost"):
        flush_new(Unsure(tmp_path), batches[:2], ledger=ledger)
    result = flush_new(LocalStore(tmp_path), batches[1:3], ledger=ledger)
    assert (result.spans_written, result.spans_skipped) == (4008, 4008)


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_compaction_while_the_ledger_looks_hides_nothing(tmp_path: Path, batches: list[Batch], call: int) -> None:
    """It runs right after one of the listings: what was listed has gone, and is looked up again."""

    class Compacting(LocalStore):
        calls = 0

        def files(self, folder: str = "") -> list[File]:
            found = super().files(folder)
            self.calls += 1
            if self.calls == call:
                compact(tmp_path)
            return found

    for batch in batches[:3]:
        write_batches(tmp_path, [batch])
    store = Compacting(tmp_path)
    (folder,) = {file.folder for file in LocalStore(tmp_path).files()}
    assert Ledger().held(store, folder, batches[0].producer) == Ranges([(0, 2)])


def test_a_listing_that_a_compaction_cheats_is_repeated(tmp_path: Path, batches: list[Batch], facts: FactsOf) -> None:
    """A listing may miss the compacted file, come while it ran, and inputs, gone while it ran: readers ask again."""
    for batch in batches[:3]:
        write_batches(tmp_path, [batch])
    before = LocalStore(tmp_path).files()

    class Cheated(LocalStore):
        calls = 0

        def files(self, folder: str = "") -> list[File]:
            self.calls += 1
            if self.calls > 1:
                return super().files(folder)
            compact(tmp_path)
            return before[2:]  # the first two are gone already, the third one not yet, the new one is not seen

    store = Cheated(tmp_path)
    assert [facts(batch) for batch in read_batches(store)] == [facts(batch) for batch in batches[:3]]
    (folder,) = {file.folder for file in before}
    assert Ledger().held(Cheated(tmp_path), folder, batches[0].producer) == Ranges([(0, 2)])


def test_readers_beside_a_writer_and_compactions_see_whole_files_once(tmp_path: Path, batches: list[Batch]) -> None:
    """A scan loop while files come and go: each scan that ends has whole batches, no fewer than the one before."""
    store, ledger = LocalStore(tmp_path), Ledger()
    flush_new(store, batches[:1], ledger=ledger)
    counts: list[int] = []

    def write() -> None:
        for batch in batches[1:]:
            flush_new(store, [batch], ledger=ledger)
            compact(tmp_path)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        while not writer.done():
            with suppress(ArchiveError):  # a file was compacted away while it was read: said, not passed over
                counts.append(sum(len(rows) for rows in scan(tmp_path, ["start_ns"])))
        writer.result()
    assert counts == sorted(counts)
    assert {count % 4008 for count in counts} <= {0}
    assert sum(len(rows) for rows in scan(tmp_path, ["start_ns"])) == 20040


def test_a_ledger_looks_once_and_remembers_so_many(tmp_path: Path, batches: list[Batch]) -> None:
    """Later flushes list nothing; what was pushed out of memory is read again, and made durable before it counts."""

    class Counting(LocalStore):
        calls = 0
        settled: tuple[str, ...] = ()

        def settle(self, folder: str) -> None:
            self.settled = (*self.settled, folder)
            super().settle(folder)

        def files(self, folder: str = "") -> list[File]:
            self.calls += 1
            return super().files(folder)

    store, ledger = Counting(tmp_path), Ledger(folders=1)
    flush_new(store, batches[:1], ledger=ledger)
    calls = store.calls
    flush_new(store, batches[:2], ledger=ledger)
    assert store.calls == calls
    moved = [
        replace(b, columns=replace(b.columns, start_ns=b.columns.start_ns, trace=b.columns.trace)) for b in batches
    ]
    later = [replace(b, columns=replace(b.columns, traces=_later(b))) for b in moved]
    assert flush_new(store, later[2:3], ledger=ledger).spans_written == 4008
    assert flush_new(store, batches[:3], ledger=ledger).spans_skipped == 8016
    assert store.calls > calls


def _later(batch: Batch) -> Any:
    """The batch's traces, an hour later."""
    traces = batch.columns.traces.copy()
    traces["start_ns"] += HOUR_NS
    return traces


def test_many_partitions_in_one_flush_need_not_be_remembered(tmp_path: Path, batches: list[Batch]) -> None:
    """More partitions than the ledger holds: all are written, and known again from their footers."""
    store, ledger = LocalStore(tmp_path), Ledger(folders=1)
    assert flush_new(store, batches, buckets=4, ledger=ledger).spans_written == 20040
    assert flush_new(store, batches, buckets=4, ledger=ledger).spans_skipped == 20040
    assert verify(tmp_path).problems == []


def test_an_unreadable_file_of_the_producer_stops_the_flush(tmp_path: Path, batches: list[Batch]) -> None:
    """What it holds is not known: nothing is written rather than perhaps twice."""
    (file,) = flush_new(LocalStore(tmp_path), batches[:1], ledger=Ledger()).files
    (tmp_path / file.name).write_bytes(b"no Parquet")
    with pytest.raises(ArchiveError, match=f"{file.base}: cannot be read as Parquet"):
        flush_new(LocalStore(tmp_path), batches[:1], ledger=Ledger())


def test_buckets_must_be_a_power_of_two(tmp_path: Path, batches: list[Batch]) -> None:
    """As for the writer."""
    with pytest.raises(ValueError, match="power of two"):
        flush_new(LocalStore(tmp_path), batches, buckets=3, ledger=Ledger())

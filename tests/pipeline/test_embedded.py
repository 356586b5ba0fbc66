"""The pipeline in one process, fed record by record."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import NoReturn

import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.codec import Limits, encode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.errors import ArchiveError, BatchError
from spanlite.contract.points import Point
from spanlite.pipeline.archive.read import read_batches
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import ManualClock
from spanlite.transport.ports import Record
from tests.pipeline.conftest import Span, brute_force, make_batch, plain

SECOND_NS = 10**9
KEEP = WindowPolicy(width_ns=SECOND_NS, lateness_ns=None)


class Queue:
    """A consumer over a list; counts commits."""

    def __init__(self, *values: bytes) -> None:
        self.waiting = deque(Record("spans", at, 0, b"", value) for at, value in enumerate(values))
        self.commits = 0

    def poll(self, most: int, timeout_s: float) -> list[Record]:  # noqa: ARG002  # the port asks for it
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    def commit(self) -> None:
        self.commits += 1


class Collected:
    """Everything that a pipeline hands on."""

    def __init__(self) -> None:
        self.windows: list[Point] = []
        self.totals: list[Point] = []
        self.batches: list[Batch] = []
        self.dead: list[tuple[int, str]] = []

    def outputs(self) -> Outputs:
        return Outputs(
            window_points=self.windows.extend,
            total_points=self.totals.extend,
            batch=self.batches.append,
            dead_letter=lambda record, error: self.dead.append((record.offset, error.reason)),
        )


def spans(start_s: float, count: int = 10, *, row: int = 0, kind: int = Kind.KERNEL) -> list[Span]:
    """Some spans a microsecond apart."""
    first = round(start_s * SECOND_NS)
    return [
        Span(first + 1000 * at, 500 + at, row=row + at, kernel=f"k{at % 3}", kind=kind, stage="decode")
        for at in range(count)
    ]


def encoded(some: list[Span], *, sequence: int, producer: bytes = b"producer-1......") -> bytes:
    """A batch as it comes over the wire."""
    return encode_batch(make_batch(some, sequence=sequence, producer=producer))


def counted(pipeline: EmbeddedPipeline) -> dict[str, float]:
    """Counters by short name and label."""
    return {
        "/".join((name.removeprefix("spanlite_pipeline_").removesuffix("_total"), *labels.values())): value
        for name, samples in pipeline.counters().items()
        for labels, value in samples
    }


def run(
    *values: bytes, policy: WindowPolicy = KEEP, limits: Limits | None = None
) -> tuple[Collected, dict[str, float]]:
    """Puts values through to the end."""
    collected = Collected()
    pipeline = EmbeddedPipeline(Queue(*values), collected.outputs(), policy=policy, limits=limits or Limits())
    assert sum(drain(pipeline)) == len(values)
    pipeline.finish()
    return collected, counted(pipeline)


def assert_conserved(counts: dict[str, float]) -> None:
    """The sum that docs/metrics.md promises."""
    parts = ("spans_folded", "spans_ignored/range", "spans_ignored/duplicate")
    assert counts["spans_received"] == sum(counts[part] for part in parts)


def test_windows_and_totals_equal_the_brute_force() -> None:
    """Proves points of two windows against a span-by-span fold, and the totals against their sums."""
    one, two = spans(1, 20), spans(2.5, 30, row=20)
    collected, counts = run(encoded(one, sequence=0), encoded(two, sequence=1))
    assert plain(collected.windows) == brute_force(one + two, SECOND_NS)
    assert sum(point.count for point in collected.totals) == 50
    assert all(point.cumulative for point in collected.totals)
    assert (counts["windows_closed"], counts["points_emitted"]) == (2, 6)
    assert counts["last_event_timestamp_seconds/fold"] == pytest.approx(2.500029, abs=1e-6)
    assert_conserved(counts)


def test_poison_is_counted_handed_on_and_passed_over() -> None:
    """Proves that what is no batch reaches the dead letter with its offset and reason, and that the rest counts."""
    good = [encoded(spans(1, row=10 * at), sequence=at) for at in range(3)]
    values = [b"", good[0], b"not a batch", good[1][:-3], good[1], bytes(100), good[2], good[2] + b"\xff"]
    collected, counts = run(*values)
    assert [offset for offset, _ in collected.dead] == [0, 2, 3, 5, 7]
    rejected = {name: value for name, value in counts.items() if name.startswith("batches_rejected/")}
    assert sum(rejected.values()) == 5
    assert {f"batches_rejected/{reason}" for _, reason in collected.dead} == set(rejected)
    assert counts["batches_received"] == len(values)
    assert counts["spans_received"] == counts["spans_folded"] == 30
    assert_conserved(counts)


def test_a_batch_beyond_the_limit_is_refused() -> None:
    """Proves it for the size of the message and for its rows; a small one after it is taken."""
    small, large = encoded(spans(1, 2), sequence=0), encoded(spans(1, 5000, row=2), sequence=1)
    assert len(small) < 1000 < len(large)
    collected, counts = run(large, small, limits=Limits(message_bytes=1000))
    assert collected.dead == [(0, "message_bytes")]
    assert counts["spans_folded"] == 2
    collected, counts = run(large, small, limits=Limits(rows=4999))
    assert [offset for offset, _ in collected.dead] == [0]
    assert counts["spans_folded"] == 2


def test_redelivery_counts_once(tmp_path: Path) -> None:
    """Proves that a batch that comes three times, out of order, is folded, handed on and archived once."""
    values = [encoded(spans(1, row=10 * at), sequence=at) for at in range(3)]
    other = encoded(spans(1), sequence=0, producer=b"producer-2......")
    collected = Collected()
    archive = ArchiveWriter(tmp_path)
    order = [values[1], values[0], values[1], values[2], values[1], other, other]
    pipeline = EmbeddedPipeline(Queue(*order), collected.outputs(), policy=KEEP, archive=archive)
    assert sum(drain(pipeline)) == 7
    pipeline.finish()
    counts = counted(pipeline)
    assert (counts["spans_received"], counts["spans_ignored/duplicate"], counts["spans_folded"]) == (70, 30, 40)
    assert counts["spans_archived"] == counts["spans_received"] - counts["spans_ignored/duplicate"] == 40
    assert sum(point.count for point in collected.windows) == 40
    assert [(batch.producer[:10], batch.sequence) for batch in collected.batches] == [
        (b"producer-1", 1),
        (b"producer-1", 0),
        (b"producer-1", 2),
        (b"producer-2", 0),
    ]
    assert sum(len(batch.columns) for batch in read_batches(tmp_path)) == 40
    assert_conserved(counts)


def test_late_spans_are_told_at_once_and_add_up(tmp_path: Path) -> None:
    """Proves that what comes for a closed window is a point of its own, in the totals, the count and the archive."""
    policy = WindowPolicy(width_ns=SECOND_NS, lateness_ns=SECOND_NS)
    on_time = [spans(0.5), spans(2.5, row=10), spans(1.9, row=30)]
    late = [spans(0.9, row=20), spans(0.1, row=40)]
    order = [on_time[0], on_time[1], late[0], on_time[2], late[1]]
    collected = Collected()
    archive = ArchiveWriter(tmp_path)
    values = [encoded(some, sequence=at) for at, some in enumerate(order)]
    pipeline = EmbeddedPipeline(Queue(*values), collected.outputs(), policy=policy, archive=archive)
    assert pipeline.run_once(0) == 5
    parts = [collected.windows[at : at + 3] for at in range(0, 9, 3)]
    assert [plain(part) for part in parts] == [brute_force(some, SECOND_NS) for some in (on_time[0], *late)]
    pipeline.finish()
    assert plain(collected.windows[9:]) == brute_force([*on_time[1], *on_time[2]], SECOND_NS)
    newest = {point.series: point for point in collected.totals}
    everything = [span._replace(start_ns=span.start_ns % SECOND_NS) for some in order for span in some]
    assert {s: (p.count, p.sum_ns) for s, p in newest.items()} == {
        series: (what.count, what.sum_ns) for (_, series), what in brute_force(everything, SECOND_NS).items()
    }
    assert {(p.window_start_ns, p.window_end_ns) for p in newest.values()} == {(0, 3 * SECOND_NS)}
    counts = counted(pipeline)
    assert (counts["late_spans"], counts["spans_folded"], counts["spans_archived"]) == (20, 50, 50)
    assert_conserved(counts)


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_how_many_records_come_at_once_decides_nothing(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves that late spans are the same whether records are polled one by one or together."""
    monkeypatch.setattr("spanlite.pipeline.embedded._POLL", at_once)
    policy = WindowPolicy(width_ns=SECOND_NS, lateness_ns=1)
    starts = (0.5, 2.5, 0.9, 1.5, 3.5)
    values = [encoded(spans(start, row=10 * at), sequence=at) for at, start in enumerate(starts)]
    collected, counts = run(*values, policy=policy)
    assert counts["late_spans"] == 20
    assert sum(point.count for point in collected.windows) == 50
    # Closings of 0.5 (by 2.5) and of 1.5 and 2.5 (by 3.5), 0.9 late in between, 3.5 at the end; three kernels each.
    assert [point.window_start_ns // SECOND_NS for point in collected.windows[::3]] == [0, 0, 1, 2, 3]


def test_no_producer_makes_another_late() -> None:
    """Proves that of two producers a day apart each closes its windows by its own spans, in any interleaving."""
    policy = WindowPolicy(width_ns=SECOND_NS, lateness_ns=1)
    starts = (0.5, 1.5, 3.5, 4.5)
    near = [encoded(spans(at, row=round(at * 100)), sequence=n) for n, at in enumerate(starts)]
    day_s = 86_400
    ahead = [
        encoded(spans(day_s + at, row=10_000 + round(at * 100)), sequence=n, producer=b"producer-2......")
        for n, at in enumerate(starts)
    ]
    alone = [run(*values, policy=policy)[0].windows for values in (near, ahead)]
    together, counts = run(*(value for pair in zip(near, ahead, strict=True) for value in pair), policy=policy)
    assert counts["late_spans"] == 0
    for part in alone:
        mine = [point for point in together.windows if (point.window_start_ns > 10 * SECOND_NS) == (part is alone[1])]
        assert [plain([point]) for point in mine] == [plain([point]) for point in part]
    assert_conserved(counts)


def test_an_idle_producer_s_windows_close_by_the_reader_s_clock() -> None:
    """Proves that a silent producer's spans are told after `idle_ns`, not one nanosecond before, and no other's."""
    clock = ManualClock()
    policy = WindowPolicy(width_ns=SECOND_NS, lateness_ns=SECOND_NS, idle_ns=1000)
    queue, collected = Queue(encoded(spans(0.5), sequence=0)), Collected()
    pipeline = EmbeddedPipeline(queue, collected.outputs(), policy=policy, clock=clock)

    def rounds(ns: int) -> None:
        for _ in range(0, ns, 111):
            clock.advance_ns(111)
            pipeline.run_once(0)

    pipeline.run_once(0)
    rounds(999)
    queue.waiting.append(Record("spans", 1, 0, b"", encoded(spans(0.2), sequence=0, producer=b"producer-2......")))
    pipeline.run_once(0)
    assert collected.windows == []
    clock.advance_ns(1)
    pipeline.run_once(0)
    assert plain(collected.windows) == brute_force(spans(0.5), SECOND_NS)
    queue.waiting.append(Record("spans", 2, 0, b"", encoded(spans(0.7, row=50), sequence=1)))
    pipeline.run_once(0)
    assert counted(pipeline)["late_spans"] == 10, "the window that idleness has closed stays closed"
    rounds(1998)
    assert sum(point.spans for point in collected.windows) == 30
    pipeline.finish()
    assert sum(point.spans for point in collected.windows) == 30


def test_a_pipeline_that_is_held_up_or_behind_takes_nobody_for_idle() -> None:
    """A stop longer than `idle_ns`, or more records than one poll takes, would close windows whose rest waits."""
    clock = ManualClock()
    policy = WindowPolicy(width_ns=SECOND_NS, lateness_ns=SECOND_NS, idle_ns=1000)
    first = encoded(spans(0.1, 1), sequence=0)
    rest = encoded(spans(0.2, 1, row=1), sequence=1)
    other = [encoded(spans(0.1, 1, row=at), sequence=at, producer=b"producer-2......") for at in range(64 * 12)]
    queue, collected = Queue(first), Collected()
    pipeline = EmbeddedPipeline(queue, collected.outputs(), policy=policy, clock=clock)
    pipeline.run_once(0)
    clock.advance_ns(50_000)
    pipeline.run_once(0)
    queue.waiting.extend(Record("spans", at, 0, b"", value) for at, value in enumerate([*other, rest]))
    while pipeline.run_once(0):
        clock.advance_ns(110)
    assert counted(pipeline)["late_spans"] == 0
    assert collected.windows == []


def test_totals_tell_when_they_began() -> None:
    """Proves that the epoch is the wall clock at the start: a later run's points replace an earlier one's."""
    collected = Collected()
    clock = ManualClock(123)
    pipeline = EmbeddedPipeline(Queue(encoded(spans(1), sequence=0)), collected.outputs(), policy=KEEP, clock=clock)
    clock.advance_ns(5)
    pipeline.run_once(0)
    pipeline.finish()
    assert {point.epoch for point in collected.totals} == {123}


def test_what_no_agent_can_have_measured_is_refused() -> None:
    """Proves that a batch whose sums would not fit is a dead letter and takes no sequence from a sound one."""
    absurd = encoded([Span(0, 1 << 49)], sequence=0)
    collected, counts = run(absurd, encoded(spans(1), sequence=0))
    assert collected.dead == [(0, "total")]
    assert counts["batches_rejected/total"] == 1
    assert counts["spans_folded"] == 10


def test_ranges_are_archived_and_not_folded(tmp_path: Path) -> None:
    """Proves that ranges count as ignored, and make no points."""
    some = [*spans(1, 4), *spans(1, 3, row=4, kind=Kind.RANGE)]
    collected = Collected()
    archive = ArchiveWriter(tmp_path)
    pipeline = EmbeddedPipeline(Queue(encoded(some, sequence=0)), collected.outputs(), policy=KEEP, archive=archive)
    assert list(drain(pipeline)) == [1]
    pipeline.finish()
    counts = counted(pipeline)
    assert (counts["spans_ignored/range"], counts["spans_folded"], counts["spans_archived"]) == (3, 4, 7)
    assert sum(point.count for point in collected.windows) == 4
    assert_conserved(counts)


def test_an_empty_batch_is_a_batch() -> None:
    """Proves that a batch without rows is received, makes nothing and is no poison."""
    collected, counts = run(encoded([], sequence=0))
    assert (counts["batches_received"], counts["spans_received"], collected.windows, collected.dead) == (1, 0, [], [])


def test_nothing_makes_nothing(tmp_path: Path) -> None:
    """Proves that finishing without any record writes no file and emits no point."""
    collected = Collected()
    pipeline = EmbeddedPipeline(Queue(), collected.outputs(), archive=ArchiveWriter(tmp_path))
    assert pipeline.run_once(0) == 0
    pipeline.finish()
    assert collected.windows == []
    assert list(tmp_path.iterdir()) == []
    assert "last_event_timestamp_seconds/fold" not in counted(pipeline)


def test_records_are_committed_after_they_were_worked_off() -> None:
    """Proves that an output that fails leaves its records uncommitted, so that they would come again."""

    def broken(_batch: Batch) -> None:
        raise ArchiveError("disk full")

    queue = Queue(encoded(spans(1), sequence=0))
    pipeline = EmbeddedPipeline(queue, Outputs(batch=broken))
    with pytest.raises(ArchiveError):
        pipeline.run_once(0)
    assert queue.commits == 0
    good = Queue(encoded(spans(1), sequence=0))
    EmbeddedPipeline(good, Outputs()).run_once(0)
    assert good.commits == 1


def test_an_archive_that_cannot_be_written_stops_the_pipeline(tmp_path: Path) -> None:
    """Proves that a failing flush comes out of `run_once` when the archive is due, and out of `finish` else."""

    class Full(ArchiveWriter):
        def flush(self) -> NoReturn:
            raise ArchiveError("disk full")

    value = encoded(spans(1), sequence=0)
    with pytest.raises(ArchiveError, match="disk full"):
        EmbeddedPipeline(Queue(value), Outputs(), archive=Full(tmp_path, roll_spans=1)).run_once(0)
    later = EmbeddedPipeline(Queue(value), Outputs(), archive=Full(tmp_path))
    assert later.run_once(0) == 1
    with pytest.raises(ArchiveError, match="disk full"):
        later.finish()


def test_an_error_of_the_dead_letter_is_not_swallowed() -> None:
    """Proves that poison that cannot be put aside stops the pipeline instead of vanishing."""

    def broken(_record: Record, _error: BatchError) -> None:
        raise OSError("no room for the dead")

    with pytest.raises(OSError, match="no room"):
        EmbeddedPipeline(Queue(b"x"), Outputs(dead_letter=broken)).run_once(0)

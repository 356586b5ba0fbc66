"""Replays that end before their archive does: by a number of batches or spans, or by time; and what a limit counts."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.errors import UsageError
from spanlite.replay import paced
from spanlite.replay.paced import Pacing, planned
from spanlite.replay.pacing.late import LatePolicy
from spanlite.replay.pacing.settings import Limit, Pace, parse_rate, parse_speed
from spanlite.replay.pacing.waiting import SleepWaiter
from spanlite.replay.running import Outcome, run_replay
from spanlite.replay.sinks import FileSink
from spanlite.runtime.clock import ManualClock
from tests.replay.archives import read_file
from tests.replay.test_running import plan, to_file


def _sizes(root: Path) -> list[int]:
    return [int(spans) for spans in plan(root).plan.spans]


@pytest.mark.parametrize("batches", [1, 5, 20, 23, 60])
def test_so_many_batches_and_no_more(small_archive: Path, tmp_path: Path, batches: int) -> None:
    """Within a turn, at its end, in the next one: the file is the beginning of that without an end."""
    to_file(plan(small_archive, ids="remap", loops=3, run="r"), tmp_path / "all")
    replay = plan(small_archive, ids="remap", loops=3, run="r", most_batches=batches)
    outcome = to_file(replay, tmp_path / "cut")
    whole = (tmp_path / "all").read_bytes()
    assert outcome.account.batches == min(batches, 3 * len(replay.plan)) == len(read_file(tmp_path / "cut"))
    assert whole.startswith((tmp_path / "cut").read_bytes())
    assert replay.all_batches == outcome.account.batches
    assert replay.all_spans == outcome.account.spans


@pytest.mark.parametrize("loops", [0, 1, 2])
@pytest.mark.parametrize("spans", [99, 150, 1_000_000])
def test_so_many_spans_and_no_more(small_archive: Path, tmp_path: Path, spans: int, loops: int) -> None:
    """As many whole batches as hold no more spans than that, over turns; one without end has an end then."""
    sizes = _sizes(small_archive) * (loops or 200)
    expected = sum(total <= spans for total in accumulate(sizes))
    if not loops and spans == 1_000_000:
        spans, expected = sum(sizes[:150]), 150
    settings = {"ids": "remap"} if loops != 1 else {}
    if not expected:
        with pytest.raises(UsageError, match="the first batch has"):
            plan(small_archive, loops=loops, most_spans=spans, **settings)
        return
    outcome = to_file(plan(small_archive, loops=loops, most_spans=spans, **settings), tmp_path / "cut")
    assert (outcome.account.batches, outcome.account.spans) == (expected, sum(sizes[:expected]))
    assert outcome.ended == "finished"


def _paced(root: Path, path: Path, pace: Pace, clock: ManualClock, **how: object) -> Outcome:
    pacing = Pacing(pace, SleepWaiter(clock), LatePolicy(), **how)  # type: ignore[arg-type]  # as given
    replay = plan(root, loops=pace.loops, ids="remap" if pace.loops != 1 else "keep")
    if pacing.counts == "traces":
        replay = plan(root, count_traces=True)
    return run_replay(replay, FileSink(path, keep=False), clock, pacing=pacing)


def test_what_is_due_after_the_duration_is_left_out(small_archive: Path, tmp_path: Path) -> None:
    """At 100 batches a second 95 ms are ten batches (the first is due at 0), of turns without end; none is lost."""
    pace = Pace(speed=None, limit=Limit(parse_rate("100")), loops=0, duration_ns=95_000_000)
    clock = ManualClock()
    outcome = _paced(small_archive, tmp_path / "out", pace, clock)
    assert (outcome.ended, outcome.account.batches, dict(outcome.account.lost)) == ("finished", 10, {})
    assert len(read_file(tmp_path / "out")) == 10


class _SlowSink(FileSink):
    """Takes its time with each batch."""

    def __init__(self, path: Path, clock: ManualClock, each_s: float) -> None:
        super().__init__(path, keep=False)
        self._clock = clock
        self._each_s = each_s

    def send(self, *given: object) -> None:
        self._clock.sleep_s(self._each_s)
        super().send(*given)  # type: ignore[arg-type]  # as given


@pytest.mark.parametrize("chunk", [256, 3])
def test_what_was_due_and_not_emitted_in_time_is_counted_as_lost(
    small_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """A sink of 30 ms a batch cannot keep 100 a second: at the end of 0.3 s what was due and is not there is lost.

    Whether it had been read by then or not.
    """
    monkeypatch.setattr(paced, "_CHUNK_ITEMS", chunk)
    clock, replay = ManualClock(), plan(small_archive)
    pacing = Pacing(
        Pace(speed=None, limit=Limit(parse_rate("100")), duration_ns=300_000_000), SleepWaiter(clock), LatePolicy()
    )
    due = planned(replay, pacing)
    assert due is not None
    assert due.batches == min(30, len(replay.plan))
    outcome = run_replay(replay, _SlowSink(tmp_path / "out", clock, 0.03), clock, pacing=pacing)
    assert outcome.ended == "duration"
    assert 9 <= outcome.account.batches <= 11
    assert outcome.account.lost == {"duration": due.spans - outcome.account.spans}
    assert sum(len(batch.columns) for batch in read_file(tmp_path / "out")) == outcome.account.spans


def test_without_a_pace_the_duration_ends_it_and_loses_nothing(small_archive: Path, tmp_path: Path) -> None:
    """As fast as it goes there is no due time: what is there after 100 ms is the replay."""
    clock = ManualClock()
    sink = _SlowSink(tmp_path / "out", clock, 0.03)
    outcome = run_replay(plan(small_archive), sink, clock, duration_ns=100_000_000)
    assert (outcome.ended, outcome.account.batches, dict(outcome.account.lost)) == ("duration", 4, {})
    assert len(read_file(tmp_path / "out")) == 4


def test_traces_are_counted_where_they_begin(small_archive: Path, small: list[Batch]) -> None:
    """Of each batch, in the order of emission, how many of its traces no batch before it had: by a plain look."""
    replay = plan(small_archive, count_traces=True)
    ordered = sorted(small, key=lambda batch: (batch.emit_ns, batch.producer, batch.sequence))
    seen: set[bytes] = set()
    expected = []
    for batch in ordered:
        used = {batch.columns.traces["id"][at].tobytes() for at in np.unique(batch.columns.trace) if at >= 0}
        expected.append(len(used - seen))
        seen |= used
    assert replay.plan.new_traces.tolist() == expected
    assert replay.plan.trace_count == len(seen) > 1


def test_a_limit_of_traces_delays_batches_that_begin_some(small_archive: Path, tmp_path: Path) -> None:
    """At 10 traces a second the last batch goes when those that began before it have had their time; all arrive."""
    clock = ManualClock()
    pace = Pace(speed=None, limit=Limit(parse_rate("10")))
    outcome = _paced(small_archive, tmp_path / "out", pace, clock, counts="traces")
    replay = plan(small_archive, count_traces=True)
    assert outcome.account.spans == replay.spans
    assert outcome.summary is not None
    assert outcome.summary.intended_ns == replay.plan.new_traces[:-1].sum() * 100_000_000 > 0


def test_turns_come_a_period_apart(small_archive: Path, tmp_path: Path) -> None:
    """A period that is asked for is that of the spans' times and of the pace; one shorter than a turn is refused."""
    hour_ns = 3_600 * 10**9
    replay = plan(small_archive, ids="remap", loops=2, period_ns=hour_ns)
    to_file(replay, tmp_path / "out")
    batches = read_file(tmp_path / "out")
    half = len(batches) // 2
    for first, second in zip(batches[:half], batches[half:], strict=True):
        assert (second.columns.start_ns - first.columns.start_ns == hour_ns).all()
    pacing = Pacing(Pace(speed=parse_speed("1"), loops=2, period_ns=hour_ns), SleepWaiter(ManualClock()), LatePolicy())
    due = planned(replay, pacing)
    assert due is not None
    length = int(replay.plan.arrival_ns.max() - replay.plan.arrival_ns.min())
    assert (due.last_due_ns, due.batches) == (hour_ns + length, 2 * half)
    with pytest.raises(UsageError, match="a turn is"):
        plan(small_archive, ids="remap", loops=2, period_ns=1000)

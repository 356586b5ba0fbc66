"""The loop that emits: counts and times to the nanosecond, on a clock that moves only when told."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.histogram import bounds_ns, cells
from spanlite.replay.pacing.late import Late, LatePolicy
from spanlite.replay.pacing.lateness import Lateness
from spanlite.replay.pacing.pacer import LEAD_NS, Pacer, Progress, Summary
from spanlite.replay.pacing.quiet import quiet
from spanlite.replay.pacing.schedule import Due
from spanlite.replay.pacing.waiting import PreciseWaiter, SleepWaiter, TickWaiter
from spanlite.runtime.clock import ManualClock, SystemClock
from tests.replay.pacing.clocks import stopped_from

_MS = 1_000_000


class Sink:
    """Takes items, and for some of them a scripted time."""

    def __init__(self, clock: ManualClock, takes_ns: dict[int, int] | None = None) -> None:
        self._clock = clock
        self._takes_ns = takes_ns or {}
        self.got: list[tuple[int, int]] = []

    def __call__(self, item: int) -> None:
        self.got.append((item, self._clock.monotonic_ns()))
        self._clock.advance_ns(self._takes_ns.get(item, 0))


def _chunks(due_ms: list[int], size: int = 3) -> Iterator[Due[int]]:
    """Items numbered from 0, in small chunks."""
    for at in range(0, len(due_ms), size):
        part = due_ms[at : at + size]
        yield Due(np.array(part, np.int64) * _MS, range(at, at + len(part)))


def _play(policy: LatePolicy, takes_ms: dict[int, int], items: int = 10) -> tuple[Summary, list[tuple[int, float]]]:
    """Items every 10 ms, some of which take long: the summary, and (item, ms since the start) of each sent."""
    clock = ManualClock()
    sink = Sink(clock, {item: ms * _MS for item, ms in takes_ms.items()})
    summary = Pacer(SleepWaiter(clock), sink, policy=policy).run(_chunks([10 * at for at in range(items)]), start_ns=0)
    assert summary.read == summary.sent + sum(summary.dropped.values())
    assert summary.sent == summary.lateness.count == len(sink.got)
    return summary, [(item, ns / _MS) for item, ns in sink.got]


def test_everything_on_time() -> None:
    """Proves that with nothing in the way each item is emitted at its due time to the nanosecond."""
    summary, got = _play(LatePolicy(), {})
    assert got == [(at, 10 * at) for at in range(10)]
    assert (summary.ended, summary.late, summary.lateness.max_ns, summary.length_ratio) == ("finished", 0, 0, 1.0)


def test_catching_up_sends_all_and_keeps_the_schedule() -> None:
    """Proves by hand: item 2 takes 25 ms, so item 3 is 15 and item 4 is 5 ms late, and item 5 punctual."""
    summary, got = _play(LatePolicy(Late.CATCH_UP, 4 * _MS), {2: 25})
    assert got[3:6] == [(3, 45), (4, 45), (5, 50)]
    assert (summary.sent, summary.late, summary.dropped) == (10, 2, {})
    assert (summary.lateness.sum_ns, summary.lateness.max_ns) == (20 * _MS, 15 * _MS)
    assert summary.length_ratio == 1.0


def test_dropping_leaves_out_what_is_late() -> None:
    """Proves by hand: of items 3 (15 ms late) and 4 (5 ms late) the first is dropped, and counted."""
    summary, got = _play(LatePolicy(Late.DROP, 5 * _MS), {2: 25})
    assert [item for item, _ in got] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert got[3] == (4, 45)
    assert (summary.ended, summary.read, summary.sent, summary.late) == ("finished", 10, 9, 1)
    assert summary.dropped == {"late": 1}


def test_shifting_moves_the_rest() -> None:
    """Proves by hand: after item 2 took 25 ms all that follows is 15 ms later, and punctual there."""
    summary, got = _play(LatePolicy(Late.SHIFT, 5 * _MS), {2: 25, 5: 18})
    assert got == [(0, 0), (1, 10), (2, 20), (3, 45), (4, 55), (5, 65), (6, 83), (7, 93), (8, 103), (9, 113)]
    assert (summary.shifts, summary.shifted_ns, summary.late) == (2, 23 * _MS, 2)
    assert summary.lateness.sum_ns == 23 * _MS, "15 and 8 ms, each before its shift"
    assert (summary.intended_ns, summary.took_ns) == (90 * _MS, 113 * _MS)


def test_aborting_ends_at_the_first_that_is_too_late() -> None:
    """Proves by hand: item 3 would be 15 ms late; it and the rest of its chunk are counted, later ones not read."""
    summary, got = _play(LatePolicy(Late.ABORT, 14 * _MS), {2: 25})
    assert [item for item, _ in got] == [0, 1, 2]
    assert (summary.ended, summary.read, summary.dropped) == ("aborted", 6, {"aborted": 3})


def test_late_by_just_the_limit_is_not_late() -> None:
    """Proves the bound: 15 ms are not more than 15 ms."""
    summary, _ = _play(LatePolicy(Late.ABORT, 15 * _MS), {2: 25})
    assert (summary.ended, summary.late) == ("finished", 0)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=30),
    st.dictionaries(st.integers(0, 29), st.integers(0, 200)),
    st.sampled_from(list(Late)),
    st.integers(0, 100),
    st.integers(1, 7),
)
def test_late_policies_against_a_twin(
    gaps: list[int], takes: dict[int, int], action: Late, over: int, size: int
) -> None:
    """Proves counts and times of every policy for scripted emits, against a loop in milliseconds."""
    due = [sum(gaps[: at + 1]) for at in range(len(gaps))]
    clock = ManualClock()
    sink = Sink(clock, {item: ms * _MS for item, ms in takes.items()})
    policy = LatePolicy(action, over * _MS)
    summary = Pacer(SleepWaiter(clock), sink, policy=policy).run(_chunks(due, size), start_ns=0)
    now = moved = late = 0
    expected = []
    for item, at in enumerate(due):
        now = max(now, at + moved)
        if now - at - moved > over:
            late += 1
            if action is Late.ABORT:
                break
            if action is Late.DROP:
                continue
            if action is Late.SHIFT:
                moved += now - at - moved
        expected.append((item, now * _MS))
        now += takes.get(item, 0)
    assert sink.got == expected
    assert (summary.sent, summary.late, summary.shifted_ns) == (len(expected), late, moved * _MS)
    assert summary.read == summary.sent + sum(summary.dropped.values())


def test_a_tick_lets_go_of_all_that_is_due() -> None:
    """Proves the grid: items at 1, 3, 9, 10 and 11 ms leave at 10 and 20, and none is late by the policy."""
    clock = ManualClock()
    sink = Sink(clock)
    waiter = TickWaiter(clock, 10 * _MS)
    policy = LatePolicy(Late.ABORT, 1)
    summary = Pacer(waiter, sink, policy=policy).run(_chunks([1, 3, 9, 10, 11]), start_ns=0)
    assert [ns // _MS for _, ns in sink.got] == [10, 10, 10, 10, 20]
    assert (summary.ended, summary.lateness.max_ns, summary.lateness.sum_ns) == ("finished", 9 * _MS, 26 * _MS)


def test_a_stop_ends_a_long_wait() -> None:
    """Proves that a stop told half an hour before the next item ends the replay within 50 ms, the rest counted."""
    clock = ManualClock()
    sink = Sink(clock)
    stop_ns = 1_800_000 * _MS + 1
    pacer = Pacer(PreciseWaiter(clock), sink, stopped=stopped_from(clock, stop_ns))
    summary = pacer.run(_chunks([0, 3_600_000, 3_600_001]), start_ns=clock.monotonic_ns())
    assert stop_ns <= clock.monotonic_ns() <= stop_ns + 50 * _MS
    assert (summary.ended, summary.sent, summary.dropped) == ("stopped", 1, {"stopped": 2})


def test_a_stop_is_noticed_while_behind() -> None:
    """Proves that a replay which never waits, being late, can be stopped."""
    clock = ManualClock()
    sink = Sink(clock, dict.fromkeys(range(9), 100 * _MS))
    pacer = Pacer(SleepWaiter(clock), sink, stopped=stopped_from(clock, 250 * _MS))
    summary = pacer.run(_chunks([0] * 9), start_ns=0)
    assert (summary.ended, summary.sent, summary.dropped) == ("stopped", 3, {"stopped": 3})


def test_a_duration_bounds_a_replay_that_is_behind() -> None:
    """Proves that one asked for as fast as possible ends, though its schedule is all due at 0."""
    clock = ManualClock()
    sink = Sink(clock, dict.fromkeys(range(9), 100 * _MS))
    policy = LatePolicy(over_ns=10 * _MS)
    summary = Pacer(SleepWaiter(clock), sink, policy=policy, duration_ns=295 * _MS).run(_chunks([0] * 9, 5), start_ns=0)
    assert [ns // _MS for _, ns in sink.got] == [0, 100, 200, 300], "300 is within what the policy lets pass"
    assert (summary.ended, summary.dropped) == ("duration", {"duration": 1})


def test_the_first_item_has_a_start() -> None:
    """Proves that the start lies after the first chunk is in hand, so that reading it makes nothing late."""
    clock = ManualClock()
    sink = Sink(clock)

    def slow() -> Iterator[Due[int]]:
        clock.advance_ns(700 * _MS)
        yield from _chunks([0, 1])

    summary = Pacer(SleepWaiter(clock), sink).run(slow())
    assert [ns for _, ns in sink.got] == [700 * _MS + LEAD_NS, 701 * _MS + LEAD_NS]
    assert summary.lateness.max_ns == 0


def test_nothing_to_replay() -> None:
    """Proves that an empty schedule is a replay that has finished."""
    told: list[Progress] = []
    summary = Pacer(SleepWaiter(ManualClock()), print, progress=told.append).run([])
    assert (summary.ended, summary.read, summary.length_ratio, told) == ("finished", 0, 1.0, [])


def test_progress_tells_rate_target_and_what_is_behind() -> None:
    """Proves one interval of each kind by hand: punctual, silent, behind; items every 100 ms but for a gap."""
    clock = ManualClock()
    sink = Sink(clock, {10: 1250 * _MS})
    due = [*range(0, 1000, 100), *range(3000, 4000, 100)]
    told: list[Progress] = []
    summary = Pacer(SleepWaiter(clock), sink, progress=told.append).run(_chunks(due, 5), start_ns=0)
    at = [progress.elapsed_ns // _MS for progress in told]
    assert at == [1000, 2000, 3000, 4250, 4250]
    assert [progress.sent for progress in told] == [10, 10, 10, 12, 20]
    assert [round(progress.rate, 6) for progress in told[:4]] == [10, 0, 0, 1.6]
    assert [round(progress.target, 6) for progress in told[:4]] == [10, 0, 1, 3.2], (
        "of five in hand one was due, then all"
    )
    assert [progress.behind_items for progress in told] == [0, 0, 1, 3, 0]
    assert [progress.behind_ns // _MS for progress in told] == [0, 0, 0, 1050, 0]
    assert [progress.lateness.count for progress in told] == [10, 0, 0, 2, 8]
    assert summary.lateness.count == 20
    assert summary.lateness.max_ns == 1150 * _MS


def test_a_stop_during_reports_is_noticed() -> None:
    """Proves that progress in a long wait does not hide a stop."""
    clock = ManualClock()
    told: list[Progress] = []
    pacer = Pacer(
        SleepWaiter(clock),
        Sink(clock),
        progress=told.append,
        stopped=stopped_from(clock, 2500 * _MS),
        interval_ns=10**9,
    )
    summary = pacer.run(_chunks([0, 3_600_000]), start_ns=0)
    assert (summary.ended, clock.monotonic_ns() <= 2550 * _MS) == ("stopped", True)
    assert [progress.elapsed_ns // 10**9 for progress in told[:2]] == [1, 2]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.integers(0, 200))
def test_lateness_against_numpy(late_ns: list[int], cut: int) -> None:
    """Proves count, sum and maximum exactly, quantiles within 1.1 %, and that merging is adding."""
    whole, parts, other = Lateness(), Lateness(), Lateness()
    whole.add(late_ns)
    parts.add(late_ns[:cut])
    other.add(late_ns[cut:])
    parts.merge(other)
    for lateness in (whole, parts):
        assert (lateness.count, lateness.sum_ns, lateness.max_ns) == (len(late_ns), sum(late_ns), max(late_ns))
        for q in (0.5, 0.99, 1.0):
            exact = float(np.quantile(late_ns, q, method="inverted_cdf"))
            assert lateness.quantile_ns(q) == pytest.approx(exact, rel=0.011, abs=1.01)
    assert [part.tolist() for part in whole.buckets()] == [part.tolist() for part in parts.buckets()]


def test_tables_are_made_before_the_first_item() -> None:
    """Proves that a replay does not stall where it first counts how late items were: the tables are there by then."""
    cells.cache_clear()
    bounds_ns.cache_clear()
    made: list[tuple[int, int]] = []
    pacer: Pacer[int] = Pacer(SleepWaiter(ManualClock()), lambda _: made.append(_tables()))
    pacer.run(_chunks([0, 1]))
    assert made == [(1, 1), (1, 1)]


def _tables() -> tuple[int, int]:
    return bounds_ns.cache_info().currsize, cells.cache_info().currsize


def test_no_lateness_yet() -> None:
    """Proves that figures of nothing are 0, not an error."""
    assert (Lateness().mean_ns, Lateness().quantile_ns(0.5)) == (0.0, 0.0)


def test_quiet_is_undone() -> None:
    """Proves that garbage collection and turns are as before, after an error too."""

    def state() -> tuple[object, ...]:
        slack = Path("/proc/self/timerslack_ns")
        turns = sys.getswitchinterval(), os.sched_getscheduler(0)
        return gc.isenabled(), gc.get_freeze_count(), turns, slack.exists() and slack.read_text()

    before = state()
    with contextlib.suppress(ZeroDivisionError), quiet(realtime=True) as granted:
        assert not gc.isenabled()
        assert sys.getswitchinterval() == pytest.approx(50e-6)
        assert granted.slack_ns in (1, None)
        assert granted.realtime == (os.sched_getscheduler(0) == os.SCHED_FIFO)
        raise ZeroDivisionError
    assert state() == before


def test_the_machine_is_never_early() -> None:
    """Proves on the real clock that no mode emits before the due time, and all is emitted."""
    clock = SystemClock()
    for waiter in (PreciseWaiter(clock), SleepWaiter(clock), TickWaiter(clock)):
        at: list[int] = []
        start_ns = clock.monotonic_ns() + _MS
        summary = Pacer(waiter, lambda _item, at=at: at.append(clock.monotonic_ns())).run(  # type: ignore[misc]
            _chunks(list(range(20))), start_ns=start_ns
        )
        assert summary.sent == 20
        assert all(ns >= start_ns + item * _MS for item, ns in enumerate(at))

"""Ways of waiting, on clocks that behave as told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.errors import UsageError
from spanlite.replay.pacing.waiting import SLICE_NS, PreciseWaiter, SleepWaiter, TickWaiter, Waiter
from spanlite.runtime.clock import Clock, ManualClock
from tests.replay.pacing.clocks import ScriptedClock, stopped_from

_MAKERS: list[Callable[[Clock], Waiter]] = [PreciseWaiter, SleepWaiter, TickWaiter]


def _never() -> bool:
    return False


@pytest.mark.parametrize("make", _MAKERS)
def test_a_manual_clock_is_waited_for_exactly(make: Callable[[Clock], Waiter]) -> None:
    """Proves that no mode watches a clock that moves only when told to sleep, for ever."""
    clock = ManualClock()
    waiter = make(clock)
    until_ns = clock.monotonic_ns() + 3_600 * 10**9
    assert waiter.wait(until_ns, _never) == until_ns == clock.monotonic_ns()
    assert waiter.wait(until_ns - 1, _never) == until_ns, "what has passed is not waited for"


@pytest.mark.parametrize("make", _MAKERS)
def test_a_stop_is_noticed_within_50_ms(make: Callable[[Clock], Waiter]) -> None:
    """Proves it in a wait of an hour, with sleeps that end up to 20 ms late."""
    clock = ScriptedClock([20_000_000, 0])
    waiter = make(clock)
    stop_ns = clock.monotonic_ns() + 1_234_567_890
    now_ns = waiter.wait(stop_ns + 3_600 * 10**9, stopped_from(clock, stop_ns))
    assert stop_ns <= now_ns <= stop_ns + 50_000_000
    assert max(clock.slept_ns) <= SLICE_NS <= 25_000_000


@pytest.mark.parametrize("make", _MAKERS)
@given(waits=st.lists(st.integers(0, 10**8), max_size=20), over_ns=st.lists(st.integers(0, 10**6), min_size=1))
def test_nothing_ends_early(make: Callable[[Clock], Waiter], waits: list[int], over_ns: list[int]) -> None:
    """Proves that an item is never emitted before its time, however sleeps end."""
    clock = ScriptedClock(over_ns, look_ns=100)
    waiter = make(clock)
    for wait_ns in waits:
        until_ns = ManualClock.monotonic_ns(clock) + wait_ns
        assert waiter.wait(until_ns, _never) >= until_ns


def test_precise_hides_how_late_sleeps_end() -> None:
    """Proves that with sleeps 80 to 120 µs late every wait ends within one look at the clock."""
    clock = ScriptedClock([80_000, 120_000, 100_000], look_ns=100)
    waiter = PreciseWaiter(clock)
    assert 120_000 <= waiter.margin_ns <= 160_000
    for _ in range(200):
        until_ns = ManualClock.monotonic_ns(clock) + 2_000_000
        assert waiter.wait(until_ns, _never) - until_ns <= 200
    assert waiter.late_sleeps == 0


def test_precise_sleeps_no_longer_than_it_must_watch() -> None:
    """Proves that the spin is bounded: a wait of 10 ms sleeps all but the margin of it."""
    clock = ScriptedClock([100_000], look_ns=100)
    waiter = PreciseWaiter(clock)
    clock.slept_ns.clear()
    margin_ns, now_ns = waiter.margin_ns, ManualClock.monotonic_ns(clock)
    waiter.wait(now_ns + 10_000_000, _never)
    assert clock.slept_ns[0] == pytest.approx(10_000_000 - margin_ns, abs=300)
    assert clock.looks < 1000


def test_the_margin_follows_the_machine() -> None:
    """Proves that sleeps which become later, and then punctual again, move the margin past them and back."""
    clock = ScriptedClock([10_000], look_ns=2_000)
    waiter = PreciseWaiter(clock)
    before_ns = waiter.margin_ns

    def play(over_ns: int, waits: int) -> None:
        clock._over = iter([over_ns] * 10**6)  # type: ignore[assignment]  # a script that repeats
        for _ in range(waits):
            waiter.wait(ManualClock.monotonic_ns(clock) + 2_000_000, _never)

    play(200_000, 200)
    assert 195_000 <= waiter.margin_ns <= 260_000
    assert 0 < waiter.late_sleeps < 200
    play(10_000, 20_000)
    assert waiter.margin_ns < 2 * before_ns + 10_000


def test_a_margin_is_bounded() -> None:
    """Proves that a machine which sleeps seconds too long does not turn every wait into watching the clock."""
    clock = ScriptedClock([2_000_000_000], look_ns=100)
    assert PreciseWaiter(clock).margin_ns == 1_000_000


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10**9))
def test_ticks_are_a_grid_from_the_start(start_ns: int, after_ns: int, tick_ns: int) -> None:
    """Proves that a target is the first grid point at or after the due time."""
    target_ns = TickWaiter(ManualClock(), tick_ns).target_ns(start_ns + after_ns, start_ns)
    assert (target_ns - start_ns) % tick_ns == 0
    assert 0 <= target_ns - (start_ns + after_ns) < tick_ns


def test_a_tick_of_nothing_is_refused() -> None:
    """Proves that the grid exists."""
    with pytest.raises(UsageError, match="write 1ms"):
        TickWaiter(ManualClock(), 0)

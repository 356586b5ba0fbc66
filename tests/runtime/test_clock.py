"""The clocks."""

from __future__ import annotations

from spanlite.runtime.clock import Clock, ManualClock, SystemClock


def test_the_manual_clock_moves_only_when_told() -> None:
    """Proves that both readings stand still, and then move by the same."""
    clock: Clock = ManualClock(1_000)
    assert (clock.unix_ns(), clock.monotonic_ns()) == (1_000, 0)
    assert (clock.unix_ns(), clock.monotonic_ns()) == (1_000, 0)
    clock.sleep_s(1.5)
    assert (clock.unix_ns(), clock.monotonic_ns()) == (1_500_001_000, 1_500_000_000)


def test_the_manual_clock_advances_by_whole_nanoseconds() -> None:
    """Proves exactness."""
    clock = ManualClock()
    for _ in range(10):
        clock.advance_ns(1)
    assert (clock.unix_ns(), clock.monotonic_ns()) == (10, 10)


def test_the_system_clock_never_goes_back_and_sleeps_long_enough() -> None:
    """Proves the promise of `sleep_s`: not before the time asked for."""
    clock: Clock = SystemClock()
    before_unix, before = clock.unix_ns(), clock.monotonic_ns()
    clock.sleep_s(0.001)
    assert clock.monotonic_ns() - before >= 1_000_000
    assert before_unix > 1_700_000_000 * 10**9
    assert isinstance(before_unix, int)

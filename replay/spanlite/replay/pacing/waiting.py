"""Waiting for a point in time: how exactly, at what cost.

All three sleep in slices, so that a stop is noticed within 50 ms however far away the point is, and none returns before
the point unless it was stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import Clock

SLICE_NS = 25_000_000
"""Longest sleep between two looks at the stop."""
_SAMPLES, _SAMPLE_NS = 64, 500_000
_MOST_MARGIN_NS = 1_000_000
"""Sleeps that end later than this were kept from a processor, and watching the clock would have been as well."""
_MISSES = 1024
"""One sleep in so many may end after the point: where the margin settles."""


class Waiter(Protocol):
    """One way of waiting, on `clock`'s monotonic time."""

    name: str
    clock: Clock

    def target_ns(self, due_ns: int, start_ns: int) -> int:
        """When an item that is due then is to be emitted, in a replay that began at `start_ns`."""
        ...

    def wait(self, until_ns: int, stopped: Callable[[], bool]) -> int:
        """Returns the time after the point has come, or at most 50 ms after `stopped` has become true."""
        ...


class SleepWaiter:
    """Sleeps: next to no processor time, some 0.1 ms late."""

    name = "sleep"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def target_ns(self, due_ns: int, start_ns: int) -> int:  # noqa: ARG002  # of the protocol
        return due_ns

    def wait(self, until_ns: int, stopped: Callable[[], bool]) -> int:
        return _sleep(self.clock, until_ns, stopped)


class TickWaiter:
    """Wakes on a fixed grid and lets go of all that has become due: cheap at any rate, up to a tick late."""

    def __init__(self, clock: Clock, tick_ns: int = 1_000_000) -> None:
        if tick_ns < 1:
            raise UsageError(f"a tick of {tick_ns} ns is none; write 1ms or so")
        self.clock = clock
        self.name = f"tick={tick_ns / 1e6:g}ms"
        self._tick_ns = tick_ns

    def target_ns(self, due_ns: int, start_ns: int) -> int:
        return due_ns + (start_ns - due_ns) % self._tick_ns

    def wait(self, until_ns: int, stopped: Callable[[], bool]) -> int:
        return _sleep(self.clock, until_ns, stopped)


class PreciseWaiter:
    """Sleeps until shortly before, then watches the clock: within microseconds, at the cost of most of a core.

    How shortly follows from how late sleeps end here: measured at the start, then moved by every sleep, up by much
    where it ended after the point and down by little where not, so that about one in 1,024 ends after it.

    Attributes:
        margin_ns: how long before the point the next sleep is to end.
        late_sleeps: sleeps that ended after the point.
    """

    name = "precise"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.late_sleeps = 0
        self.margin_ns = 0
        over_ns = sorted(self._oversleep_ns(_SAMPLE_NS) for _ in range(_SAMPLES))
        self.margin_ns = min(over_ns[-2] * 5 // 4, _MOST_MARGIN_NS)

    def target_ns(self, due_ns: int, start_ns: int) -> int:  # noqa: ARG002  # of the protocol
        return due_ns

    def wait(self, until_ns: int, stopped: Callable[[], bool]) -> int:
        read_ns = self.clock.monotonic_ns
        now_ns = read_ns()
        wake_ns = until_ns - self.margin_ns
        if now_ns < wake_ns:
            now_ns = _sleep(self.clock, wake_ns, stopped)
            if now_ns < wake_ns:
                return now_ns
            self._adapt(now_ns > until_ns)
        while now_ns < until_ns:
            now_ns = read_ns()
        return now_ns

    def _adapt(self, late: bool) -> None:
        step_ns = self.margin_ns // (4 * _MISSES) + 1
        if late:
            self.late_sleeps += 1
            self.margin_ns = min(self.margin_ns + step_ns * (_MISSES - 1), _MOST_MARGIN_NS)
        else:
            self.margin_ns = max(self.margin_ns - step_ns, 0)

    def _oversleep_ns(self, sleep_ns: int) -> int:
        until_ns = self.clock.monotonic_ns() + sleep_ns
        self.clock.sleep_s(sleep_ns / 1e9)
        return max(self.clock.monotonic_ns() - until_ns, 0)


def _sleep(clock: Clock, until_ns: int, stopped: Callable[[], bool]) -> int:
    now_ns = clock.monotonic_ns()
    while now_ns < until_ns and not stopped():
        clock.sleep_s(min(until_ns - now_ns, SLICE_NS) / 1e9)
        now_ns = clock.monotonic_ns()
    return now_ns

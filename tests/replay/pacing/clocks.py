"""Clocks that behave as told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from spanlite.runtime.clock import ManualClock


class ScriptedClock(ManualClock):
    """Sleeps end late by a script, and each look at the clock takes some time.

    Attributes:
        slept_ns: what was asked for, each sleep.
        looks: how often the monotonic time was read.
    """

    def __init__(self, over_ns: list[int], look_ns: int = 0) -> None:
        super().__init__()
        self._over = cycle(over_ns)
        self._look_ns = look_ns
        self.slept_ns: list[int] = []
        self.looks = 0

    def monotonic_ns(self) -> int:
        self.looks += 1
        self.advance_ns(self._look_ns)
        return super().monotonic_ns()

    def sleep_s(self, seconds: float) -> None:
        self.slept_ns.append(round(seconds * 1e9))
        super().sleep_s(seconds)
        self.advance_ns(next(self._over))


def stopped_from(clock: ManualClock, at_ns: int) -> Callable[[], bool]:
    """A stop that is told at a point in time."""
    return lambda: ManualClock.monotonic_ns(clock) >= at_ns

"""Time as a value that is handed in: the only module that reads a clock or sleeps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time in nanoseconds.

    `unix_ns` may step when the host's clock is set; `monotonic_ns` never goes back. `sleep_s` returns at or after
    the time asked for, never before.
    """

    def unix_ns(self) -> int: ...

    def monotonic_ns(self) -> int: ...

    def sleep_s(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clocks."""

    unix_ns = staticmethod(time.time_ns)  # noqa: TID251  # this module is where the clock is read
    monotonic_ns = staticmethod(time.monotonic_ns)  # both without a step in Python: observations ask them each time

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251  # likewise


class ManualClock:
    """A clock that moves only when told: the twin for tests and for replays at full speed."""

    def __init__(self, unix_ns: int = 0) -> None:
        self._start_unix_ns = unix_ns
        self._elapsed_ns = 0

    def unix_ns(self) -> int:
        return self._start_unix_ns + self._elapsed_ns

    def monotonic_ns(self) -> int:
        return self._elapsed_ns

    def sleep_s(self, seconds: float) -> None:
        self.advance_ns(round(seconds * 1e9))

    def advance_ns(self, ns: int) -> None:
        """Moves both readings forward."""
        self._elapsed_ns += ns

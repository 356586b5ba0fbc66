"""SIGTERM and Ctrl-C as a flag, for commands that have something to finish."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Stopping:
    """As a context: `told` becomes true at the first signal; a second one ends the process as it would have."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self._before: dict[int, signal._HANDLER] = {}

    @property
    def told(self) -> bool:
        """Whether a signal has come."""
        return self._told.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Waits for a signal; whether one has come."""
        return self._told.wait(timeout_s)

    def __enter__(self) -> Stopping:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _tell(self, _number: int, _frame: FrameType | None) -> None:
        self._told.set()
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

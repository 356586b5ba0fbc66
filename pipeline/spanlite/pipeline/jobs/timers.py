"""Timers that the operators share: when a key is idle, when it is gone for good, when something is due."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pyflink.datastream import TimerService

END_OF_INPUT = 2**63 - 1
"""Flink's last watermark: it comes when a bounded input ends and when a job is stopped with --drain."""


class Fired(Enum):
    """What a timer of a key says."""

    NOTHING = 0
    IDLE = 1
    GONE = 2


class _Timer(NamedTuple):
    at_ms: int
    idle: bool


class Activity:
    """Tells when a key has been idle for a while, and when for so long that its state can go.

    One timer a key, which follows the newest activity. After a restart, a timer of the life before counts as activity.
    """

    def __init__(self, idle_ms: int, retain_ms: int) -> None:
        self._idle_ms = idle_ms
        self._retain_ms = retain_ms
        self._last_ms: dict[str, int] = {}
        self._timers: dict[str, _Timer] = {}

    def active(self, key: str, timers: TimerService) -> None:
        """Something has come for the current key."""
        now = timers.current_processing_time()
        self._last_ms[key] = now
        known = self._timers.get(key)
        if known is not None and known.idle:
            timers.delete_processing_time_timer(known.at_ms)
        if known is None or known.idle:
            timers.register_event_time_timer(END_OF_INPUT)
            self._arm(key, now + self._idle_ms, timers, idle=False)

    def fired(self, key: str, at_ms: int, timers: TimerService) -> Fired:
        """What the processing-time timer of the current key means."""
        now = timers.current_processing_time()
        known = self._timers.get(key)
        if known is None:
            self._last_ms[key] = now
            self._arm(key, now + self._idle_ms, timers, idle=False)
            return Fired.NOTHING
        if known.at_ms != at_ms:
            return Fired.NOTHING
        if known.idle:
            del self._timers[key]
            return Fired.GONE
        due = self._last_ms[key] + self._idle_ms
        if due > now:
            self._arm(key, due, timers, idle=False)
            return Fired.NOTHING
        del self._last_ms[key]
        self._arm(key, now + self._retain_ms, timers, idle=True)
        return Fired.IDLE

    def _arm(self, key: str, at_ms: int, timers: TimerService, *, idle: bool) -> None:
        timers.register_processing_time_timer(at_ms)
        self._timers[key] = _Timer(at_ms, idle)


class Soon:
    """One timer a key, a fixed time after the first thing that waits for it."""

    def __init__(self, after_ms: int) -> None:
        self._after_ms = after_ms
        self._armed: dict[str, int] = {}

    def arm(self, key: str, timers: TimerService) -> None:
        """Something of the current key waits."""
        if key not in self._armed:
            self._armed[key] = timers.current_processing_time() + self._after_ms
            timers.register_processing_time_timer(self._armed[key])
            timers.register_event_time_timer(END_OF_INPUT)

    def fired(self, key: str, at_ms: int) -> bool:
        """Whether a timer of the current key is this one, or one of the life before a restart; it is then done."""
        if self._armed.get(key, at_ms) != at_ms:
            return False
        self._armed.pop(key, None)
        return True

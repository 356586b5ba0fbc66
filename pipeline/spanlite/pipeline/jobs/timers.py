"""Timers that the operators share: when a key is idle, when it is gone for good, when something is due."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from spanlite.pipeline.idleness import Idleness

END_OF_INPUT = 2**63 - 1
"""Flink's last watermark: it comes when a bounded input ends and when a job is stopped with --drain."""
_BUNDLE_MS = 1500
"""In process mode PyFlink hands timers over with the elements of a second (`python.fn-execution.bundle.time`)."""


class Timers(Protocol):
    """What is used of Flink's TimerService: timers of the current key, one a time, which is Unix time in ms."""

    def current_processing_time(self) -> int: ...

    def register_processing_time_timer(self, timestamp: int) -> None: ...

    def register_event_time_timer(self, timestamp: int) -> None: ...

    def delete_processing_time_timer(self, timestamp: int) -> None: ...


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

    One timer a key, which follows the newest activity and tells when `Idleness` has to be asked again; and one of the
    whole subtask, on whichever key was current, by which a subtask that is held up is known. Timers of the life before
    a restart stand for keys that may have sent something since.
    """

    def __init__(self, idle_ms: int, retain_ms: int) -> None:
        self._idle_ms = idle_ms
        self._retain_ms = retain_ms
        self._idleness: Idleness[str] = Idleness(idle_ms, punctual=max(idle_ms // 8, _BUNDLE_MS))
        self._timers: dict[str, _Timer] = {}
        self._watch: tuple[str, int] | None = None

    def active(self, key: str, timers: Timers, sent_ms: int | None = None) -> None:
        """Something has come for the current key.

        Args:
            sent_ms: when it was sent; None, 0 or less where it does not say.
        """
        now = timers.current_processing_time()
        self._idleness.heard(key, now, now - sent_ms if sent_ms is not None and sent_ms > 0 else None)
        known = self._timers.get(key)
        if known is not None and known.idle and (key, known.at_ms) != self._watch:
            timers.delete_processing_time_timer(known.at_ms)
        if known is None or known.idle:
            timers.register_event_time_timer(END_OF_INPUT)
            self._ask_again(key, now, timers)
        self._watch_on(key, now, timers)

    def fired(self, key: str, at_ms: int, timers: Timers) -> Fired:
        """What a processing-time timer of the current key means, whoever has registered it."""
        now = timers.current_processing_time()
        self._idleness.came_round(at_ms, now)
        watch = self._watch == (key, at_ms)
        if watch:
            self._watch = None
        fired = self._meaning(key, at_ms, now, timers, watch=watch)
        self._watch_on(key, now, timers)
        return fired

    def _meaning(self, key: str, at_ms: int, now: int, timers: Timers, *, watch: bool) -> Fired:
        known = self._timers.get(key)
        if known is None and not watch:
            self._idleness.remembered(key, now)
            self._ask_again(key, now, timers)
        if known is None or known.at_ms != at_ms:
            return Fired.NOTHING
        if known.idle:
            del self._timers[key]
            return Fired.GONE
        if self._idleness.due(key) > now:
            self._ask_again(key, now, timers)
            return Fired.NOTHING
        self._idleness.give_up(key)
        self._arm(key, now + self._retain_ms, timers, idle=True)
        return Fired.IDLE

    def _ask_again(self, key: str, now: int, timers: Timers) -> None:
        # Not beyond one `idle`: a key in doubt that is heard again may be idle earlier than it looks now.
        self._arm(key, min(self._idleness.due(key), now + self._idle_ms), timers, idle=False)

    def _arm(self, key: str, at_ms: int, timers: Timers, *, idle: bool) -> None:
        timers.register_processing_time_timer(at_ms)
        self._timers[key] = _Timer(at_ms, idle)

    def _watch_on(self, key: str, now: int, timers: Timers) -> None:
        if self._watch is None and self._idleness.keys:
            self._watch = (key, now + self._idleness.step)
            timers.register_processing_time_timer(self._watch[1])


class Soon:
    """One timer a key, a fixed time after the first thing that waits for it."""

    def __init__(self, after_ms: int) -> None:
        self._after_ms = after_ms
        self._armed: dict[str, int] = {}

    def arm(self, key: str, timers: Timers) -> None:
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

"""When a producer is idle: it has been silent for a while in which nothing of it can have waited to be read."""

from __future__ import annotations

from collections.abc import Hashable, KeysView
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

PATIENCE = 6
"""Silence of so many times `idle` is idleness, even where something may still wait."""


class _Heard(NamedTuple):
    """When a key was heard last, in free time, and whether it was then behind."""

    at: int
    behind: bool


class Idleness(Generic[K]):
    """Judges the silence of the keys that one reader reads; decision 14 says why so.

    A key is idle when nothing has come from it for `idle` in which the reader was up to date all the time. Where that
    is in doubt, it is idle after `PATIENCE * idle`. In doubt are

    - all keys, from when the reader was held up, or read nothing but old messages, or left some waiting;
    - a key whose last message was old, or that has not been heard since the reader began.

    Time in which the reader was held up counts for nothing, so no stop, however long, makes anyone idle. A message is
    old when it is older than half of `idle`.

    All times are of the reader's one clock, in one unit, whole numbers.

    Attributes:
        step: how far apart calls of `came_round` should be: who calls it at least so often hides no stop from it that
            is longer than `step` and what counts as punctual together.
    """

    def __init__(self, idle: int, *, punctual: int | None = None) -> None:
        """Args: punctual: lateness that is no sign of a stop; `step` unless given."""
        self._idle = idle
        self.step = max(idle // 8, 1)
        self._punctual = self.step if punctual is None else punctual
        self._keys: dict[K, _Heard] = {}
        self._held = 0
        """Time that the reader was held up for, in all; free time is the clock's less this."""
        self._held_to: int | None = None
        self._fresh_at: int | None = None
        self._doubted_at: int | None = None

    @property
    def keys(self) -> KeysView[K]:
        """Those that are not idle."""
        return self._keys.keys()

    def heard(self, key: K, now: int, age: int | None = None) -> None:
        """A message of a key is read.

        Args:
            age: time since it was sent; None where that is not known. Less than minus half of `idle` is not known
                either: the sender's clock is another.
        """
        old = age is not None and 2 * age > self._idle
        self._keys[key] = _Heard(now - self._held, old)
        if old and (self._fresh_at is None or now - self._fresh_at > self.step):
            self.left_waiting(now)
        elif age is not None and not old and 2 * age >= -self._idle:
            self._fresh_at = now

    def remembered(self, key: K, now: int) -> None:
        """A key of the life before a restart, which may have sent something meanwhile."""
        self._keys[key] = _Heard(now - self._held, behind=True)

    def came_round(self, due: int, now: int) -> None:
        """What the reader was to do at `due` is done now; if late, it was held up, and what came meanwhile waits."""
        if now - due <= self._punctual:
            return
        since = due if self._held_to is None else max(due, self._held_to)
        self._held += max(now - since, 0)
        self._held_to = now
        self.left_waiting(now)

    def left_waiting(self, now: int) -> None:
        """The reader is not up to date: something waits, of whichever key."""
        self._doubted_at = now - self._held

    def due(self, key: K) -> int:
        """When the key will be idle, as far as is known now; later, if anything happens until then.

        Raises:
            KeyError: it is idle, or was never heard.
        """
        last = self._keys[key]
        latest = last.at + PATIENCE * self._idle
        if last.behind:
            return latest + self._held
        sure = last.at if self._doubted_at is None else max(last.at, self._doubted_at)
        return min(latest, sure + self._idle) + self._held

    def idle(self, now: int) -> list[K]:
        """All keys that are idle now, for who has no timers; each is to be given up."""
        return [key for key in self._keys if self.due(key) <= now]

    def give_up(self, key: K) -> None:
        """The key is idle, or of no more interest; the next message makes it one like any other."""
        self._keys.pop(key, None)

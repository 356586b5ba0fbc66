"""A subtask of Flink's without Flink: one thread, a manual clock, keyed timers, and an input that waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from spanlite.pipeline.jobs.timers import Activity, Fired


class Message(NamedTuple):
    """What is read.

    Attributes:
        at: when it can be read at the earliest; all times are ms.
        sent: its record's timestamp.
        cost: how long the subtask works on it.
    """

    at: int
    key: str
    sent: int
    cost: int = 1


class KeyedTimers:
    """Flink's processing-time timers, at most one a key and time; they outlive an operator, as in a checkpoint."""

    def __init__(self) -> None:
        self.now = 0
        self.key = ""
        self.waiting: set[tuple[int, str]] = set()

    def current_processing_time(self) -> int:
        return self.now

    def register_processing_time_timer(self, timestamp: int) -> None:
        self.waiting.add((timestamp, self.key))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self.waiting.discard((timestamp, self.key))

    def register_event_time_timer(self, timestamp: int) -> None:
        """None fires here."""

    def next_at(self) -> int | None:
        """When the first of them is due."""
        return min(self.waiting)[0] if self.waiting else None


class Subtask:
    """Drives an `Activity` as Flink's mailbox does: timers that are due go first, then one message of the input.

    Attributes:
        heard: when each key's newest message was read.
        idle, gone: keys and times of what the timers meant.
        overlooked: silence of those that were taken for idle while something of them could be read.
    """

    def __init__(self, idle: int, retain: int, timers: KeyedTimers | None = None) -> None:
        self.timers = timers or KeyedTimers()
        self.activity = Activity(idle, retain)
        self.input: deque[Message] = deque()
        self.heard: dict[str, int] = {}
        self.idle: list[tuple[str, int]] = []
        self.gone: list[tuple[str, int]] = []
        self.overlooked: list[int] = []

    def add(self, messages: Iterable[Message]) -> None:
        """They are read in the order given, each when it can be."""
        self.input.extend(messages)

    def stop(self, ms: int) -> None:
        """Nothing happens for so long."""
        self.timers.now += ms

    def run(self, until: int) -> None:
        """Works until then, and on what is begun before."""
        timers = self.timers
        while timers.now < until:
            due = timers.next_at()
            if due is not None and due <= timers.now:
                self._fire(due)
            elif self.input and self.input[0].at <= timers.now:
                self._read(self.input.popleft())
            else:
                coming = [until] if due is None else [until, due]
                timers.now = min([*coming, self.input[0].at] if self.input else coming)

    def _fire(self, at: int) -> None:
        timer = min(self.timers.waiting)
        self.timers.waiting.remove(timer)
        self.timers.key = timer[1]
        fired = self.activity.fired(timer[1], at, self.timers)
        if fired is Fired.IDLE:
            self.idle.append((timer[1], self.timers.now))
            if any(message.key == timer[1] and message.at <= self.timers.now for message in self.input):
                self.overlooked.append(self.timers.now - self.heard[timer[1]])
        elif fired is Fired.GONE:
            self.gone.append((timer[1], self.timers.now))

    def _read(self, message: Message) -> None:
        self.timers.key = message.key
        self.heard[message.key] = self.timers.now
        self.activity.active(message.key, self.timers, message.sent)
        self.timers.now += message.cost

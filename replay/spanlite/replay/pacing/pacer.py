"""Emits items when they are due, and tells how well that went."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from spanlite.replay.pacing.late import Late, LatePolicy
from spanlite.replay.pacing.lateness import Lateness
from spanlite.replay.pacing.schedule import Due
from spanlite.replay.pacing.waiting import Waiter

Item = TypeVar("Item")
LEAD_NS = 5_000_000
"""From the first item in hand to the start, so that it is not late at once."""


@dataclass(frozen=True)
class Progress:
    """One interval, and where the replay stands at its end.

    Attributes:
        elapsed_ns: since the start.
        sent: items, since the start.
        dropped: items left out, since the start.
        rate: items a second in the interval.
        target: what was due a second in the interval, as far as the chunk in hand tells.
        behind_items: due by now, of the chunk in hand, and neither sent nor dropped.
        behind_ns: how long the next item is overdue; 0 if it is not.
        lateness: of the items sent in the interval.
    """

    elapsed_ns: int
    sent: int
    dropped: int
    rate: float
    target: float
    behind_items: int
    behind_ns: int
    lateness: Lateness


@dataclass
class Summary:
    """A replay that has ended; read = sent + all that was dropped.

    Attributes:
        ended: `finished`, `stopped`, `duration` or `aborted`.
        read: items taken from the schedule.
        sent: items emitted.
        late: items that were late by the policy, whatever was done about it.
        dropped: items not emitted by reason: `late`, or what ended the replay (the rest of the chunk in hand; what
            comes after it was not read).
        shifts: how often the rest was moved.
        shifted_ns: by how much in all; lateness is against the moved schedule.
        lateness: of the items sent, against their due time.
        intended_ns: from the first due time sent to the last.
        took_ns: from the first emission to the last.
    """

    ended: str = "finished"
    read: int = 0
    sent: int = 0
    late: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    shifts: int = 0
    shifted_ns: int = 0
    lateness: Lateness = field(default_factory=Lateness)
    intended_ns: int = 0
    took_ns: int = 0

    @property
    def length_ratio(self) -> float:
        """How long it took, of how long it was to take; 1 where nothing was to take time."""
        return self.took_ns / self.intended_ns if self.intended_ns else 1.0


class Pacer(Generic[Item]):
    """Drives `emit` in the thread that calls `run`, which should have nothing else to do.

    Args:
        waiter: how to wait; its clock is the pacer's.
        emit: is handed each item when it is due; what it raises ends the replay.
        policy: what to do with late items.
        stopped: ends the replay once it is true.
        progress: is told about each interval; an interval in which nothing could be told is part of the next.
        interval_ns: length of the intervals.
        duration_ns: ends the replay so long after its start (and what the policy lets pass), even if the schedule is
            not through by then because it could not be kept.
    """

    def __init__(
        self,
        waiter: Waiter,
        emit: Callable[[Item], object],
        *,
        policy: LatePolicy | None = None,
        stopped: Callable[[], bool] = lambda: False,
        progress: Callable[[Progress], object] | None = None,
        interval_ns: int = 10**9,
        duration_ns: int | None = None,
    ) -> None:
        self._waiter = waiter
        self._emit = emit
        self._policy = policy or LatePolicy()
        self._stopped = stopped
        self._progress = progress
        self._interval_ns = interval_ns
        self._end_ns = None if duration_ns is None else duration_ns + self._policy.over_ns
        self._due_ns = self._now_ns = self._start_ns = self._first_ns = self._first_due_ns = 0
        self._reported_ns = self._reported_due = self._reported_sent = 0
        self._recent = Lateness()
        self._late_ns: list[int] = []
        self._summary = Summary()

    @property
    def shifted_ns(self) -> int:
        """By how much due times have been moved so far."""
        return self._summary.shifted_ns

    @property
    def due_ns(self) -> int:
        """Monotonic time at which the item that is emitted now was due, in the schedule as moved before it."""
        return self._due_ns

    @property
    def now_ns(self) -> int:
        """Monotonic time at which it was let go: no clock is read for it once more."""
        return self._now_ns

    def run(self, chunks: Iterable[Due[Item]], *, start_ns: int | None = None) -> Summary:
        """Emits all items of the chunks; to be called once.

        Args:
            chunks: due times and items; taking the next one is to be quick, what it takes makes items late.
            start_ns: monotonic time of due time 0; by default 5 ms after the first chunk is in hand.
        """
        began = False
        for chunk in chunks:
            if not began:
                began, self._now_ns = True, self._waiter.clock.monotonic_ns()
                self._start_ns = self._now_ns + LEAD_NS if start_ns is None else start_ns
                self._reported_ns = self._start_ns
            due_ns = chunk.due_ns.tolist()
            self._summary.read += len(due_ns)
            done, why = self._play(due_ns, chunk.items)
            self._fold()
            if why:
                self._summary.ended = why
                if done < len(due_ns):
                    self._summary.dropped[why] = len(due_ns) - done
                break
        if self._progress and began:
            self._report([], 0)
        self._summary.lateness.merge(self._recent)
        return self._summary

    def _play(self, due_ns: list[int], items: Iterable[Item]) -> tuple[int, str | None]:
        """Emits a chunk: how many of its items are done, and why not all."""
        summary, waiter, emit, stopped = self._summary, self._waiter, self._emit, self._stopped
        for at, (due, item) in enumerate(zip(due_ns, items, strict=True)):
            planned_ns = self._start_ns + summary.shifted_ns + due
            target_ns = waiter.target_ns(planned_ns, self._start_ns)
            if self._progress and max(self._now_ns, target_ns) - self._reported_ns >= self._interval_ns:
                self._report_until(target_ns, due_ns, at)
            now_ns = self._now_ns = waiter.wait(target_ns, stopped)
            if stopped():
                return at, "stopped"
            if self._end_ns is not None and now_ns - self._start_ns >= self._end_ns:
                return at, "duration"
            if now_ns - target_ns > self._policy.over_ns:
                summary.late += 1
                if self._policy.action is Late.ABORT:
                    return at, "aborted"
                if self._policy.action is Late.DROP:
                    summary.dropped["late"] = summary.dropped.get("late", 0) + 1
                    continue
                if self._policy.action is Late.SHIFT:
                    summary.shifts += 1
                    summary.shifted_ns += now_ns - target_ns
            self._due_ns = planned_ns
            emit(item)
            if not summary.sent:
                self._first_ns, self._first_due_ns = now_ns, due
            summary.sent += 1
            summary.took_ns = now_ns - self._first_ns
            summary.intended_ns = due - self._first_due_ns
            self._late_ns.append(now_ns - planned_ns)
        return len(due_ns), None

    def _report_until(self, target_ns: int, due_ns: list[int], at: int) -> None:
        """Tells of the intervals that end before the next item's time."""
        while not self._stopped():
            next_ns = self._reported_ns + self._interval_ns
            if next_ns > max(self._now_ns, target_ns):
                return
            self._now_ns = self._waiter.wait(next_ns, self._stopped)
            self._report(due_ns, at)

    def _report(self, due_ns: list[int], at: int) -> None:
        self._fold()
        summary, now_ns = self._summary, self._now_ns
        dropped = sum(summary.dropped.values())
        since_start_ns = now_ns - self._start_ns - summary.shifted_ns
        waiting = bisect_right(due_ns, since_start_ns, at) - at
        due = summary.sent + dropped + waiting
        seconds = max(now_ns - self._reported_ns, 1) / 1e9
        if self._progress:
            self._progress(
                Progress(
                    elapsed_ns=now_ns - self._start_ns,
                    sent=summary.sent,
                    dropped=dropped,
                    rate=(summary.sent - self._reported_sent) / seconds,
                    target=(due - self._reported_due) / seconds,
                    behind_items=waiting,
                    behind_ns=since_start_ns - due_ns[at] if waiting else 0,
                    lateness=self._recent,
                )
            )
        summary.lateness.merge(self._recent)
        self._recent = Lateness()
        self._reported_ns, self._reported_sent, self._reported_due = now_ns, summary.sent, due

    def _fold(self) -> None:
        self._recent.add(self._late_ns)
        self._late_ns.clear()

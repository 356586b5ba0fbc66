"""Due times of a recording's items: closed formulas of source times, in whole nanoseconds.

source time → cut gaps → passes one after the other → speed → limit → duration

Nothing is accumulated but integers, so that chunks of any size give what the whole array gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.pacing.limiter import Limiter
from spanlite.replay.pacing.rates import MOST_NS, scaled
from spanlite.replay.pacing.settings import Pace

Item = TypeVar("Item")


class Schedule:
    """Turns chunks of source times into due times relative to the start of the replay.

    Attributes:
        passes: how many have ended.
        ended: why nothing more is due: `passes`, `duration`, `items`, `empty` (a pass without items); else None.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._limiter = Limiter(pace.limit) if pace.limit else None
        self._period_ns = pace.period_ns
        self._first_ns = self._last_ns = pace.origin_ns
        self._cut_ns = 0
        self._in_pass = 0
        self._position_ns = 0
        self._taken = 0
        self.passes = 0
        self.ended: str | None = None

    def take(self, times_ns: Int64, weights: Int64 | None = None) -> Int64:
        """Due times of the next items of this pass, ascending.

        Args:
            times_ns: source times in ascending order, shape (n,).
            weights: of each against the limit, 0 or more; 1 each if not given.

        Returns:
            Shape (m,), m ≤ n: the first m items are to be emitted; m < n only where `ended` says why.

        Raises:
            ReplayError: not in order, or due in more than 292 years.
        """
        if self.ended or not len(times_ns):
            return np.empty(0, np.int64)
        position = self._positions(times_ns)
        due = self._paced(position)
        if self._limiter:
            due = self._limiter.delayed(due, np.ones(len(due), np.int64) if weights is None else weights)
        return self._within(due)

    def end_of_pass(self) -> bool:
        """Tells that the recording has been read to its end; whether it is to be read again.

        Raises:
            UsageError: all items of the recording have one time, and no period, limit or speed of max says what then.
        """
        self.passes += 1
        if not self.ended and self.passes == self._pace.loops:
            self.ended = "passes"
        if not self.ended and not self._in_pass:
            self.ended = "empty"
        if self.ended:
            return False
        if self._period_ns is None:
            self._period_ns = self._mean_period()
        self._first_ns = self._last_ns = self._pace.origin_ns
        self._cut_ns = self._in_pass = 0
        return True

    def _positions(self, times_ns: Int64) -> Int64:
        """Source time that has passed before each item, without what was cut, over all passes."""
        if self._first_ns is None or self._last_ns is None:
            self._first_ns = self._last_ns = int(times_ns[0])
        self._check_order(times_ns, self._last_ns)
        if int(times_ns[-1]) - self._first_ns > MOST_NS:
            raise ReplayError("the recording is longer than 292 years; select a range of times")
        since = times_ns - self._first_ns if abs(self._first_ns) < 2**62 else _minus(times_ns, self._first_ns)
        if self._pace.gap_cap_ns is not None:
            gaps = np.diff(since, prepend=self._last_ns - self._first_ns)
            cut = self._cut_ns + np.cumsum(np.maximum(gaps - self._pace.gap_cap_ns, 0))
            since -= cut
            self._cut_ns = int(cut[-1])
        base = self.passes * (self._period_ns or 0)
        if base + int(since[-1]) > MOST_NS:
            raise ReplayError(f"pass {self.passes} would reach beyond 292 years; loop less often")
        if base + int(since[0]) < self._position_ns:
            raise UsageError(f"a period of {self._period_ns} ns is shorter than the recording; write a longer one")
        self._last_ns = int(times_ns[-1])
        self._in_pass += len(times_ns)
        self._position_ns = base + int(since[-1])
        return since + base

    def _check_order(self, times_ns: Int64, last_ns: int) -> None:
        back = np.flatnonzero(times_ns[1:] < times_ns[:-1]) + 1
        if int(times_ns[0]) < last_ns:
            at, before = 0, last_ns
        elif len(back):
            at, before = int(back[0]), int(times_ns[back[0] - 1])
        else:
            return
        raise ReplayError(
            f"item {self._in_pass + at} of pass {self.passes} is at {times_ns[at]} ns, {before - int(times_ns[at])} ns "
            "before what precedes it; sort the items by time"
        )

    def _paced(self, position: Int64) -> Int64:
        if self._pace.speed is None:
            return np.zeros(len(position), np.int64)
        form = self._pace.speed.form
        base = int(position[0])
        return form.reached(base * form.unit, scaled(position - base, form.unit))

    def _within(self, due: Int64) -> Int64:
        count = len(due)
        if self._pace.duration_ns is not None:
            count = int(np.searchsorted(due, self._pace.duration_ns))
            if count < len(due):
                self.ended = "duration"
        if self._pace.most_items is not None and self._taken + count >= self._pace.most_items:
            count = self._pace.most_items - self._taken
            self.ended = "items"
        self._taken += count
        return due[:count]

    def _mean_period(self) -> int:
        length = self._position_ns
        gaps = self._in_pass - (self._pace.origin_ns is None)
        if not length and self._pace.speed and not self._pace.limit:
            raise UsageError("the recording's items all have one time and its passes would too; name a period")
        return length - (-length // max(gaps, 1))


@dataclass(frozen=True)
class Chunk(Generic[Item]):
    """Items in the order of their source times, and what each weighs against the limit (1 if not given)."""

    times_ns: Int64
    items: Sequence[Item]
    weights: Int64 | None = None


@dataclass(frozen=True)
class Due(Generic[Item]):
    """Items and when each is due, relative to the start of the replay."""

    due_ns: Int64
    items: Sequence[Item]


def scheduled(schedule: Schedule, read: Callable[[int], Iterable[Chunk[Item]]]) -> Iterator[Due[Item]]:
    """All passes of a recording.

    Args:
        schedule: says when, and when it is over.
        read: the chunks of one pass, in order; is given the pass's number.
    """
    again = True
    while again:
        for chunk in read(schedule.passes):
            due_ns = schedule.take(chunk.times_ns, chunk.weights)
            if len(due_ns):
                yield Due(due_ns, chunk.items[: len(due_ns)])
            if schedule.ended:
                return
        again = schedule.end_of_pass()


def _minus(times_ns: Int64, first_ns: int) -> Int64:
    """times - first where int64 has no room for first; the differences fit."""
    return (times_ns.view(np.uint64) - np.int64(first_ns).view(np.uint64)).view(np.int64)

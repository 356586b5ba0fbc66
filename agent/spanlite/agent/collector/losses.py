"""Spans that were given up, by reason, until a STATS frame has told of them."""

from __future__ import annotations

from collections import Counter, deque


class Losses:
    """Counted from any thread, also from within a callback or signal handler that interrupts another count.

    Adding to a number is no single step in Python; appending is. One thread sums up.
    """

    def __init__(self) -> None:
        self._told: deque[tuple[str, int]] = deque()
        self._sums: Counter[str] = Counter()

    def add(self, reason: str, count: int) -> None:
        """Spans lost for a reason, the key of a STATS frame without `dropped.`, or `stamps_dropped`."""
        if count:
            self._told.append((reason, count))

    def fold(self) -> None:
        """Sums up; the sender's thread alone."""
        while self._told:
            reason, count = self._told.popleft()
            self._sums[reason] += count

    def take(self) -> dict[str, int]:
        """What was lost since the last call; `add` gives it back if it could not be told."""
        self.fold()
        taken = dict(self._sums)
        self._sums.clear()
        return taken

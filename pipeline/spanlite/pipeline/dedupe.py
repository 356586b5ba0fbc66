"""Sequences seen before: redelivery never counts twice."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Run = tuple[int, int]


class Sequences:
    """Which sequences of one producer were taken, as ascending runs: in order they are one run, however many.

    Attributes:
        given_up: sequences in gaps that were closed to bound memory; a batch that fills one later is taken for a
            duplicate.
    """

    def __init__(self, runs: Iterable[Run] = (), *, most_runs: int = 1024) -> None:
        """Args: most_runs: when there are more, the lowest gap is given up."""
        self._first, self._last = [], []
        for first, last in runs:
            self._first.append(first)
            self._last.append(last)
        self._most_runs = most_runs
        self.given_up = 0

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs (first, last), ascending."""
        return tuple(zip(self._first, self._last, strict=True))

    def __contains__(self, sequence: int) -> bool:
        at = bisect_right(self._first, sequence) - 1
        return at >= 0 and sequence <= self._last[at]

    def first_time(self, sequence: int) -> bool:
        """Whether the sequence is new; remembers it if so."""
        at = bisect_right(self._first, sequence)
        if at and sequence <= self._last[at - 1]:
            return False
        follows = at > 0 and self._last[at - 1] == sequence - 1
        precedes = at < len(self._first) and self._first[at] == sequence + 1
        if follows and precedes:
            self._last[at - 1] = self._last.pop(at)
            del self._first[at]
        elif follows:
            self._last[at - 1] = sequence
        elif precedes:
            self._first[at] = sequence
        else:
            self._first.insert(at, sequence)
            self._last.insert(at, sequence)
            self._give_up()
        return True

    def _give_up(self) -> None:
        while len(self._first) > self._most_runs:
            self.given_up += self._first[1] - self._last[0] - 1
            self._last[0] = self._last.pop(1)
            del self._first[1]

"""Every span of one side to that of the other with the same turn, session and number, in whatever order they come.

Both sides come in windows. What has met its twin is compared and let go; what has not waits. Where sides come in about
the same order, little waits; what never comes waits until the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64, UInt64
from spanlite.replay.compare.columns import Columns, joined, rows_of
from spanlite.replay.runs import change_points

_Ranges = tuple[Int32, UInt64, UInt64]
"""Group, first and last number of each."""
_NO_SPANS: Columns = {"group": np.zeros(0, dtype=np.int32), "number": np.zeros(0, dtype=np.uint64)}


@dataclass(slots=True)
class Counts:
    """Spans that came.

    Attributes:
        original, replayed: of each side.
        repeated: in the original more than once; counted once.
        matched: met their twin.
        duplicate: came again after that.
    """

    original: int = 0
    replayed: int = 0
    repeated: int = 0
    matched: int = 0
    duplicate: int = 0


class Seen:
    """Identities that have met their twin, as ranges of numbers, in blocks that are merged when they are as large."""

    def __init__(self) -> None:
        self._blocks: list[_Ranges] = []

    def add(self, group: Int32, number: UInt64) -> None:
        """Adds identities, each once, sorted by group and number."""
        if not len(group):
            return
        self._blocks.append(_merged(group, number, number))
        while len(self._blocks) > 1 and len(self._blocks[-2][0]) <= 2 * len(self._blocks[-1][0]):
            older, newer = self._blocks[-2:]
            group = np.concatenate([older[0], newer[0]])
            first, last = (np.concatenate([older[at], newer[at]]) for at in (1, 2))
            order = np.lexsort((first, group))
            self._blocks[-2:] = [_merged(group[order], first[order], last[order])]

    def holds(self, columns: Columns) -> NDArray[np.bool_]:
        """Which rows are among them."""
        group, number = columns["group"], columns["number"]
        found = np.zeros(len(group), dtype=bool)
        if not len(group):
            return found
        for groups, first, last in self._blocks:
            for one in np.unique(group).tolist():
                begin, end = np.searchsorted(groups, (one, one + 1))
                rows = np.flatnonzero(group == one)
                at = begin - 1 + np.searchsorted(first[begin:end], number[rows], side="right")
                known = at >= begin
                found[rows[known]] |= number[rows[known]] <= last[at[known]]
        return found


def _merged(group: Int32, first: UInt64, last: UInt64) -> _Ranges:
    """Sorted ranges, those that touch as one."""
    broken = np.ones(len(group), dtype=bool)
    broken[1:] = (group[1:] != group[:-1]) | (first[1:] != last[:-1] + np.uint64(1))
    begins = np.flatnonzero(broken)
    ends = np.append(begins[1:], len(group)) - 1
    return group[begins], first[begins], last[ends]


class Matcher:
    """Joins windows of both sides.

    Args:
        compare: is given pairs as they are found: rows of the original, and as many of the replay.

    Attributes:
        counts: what came.
        most_waiting: most spans that waited at one time.
    """

    def __init__(self, compare: Callable[[Columns, Columns], None]) -> None:
        self._compare = compare
        self._original: list[Columns] = []
        self._replayed: list[Columns] = []
        self._seen = Seen()
        self.counts = Counts()
        self.most_waiting = 0

    @property
    def waiting(self) -> int:
        """Spans of either side that wait."""
        return sum(len(part["group"]) for part in (*self._original, *self._replayed))

    def add_original(self, columns: Columns) -> None:
        """Takes spans of the original."""
        self.counts.original += len(columns["group"])
        self._original.append(columns)

    def add_replayed(self, columns: Columns) -> None:
        """Takes spans of the replay."""
        self.counts.replayed += len(columns["group"])
        self._replayed.append(columns)

    def join(self) -> None:
        """Pairs what has come."""
        self.most_waiting = max(self.most_waiting, self.waiting)
        original = joined(self._original or [_NO_SPANS])
        replayed = joined(self._replayed or [_NO_SPANS])
        count = len(original["group"])
        group = np.concatenate([original["group"], replayed["group"]])
        number = np.concatenate([original["number"], replayed["number"]])
        order = np.lexsort((number, group))  # stable: of equal ones the original's come first, then in order of coming
        group, number = group[order], number[order]
        begins = change_points(group, number)
        sizes = np.diff(np.append(begins, len(order)))
        of_original = np.add.reduceat(order < count, begins, dtype=np.int64) if len(begins) else begins
        both = (of_original > 0) & (of_original < sizes)
        mine, theirs = order[begins[both]], order[begins[both] + of_original[both]] - count
        self.counts.repeated += int((of_original - 1)[of_original > 1].sum())
        self.counts.matched += len(mine)
        self.counts.duplicate += int((sizes - of_original - 1)[both].sum())
        if len(mine):
            self._compare(rows_of(original, mine), rows_of(replayed, theirs))
        alone_original = np.sort(order[begins[(of_original > 0) & ~both]])
        alone_replayed = np.sort(order[np.repeat(of_original == 0, sizes)]) - count
        self._original, repeated = self._unmet(original, alone_original)
        self._replayed, duplicate = self._unmet(replayed, alone_replayed)
        self.counts.repeated += repeated
        self.counts.duplicate += duplicate
        self._seen.add(group[begins[both]], number[begins[both]])

    def _unmet(self, columns: Columns, alone: Int64) -> tuple[list[Columns], int]:
        """Those of some rows that have not met their twin, and how many others there are, which come once more."""
        if not len(alone):
            return [], 0
        left = rows_of(columns, alone)
        again = self._seen.holds(left)
        return ([rows_of(left, ~again)] if not again.all() else []), int(again.sum())

    def left(self) -> tuple[Columns | None, Columns | None]:
        """What never met: missing spans of the original, and foreign ones of the replay; None for none."""
        self.join()
        return (
            joined(self._original) if self._original else None,
            joined(self._replayed) if self._replayed else None,
        )

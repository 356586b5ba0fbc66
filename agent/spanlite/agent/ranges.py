"""Nested ranges as columns, and for each thread the timeline of what it was in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from spanlite.agent.boundaries import Bool, Int64, UInt64

NONE = -1
"""In place of a range number: surely none."""

UNKNOWN = -2
"""In place of a range number: the records do not tell."""

OPEN_NS = int(np.iinfo(np.int64).max)
"""``end_ns`` of a range that has not ended yet."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What one thread was in, as segments between boundaries.

    Attributes:
        at: int64 of m, the boundaries in order: host ns, or correlation ids where ranges were stamped.
        innermost: int64 of m + 1, the innermost range of each segment, NONE or UNKNOWN.
    """

    at: Int64
    innermost: Int64


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges as columns, in the order of their opening, which is the order of their numbers.

    Attributes:
        number: int64, unique in the session.
        start_ns: int64 host ns.
        end_ns: int64 host ns, OPEN_NS while the range is open.
        thread: uint64, process id << 32 | thread id.
        name: uint64, the pointer or index that the boundary carried.
        depth: int64, 0 for an outermost range.
        parent: int64, number of the range it was opened in, NONE for an outermost one.
        root: int64, number of the outermost range around it, its own if it is that; NONE where it is not nested.
        nested: bool, False for start/end ranges of a process: no thread, so no stage and no trace.
        doubtful: bool, the range outlived the one it was opened in, so what lies in it has an unknown stage.
        timelines: thread → its timeline.
        by_correlation: the timelines are in correlation ids, not ns.
        unmatched_ends: ends whose start was never seen; whatever that thread did before has an unknown stage.
        crossings: ranges that are doubtful.
        ignored: markers that are no boundaries (instantaneous ones, synchronisation of ranges).
    """

    number: Int64
    start_ns: Int64
    end_ns: Int64
    thread: UInt64
    name: UInt64
    depth: Int64
    parent: Int64
    root: Int64
    nested: Bool
    doubtful: Bool
    timelines: Mapping[int, Timeline] = field(repr=False)
    by_correlation: bool = False
    unmatched_ends: int = 0
    crossings: int = 0
    ignored: int = 0

    def __len__(self) -> int:
        return len(self.number)

    def rows(self, numbers: Int64) -> Int64:
        """The row of each range number; all of them must be there."""
        first, last = (int(self.number[0]), int(self.number[-1])) if len(self) else (0, -1)
        if last - first + 1 == len(self):  # none was forgotten in between
            return numbers - first
        return np.searchsorted(self.number, numbers)

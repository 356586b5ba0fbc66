"""Nested ranges as columns, and for each thread the timeline of what it was in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from spanlite.agent.boundaries import Bool, Int64, UInt64
from spanlite.contract.columns import Table

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
        outer: int64, the same without contexts: the innermost range around it that is none; NONE where there is none.
        root: int64, number of the range that its trace begins with, its own if it is that: the innermost context, else
            the outermost range; NONE where it is not nested.
        context: of dtype tracecontext.CONTEXT, zero of ranges that are no contexts; see there.
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
    outer: Int64
    root: Int64
    context: Table
    nested: Bool
    doubtful: Bool
    timelines: Mapping[int, Timeline] = field(repr=False)
    by_correlation: bool = False
    unmatched_ends: int = 0
    crossings: int = 0
    ignored: int = 0

    def __len__(self) -> int:
        return len(self.number)

    @property
    def is_context(self) -> Bool:
        """Ranges whose text is a traceparent: they name a trace, and are neither stage nor parent."""
        return np.asarray(self.context["remote_parent"] != 0)

    @property
    def stage(self) -> Int64:
        """The stage of what lies directly in each range: itself, of a context the range around it."""
        return np.where(self.is_context, self.outer, self.number)

    @property
    def under(self) -> Int64:
        """What each range hangs under within its own trace, NONE for nothing: a range directly in a context."""
        return np.where(self.parent == self.outer, self.parent, NONE)

    def in_context(self, numbers: Int64) -> Bool:
        """Which range numbers, negative ones included, are those of contexts."""
        found = np.zeros(len(numbers), np.bool_)
        is_context = self.is_context
        if is_context.any():
            some = np.flatnonzero(numbers >= 0)
            found[some] = is_context[self.rows(numbers[some])]
        return found

    def identity(self) -> Int64:
        """A number for each range's trace, the same where the trace id is: that of its root, of contexts the first."""
        same = self.root.copy()
        contexts = np.flatnonzero(self.is_context)
        if contexts.size:
            ids = np.stack([self.context[half][contexts] for half in ("high", "low")], axis=1).astype(np.uint64)
            _, first, index = np.unique(ids, axis=0, return_index=True, return_inverse=True)
            inside = np.flatnonzero(self.in_context(self.root))
            at = np.searchsorted(self.number[contexts], self.root[inside])
            same[inside] = self.number[contexts][first[index.reshape(-1)[at]]]
        return same

    def rows(self, numbers: Int64) -> Int64:
        """The row of each range number; all of them must be there."""
        first, last = (int(self.number[0]), int(self.number[-1])) if len(self) else (0, -1)
        if last - first + 1 == len(self):  # none was forgotten in between
            return numbers - first
        return np.searchsorted(self.number, numbers)

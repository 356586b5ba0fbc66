"""Finds the range that surely encloses launches, from bounds on where on their thread's timeline they lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spanlite.agent.anchors import Anchors
from spanlite.agent.boundaries import Bool, Int64
from spanlite.agent.ranges import UNKNOWN, Ranges, Timeline

_NEVER = int(np.iinfo(np.int64).min)
_EVER = int(np.iinfo(np.int64).max)

_MAX_CLIMB = 512
"""Steps up before a common range is given up as unknown: real ranges nest a few deep, made-up ones must not stall."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where launches lie on a timeline.

    Attributes:
        innermost: int64, the deepest range that encloses all of where the launch can be; NONE, or UNKNOWN where not
            even the outermost range is sure.
        same_stage: bool, wherever it can be, its stage is the same.
        same_trace: bool, likewise, and what encloses it is of that trace.
        own: bool, the launch has an anchor of its own.
        bounded: bool, an anchor of its own or a later one is there.
    """

    innermost: Int64
    same_stage: Bool
    same_trace: Bool
    own: Bool
    bounded: Bool


def place_by_id(correlation: Int64, timeline: Timeline) -> Placed:
    """Places launches on a timeline of stamps: exact, from their own correlation ids alone.

    Args:
        correlation: shape (n,).
        timeline: its ``at`` are correlation ids.
    """
    yes = np.ones(len(correlation), np.bool_)
    segment = np.searchsorted(timeline.at, correlation, side="left")
    return Placed(timeline.innermost[segment], yes, yes, own=yes, bounded=yes)


def place_by_time(
    correlation: Int64, gpu_start_ns: Int64, *, anchors: Anchors, timeline: Timeline, ranges: Ranges, identity: Int64
) -> Placed:
    """Places launches on a timeline of host times.

    A thread draws correlation ids in the order of its calls. So a launch lies between the anchors with the next
    smaller and the next larger id, and before its own start on the GPU or that of any launch with a larger id.

    Args:
        correlation: shape (n,), of one thread.
        gpu_start_ns: shape (n,), start of the execution on the GPU in host ns.
        anchors: those of the same thread.
        timeline: that of the same thread.
        ranges: those that the timeline names.
        identity: that of `ranges`.
    """
    at = np.searchsorted(anchors.correlation, correlation, side="left")
    times = np.concatenate((anchors.time_ns, [_EVER]))
    ids = np.concatenate((anchors.correlation, [_EVER]))
    own = ids[at] == correlation
    later = times[at]
    rest = np.flatnonzero(~own)
    before = at[rest] - 1
    earliest = np.where(before >= 0, times[before], _NEVER)
    latest = later
    latest[rest] = np.maximum(np.minimum(later[rest], _starts_from(correlation, gpu_start_ns)[rest]), earliest)
    # A boundary at the very time of a bound may lie on either side of it.
    high = np.searchsorted(timeline.at, latest, side="right")
    low = high.copy()
    low[rest] = np.searchsorted(timeline.at, earliest, side="left")
    innermost = timeline.innermost[high]
    several = np.flatnonzero(low != high)
    same_stage, same_trace = np.ones((2, len(at)), np.bool_)
    if several.size:
        first, last = low[several], high[several]
        common = _enclosing(timeline.innermost[first], innermost[several], ranges)
        innermost[several] = common
        traces = _looked_up(identity, timeline.innermost, ranges)
        same_stage[several] = _constant(_looked_up(ranges.stage, timeline.innermost, ranges), first, last)
        same_trace[several] = _constant(traces, first, last) & (_looked_up(identity, common, ranges) == traces[first])
    return Placed(innermost, same_stage, same_trace, own=own, bounded=own | (at < len(anchors)))


def _looked_up(of_rows: Int64, numbers: Int64, ranges: Ranges) -> Int64:
    """A column of the ranges for range numbers; NONE and UNKNOWN stay what they are."""
    found = numbers.copy()
    some = np.flatnonzero(numbers >= 0)
    found[some] = of_rows[ranges.rows(numbers[some])]
    return found


def _constant(values: Int64, first: Int64, last: Int64) -> Bool:
    """Whether all values of stretches, given by their first and last index, are equal."""
    changes = np.concatenate(([0], np.cumsum(values[1:] != values[:-1])))
    return np.asarray(changes[first] == changes[last])


def _starts_from(correlation: Int64, gpu_start_ns: Int64) -> Int64:
    """For each launch the earliest GPU start among those with its id or a larger one."""
    if (correlation[1:] >= correlation[:-1]).all():
        return np.minimum.accumulate(gpu_start_ns[::-1])[::-1]
    order = np.argsort(correlation, kind="stable")
    starts = np.empty_like(gpu_start_ns)
    starts[order] = np.minimum.accumulate(gpu_start_ns[order][::-1])[::-1]
    return starts


def _enclosing(low: Int64, high: Int64, ranges: Ranges) -> Int64:
    """The deepest range around both of two: what is open at both ends of a stretch is open all along it.

    Args:
        low, high: range numbers, NONE or UNKNOWN.
        ranges: all ranges.

    Returns:
        Range numbers; UNKNOWN where the two have none in common.
    """
    found = np.full(len(low), UNKNOWN, np.int64)
    left = np.flatnonzero((low >= 0) & (high >= 0))
    one, other = ranges.rows(low[left]), ranges.rows(high[left])
    for _ in range(_MAX_CLIMB):
        same = one == other
        found[left[same]] = ranges.number[one[same]]
        left, one, other = left[~same], one[~same], other[~same]
        if not left.size:
            break
        up = ranges.depth[one] >= ranges.depth[other]
        # The deeper of the two is not around the other one, so go on from its parent.
        climbing = np.where(up, one, other)
        parent = ranges.parent[climbing]
        stay = parent >= 0
        climbed = ranges.rows(parent[stay])
        left, up = left[stay], up[stay]
        one, other = np.where(up, climbed, one[stay]), np.where(up, other[stay], climbed)
    return found

"""Finds the range that surely encloses launches, from bounds on where on their thread's timeline they lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spanlite.agent.anchors import Anchors
from spanlite.agent.boundaries import Bool, Int64
from spanlite.agent.ranges import UNKNOWN, Timeline

_NEVER = int(np.iinfo(np.int64).min)
_EVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where launches lie on a timeline.

    Attributes:
        innermost: int64, the deepest range that encloses all of where the launch can be; NONE, or UNKNOWN where not
            even the outermost range is sure.
        one_segment: bool, no boundary lies where the launch can be.
        own: bool, the launch has an anchor of its own.
        bounded: bool, an anchor of its own or a later one is there.
    """

    innermost: Int64
    one_segment: Bool
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
    return Placed(timeline.innermost[segment], yes, yes, yes)


def place_by_time(correlation: Int64, gpu_start_ns: Int64, *, anchors: Anchors, timeline: Timeline) -> Placed:
    """Places launches on a timeline of host times.

    A thread draws correlation ids in the order of its calls. So a launch lies between the anchors with the next
    smaller and the next larger id, and before its own start on the GPU or that of any launch with a larger id.

    Args:
        correlation: shape (n,), of one thread.
        gpu_start_ns: shape (n,), start of the execution on the GPU in host ns.
        anchors: those of the same thread.
        timeline: that of the same thread.
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
    if several.size:
        innermost[several] = _enclosing(timeline, low[several], high[several])
    return Placed(innermost, low == high, own, own | (at < len(anchors)))


def _starts_from(correlation: Int64, gpu_start_ns: Int64) -> Int64:
    """For each launch the earliest GPU start among those with its id or a larger one."""
    if (correlation[1:] >= correlation[:-1]).all():
        return np.minimum.accumulate(gpu_start_ns[::-1])[::-1]
    order = np.argsort(correlation, kind="stable")
    starts = np.empty_like(gpu_start_ns)
    starts[order] = np.minimum.accumulate(gpu_start_ns[order][::-1])[::-1]
    return starts


def _enclosing(timeline: Timeline, low: Int64, high: Int64) -> Int64:
    """The deepest range that encloses all segments low..high, low < high: that of the shallowest segment.

    Between two segments of one depth that lie in different ranges there is always a shallower one.
    """
    shallowest = _argmin_between(timeline.depth, low, high)
    found: Int64 = timeline.innermost[shallowest]
    found[timeline.depth[shallowest] == 0] = UNKNOWN
    return found


def _argmin_between(values: Int64, low: Int64, high: Int64) -> Int64:
    """Index of the smallest of values[low..high], both included, by a sparse table."""
    size = len(values)
    rows = [values * size + np.arange(size)]
    longest = int((high - low).max()) + 1
    width = 1
    while 2 * width <= longest:
        last = rows[-1]
        longer = last.copy()
        np.minimum(last[: size - width], last[width:], out=longer[: size - width])
        rows.append(longer)
        width *= 2
    level = np.frexp((high - low + 1).astype(np.float64))[1] - 1
    table = np.stack(rows)
    best = np.minimum(table[level, low], table[level, high + 1 - (1 << level.astype(np.int64))])
    return np.asarray(best % size, np.int64)

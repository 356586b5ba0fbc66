"""Gives every launch its stage, its enclosing range and its trace, or says that the records do not tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from spanlite.agent.anchors import Anchors, Externals
from spanlite.agent.boundaries import Bool, Int64, UInt64
from spanlite.agent.placing import Placed, place_by_id, place_by_time
from spanlite.agent.ranges import NONE, UNKNOWN, Ranges
from spanlite.agent.tracetable import Traces, external_ids, trace_table

UInt8 = npt.NDArray[np.uint8]

AMBIGUOUS = 0
"""Owner of a stream into which several threads launched."""


class Status(IntEnum):
    """How the stage of a launch is known, or how far it is not."""

    EXACT = 0
    """Its own call is recorded, with time and thread."""
    BETWEEN = 1
    """The recorded neighbours leave no other possibility."""
    STAMPED = 2
    """Its correlation id lies between two stamps."""
    NONE = 3
    """Surely outside all ranges."""
    UNKNOWN_STAGE = 4
    """Neighbours disagree on the stage; ``range_number`` encloses it whichever it is."""
    UNKNOWN = 5
    """Neighbours disagree on everything, or the launching thread is not known."""


@dataclass(slots=True)
class Memory:
    """What calls of `attribute` for one process hand on to later ones.

    Attributes:
        threads: every thread that launched or marked ranges.
        owners: stream → the thread that launches into it, or AMBIGUOUS.
        root_ids: outermost range → the external id of all its launches, or SEVERAL.
    """

    threads: set[int] = field(default_factory=set)
    owners: dict[int, int] = field(default_factory=dict)
    root_ids: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attribution:
    """What launches belong to, as columns of shape (n,).

    Attributes:
        status: uint8, values of Status.
        stage: int64, number of the innermost range; NONE or UNKNOWN.
        range_number: int64, the parent: the deepest range that surely encloses the launch, NONE if there is none.
        root: int64, the range that gives its trace: the innermost context around it, else the outermost range; NONE or
            UNKNOWN.
        external_id: uint64, the program's id for it; 0 where ``has_external`` is False.
        has_external: bool.
        trace: int64, row of ``traces``; NONE for no trace or an unknown one.
        waiting: bool, a later anchor may still tell.
        traces: the traces of the launches and of all ranges.
    """

    status: UInt8
    stage: Int64
    range_number: Int64
    root: Int64
    external_id: UInt64
    has_external: Bool
    trace: Int64
    waiting: Bool
    traces: Traces

    @property
    def stage_unknown(self) -> Bool:
        """Launches to count as of unknown stage."""
        return np.asarray(self.stage == UNKNOWN, np.bool_)

    @property
    def trace_unknown(self) -> Bool:
        """Launches to count as of unknown trace."""
        return np.asarray((self.root == UNKNOWN) & ~self.has_external, np.bool_)


def stream_keys(context_id: npt.NDArray[np.uint32], stream_id: npt.NDArray[np.uint32]) -> Int64:
    """One number for context and stream: stream ids are given out context by context."""
    return (context_id.astype(np.int64) << 32) | stream_id.astype(np.int64)


def attribute(
    correlation: Int64,
    stream: Int64,
    *,
    gpu_start_ns: Int64,
    ranges: Ranges,
    anchors: Anchors,
    externals: Externals | None = None,
    memory: Memory | None = None,
) -> Attribution:
    """Attributes launches of one process to its ranges; see docs/traces.md for the rules.

    Args:
        correlation: shape (n,); all executions of one graph launch share one.
        stream: shape (n,), see `stream_keys`.
        gpu_start_ns: shape (n,), start of the execution, of the clock of the anchors.
        ranges: from markers, or from stamps, whose correlation ids then decide alone.
        anchors: recorded calls; they may be few or none.
        externals: ids that the program gave.
        memory: what earlier calls for the same process found out; added to.
    """
    memory = memory or Memory()
    externals = externals or Externals(np.zeros(0, np.int64), np.zeros(0, np.uint64))
    sole = _sole_thread(ranges, anchors, memory)
    thread = _threads(correlation, stream, sole, anchors=anchors, owners=memory.owners)
    rows = len(correlation)
    # Where stamps place every launch exactly, there is nothing to compare traces for.
    identity = ranges.root if ranges.by_correlation and not ranges.doubtful.any() else ranges.identity()
    same_trace = np.ones(rows, np.bool_)
    status = np.full(rows, Status.UNKNOWN if ranges.timelines else Status.NONE, np.uint8)
    innermost = np.full(rows, UNKNOWN if ranges.timelines else NONE, np.int64)
    newest = int(anchors.correlation[-1]) if len(anchors) else NONE
    waiting = (thread == 0) & (correlation > newest) & bool(ranges.timelines)
    distinct = {sole} if sole else set(np.unique(thread).tolist()) - {0}
    for one in sorted(distinct) if ranges.timelines else ():
        mine: Int64 | slice = slice(None) if sole else np.flatnonzero(thread == one)
        timeline = ranges.timelines.get(one)
        if timeline is None:
            status[mine], innermost[mine] = Status.NONE, NONE
            continue
        if ranges.by_correlation:
            placed = place_by_id(correlation[mine], timeline)
        else:
            here = _of_thread(anchors, one, sole)
            placed = place_by_time(
                correlation[mine],
                gpu_start_ns[mine],
                anchors=here,
                timeline=timeline,
                ranges=ranges,
                identity=identity,
            )
        status[mine] = _status(placed, ranges)
        innermost[mine] = placed.innermost
        same_trace[mine] = placed.same_trace
        waiting[mine] = ~placed.bounded & ((status[mine] >= Status.UNKNOWN_STAGE) | ~placed.same_trace)
    stage, parent, root = _numbers(innermost, status, same_trace, ranges=ranges, identity=identity)
    external_id, has_external, one_root = external_ids(
        correlation, root, externals=externals, ranges=ranges, one_thread=sole != 0, known=memory.root_ids
    )
    trace, traces = trace_table(
        root, external_id, has=has_external, one_root=one_root, ranges=ranges, starts=gpu_start_ns
    )
    return Attribution(status, stage, parent, root, external_id, has_external, trace, waiting, traces)


def _sole_thread(ranges: Ranges, anchors: Anchors, memory: Memory) -> int:
    """The one thread that launches or marks ranges; 0 where there are several or none."""
    threads = memory.threads
    threads.update(ranges.timelines)
    if len(anchors):
        some = anchors.thread.max()
        # Sorting half a million equal values is what takes time, so look first.
        same = ((anchors.thread == some) | (anchors.thread == 0)).all()
        threads |= {int(some)} if same else set(np.unique(anchors.thread).tolist())
    threads.discard(0)
    return next(iter(threads)) if len(threads) == 1 else 0


def _threads(correlation: Int64, stream: Int64, sole: int, *, anchors: Anchors, owners: dict[int, int]) -> UInt64:
    """The launching thread of each launch: by its own anchor, else by who owns its stream; 0 where unknown."""
    if sole:
        return np.full(len(correlation), sole, np.uint64)
    thread = np.zeros(len(correlation), np.uint64)
    if len(anchors):
        at = np.minimum(np.searchsorted(anchors.correlation, correlation), len(anchors) - 1)
        thread = np.where(anchors.correlation[at] == correlation, anchors.thread[at], thread)
    streams, index = np.unique(stream, return_inverse=True)
    index = index.reshape(-1)
    for number, one in enumerate(streams.tolist()):
        here = np.unique(thread[index == number])
        seen = set(here[here != 0].tolist()) | ({owners[one]} if one in owners else set())
        if seen:
            owners[one] = seen.pop() if len(seen) == 1 else AMBIGUOUS
    owner = np.array([owners.get(one, AMBIGUOUS) for one in streams.tolist()], np.uint64)
    return np.where(thread != 0, thread, owner[index] if len(owner) else thread)


def _of_thread(anchors: Anchors, thread: int, sole: int) -> Anchors:
    """A thread's anchors; those without a thread are of any use only where there is one."""
    if sole:
        return anchors
    mine = anchors.thread == np.uint64(thread)
    return Anchors(anchors.correlation[mine], anchors.time_ns[mine], anchors.thread[mine])


def _status(placed: Placed, ranges: Ranges) -> UInt8:
    known = Status.STAMPED if ranges.by_correlation else Status.BETWEEN
    status = np.full(len(placed.own), known, np.uint8)
    if not ranges.by_correlation:
        status[placed.own] = Status.EXACT
    status[~placed.same_stage] = Status.UNKNOWN_STAGE
    if ranges.doubtful.any():
        inside = np.flatnonzero(placed.innermost >= 0)
        for stage in (ranges.number, ranges.stage):  # a context lies in the stage around it
            numbers = stage[ranges.rows(placed.innermost[inside])]
            inside, numbers = inside[numbers >= 0], numbers[numbers >= 0]
            status[inside[ranges.doubtful[ranges.rows(numbers)]]] = Status.UNKNOWN_STAGE
    status[placed.innermost == NONE] = Status.NONE
    status[placed.innermost == UNKNOWN] = Status.UNKNOWN
    return status


def _numbers(
    innermost: Int64, status: UInt8, same_trace: Bool, *, ranges: Ranges, identity: Int64
) -> tuple[Int64, Int64, Int64]:
    """Stage, parent and root of launches by the deepest range around them."""
    stage, root = innermost.copy(), innermost.copy()
    parent = np.full(len(innermost), NONE, np.int64)
    inside = np.flatnonzero(innermost >= 0)
    if inside.size:
        row = ranges.rows(innermost[inside])
        stage[inside] = ranges.stage[row]
        begins, same = ranges.root[row], same_trace[inside]
        doubtful = ranges.doubtful[row]
        while doubtful.any():
            trace = identity[row]
            row[doubtful] = ranges.rows(ranges.parent[row[doubtful]])
            same &= identity[row] == trace
            doubtful = ranges.doubtful[row]
        root[inside] = np.where(same, begins, UNKNOWN)
        parent[inside] = np.where(same & ~ranges.is_context[row], ranges.number[row], NONE)
    stage[status == Status.UNKNOWN_STAGE] = UNKNOWN
    return stage, parent, root

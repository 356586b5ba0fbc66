"""Attributes the launches of a running process, flush by flush: what one flush leaves open counts in the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spanlite.agent.activity import Activity
from spanlite.agent.anchors import (
    AS_RECORDED,
    Anchors,
    Externals,
    anchors_of,
    externals_of,
    merge_anchors,
    merge_externals,
    unwrap,
)
from spanlite.agent.boundaries import Bool, Boundaries, Int64, UInt64, marker_boundaries
from spanlite.agent.nesting import Nesting
from spanlite.agent.ranges import OPEN_NS, Ranges
from spanlite.agent.traces import Attribution, Memory, attribute
from spanlite.agent.tracetable import SEVERAL
from spanlite.contract.columns import Table

HISTORY_NS = 10_000_000_000
"""How long boundaries and calls are remembered: longer than launches wait for the GPU."""

PATIENCE_NS = 100_000_000
"""How long a launch is worth waiting for: a call's own record follows those of its kernels within microseconds."""

_MAX_CALLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """What one flush told.

    Attributes:
        attribution: of the launches that were handed in.
        ranges: all that are remembered, those still open included.
        ended: int64, rows of ``ranges`` that ended with this flush, each reported once.
    """

    attribution: Attribution
    ranges: Ranges
    ended: Int64


class Tracker:
    """State of one traced process.

    The caller guarantees that whatever boundaries a thread passed before a launch are handed in with that launch or
    earlier, as CUPTI writes them: a buffer at a time will do. Launches may be handed in again: those marked
    ``waiting`` may turn out to be known once the next recorded call has arrived.

    Args:
        history_ns: how long boundaries and calls are remembered.
        context_of: the traceparents among names of ranges, see `Contexts.of`; asked once, when a range opens.
    """

    def __init__(
        self,
        *,
        history_ns: int = HISTORY_NS,
        context_of: Callable[[UInt64], Table | None] = lambda _names: None,
    ) -> None:
        self._history_ns = history_ns
        self._context_of = context_of
        self._nesting = Nesting()
        self._memory = Memory()
        self._anchors = Anchors(*(np.zeros(0, dtype) for dtype in ("<i8", "<i8", "<u8")))
        self._externals = Externals(*(np.zeros(0, dtype) for dtype in ("<i8", "<u8")))
        self._newest_id: int | None = None
        self._newest_ns = 0

    def feed(
        self,
        activity: Activity,
        correlation: npt.NDArray[np.integer],
        *,
        stream: Int64,
        gpu_start_ns: Int64,
        stamps: Boundaries | None = None,
    ) -> Step:
        """Takes one flush.

        Args:
            activity: its host-side records; its kernels are looked at for queueing times only.
            correlation: ids of the launches to attribute, shape (n,), as recorded.
            stream: shape (n,), see `stream_keys`.
            gpu_start_ns: shape (n,).
            stamps: boundaries with correlation ids and host times; if a process has them, its markers are ignored.
        """
        if self._newest_id is None:
            some = [column[:1] for column in (activity.apis["correlation_id"], correlation)]
            self._newest_id = int(np.concatenate([*some, [AS_RECORDED]])[0])
        reference = self._newest_id
        ids = unwrap(correlation, reference)
        anchors, externals = anchors_of(activity, reference), externals_of(activity, reference)
        self._anchors = merge_anchors(self._anchors, anchors)
        self._externals = merge_externals(self._externals, externals)
        boundaries = marker_boundaries(activity.markers) if stamps is None else _unwrapped(stamps, reference)
        boundaries = replace(boundaries, context=self._context_of(boundaries.name))
        ended = self._nesting.feed(boundaries)
        ranges = self._nesting.ranges()
        attribution = attribute(
            ids,
            stream,
            gpu_start_ns=gpu_start_ns,
            ranges=ranges,
            anchors=self._anchors,
            externals=self._externals,
            memory=self._memory,
        )
        # Without calls in this flush there is no reason to expect any in the next.
        recent = gpu_start_ns > self._newest(gpu_start_ns, anchors.time_ns, boundaries.time_ns) - PATIENCE_NS
        waiting = self._unsettled(attribution, ranges)
        if len(activity.apis):
            waiting |= attribution.waiting | (self._beyond_ids(ids, attribution) & ~ranges.in_context(attribution.root))
        attribution = replace(attribution, waiting=waiting & recent)
        self._age(reference, ids, anchors.correlation)
        if len(self._memory.root_ids) > len(ranges):
            for gone in set(self._memory.root_ids) - set(ranges.number.tolist()):
                del self._memory.root_ids[gone]
        return Step(attribution, ranges, ranges.rows(ended))

    def sent(self, attribution: Attribution, rows: Bool) -> None:
        """Takes note of launches that were handed on: a trace that was named after its range keeps that name.

        Args:
            attribution: as `feed` gave it.
            rows: which of its launches, shape (n,).
        """
        some = np.flatnonzero(rows & ~attribution.has_external & (attribution.root >= 0))
        roots, first = np.unique(attribution.root[some], return_index=True)
        named = attribution.traces.context["remote_parent"][attribution.trace[some][first]] != 0
        self._memory.root_ids.update(dict.fromkeys(roots[~named].tolist(), SEVERAL))

    def _unsettled(self, attribution: Attribution, ranges: Ranges) -> Bool:
        """Launches in an open outermost range that has no id of the program yet, where programs give ids."""
        unsettled = ~attribution.has_external & (attribution.root >= 0) & (len(self._externals) > 0)
        unsettled &= ~ranges.in_context(attribution.root)
        inside = np.flatnonzero(unsettled)
        unsettled[inside] = ranges.end_ns[ranges.rows(attribution.root[inside])] == OPEN_NS
        return np.asarray(unsettled, np.bool_)

    def _beyond_ids(self, ids: Int64, attribution: Attribution) -> Bool:
        """Launches that the next call with an id of the program may turn out to be alongside."""
        if not len(self._externals):
            return np.zeros(len(ids), np.bool_)
        return np.asarray(~attribution.has_external & (ids > self._externals.correlation[-1]), np.bool_)

    def _newest(self, *times: Int64) -> int:
        """The newest time seen."""
        self._newest_ns = max([self._newest_ns, *(int(some.max()) for some in times if some.size)])
        return self._newest_ns

    def _age(self, reference: int, *ids: Int64) -> None:
        """Forgets what is too old for any launch to come."""
        newest_id = max([reference, *(int(some.max()) for some in ids if some.size)])
        self._newest_id = newest_id
        before_ns = self._newest_ns - self._history_ns
        self._nesting.forget(before_ns)
        fresh = self._anchors.time_ns >= before_ns
        fresh[:-_MAX_CALLS] = False
        if not fresh.all():
            oldest = int(self._anchors.correlation[fresh.argmax()]) if fresh.any() else newest_id
            self._anchors = Anchors(
                *(getattr(self._anchors, name)[fresh] for name in ("correlation", "time_ns", "thread"))
            )
            kept = self._externals.correlation >= oldest
            self._externals = Externals(self._externals.correlation[kept], self._externals.external_id[kept])


def _unwrapped(stamps: Boundaries, reference: int) -> Boundaries:
    if stamps.correlation is None:
        return stamps
    return replace(stamps, correlation=unwrap(stamps.correlation, reference))

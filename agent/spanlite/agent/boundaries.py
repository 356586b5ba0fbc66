"""Openings and closings of NVTX ranges as columns, from marker records or from stamps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanlite.agent.activity import MARKER_END, MARKER_START, OBJECT_THREAD, Records, marker_threads
from spanlite.contract.columns import Table

Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]

THREAD_MASK = (1 << 32) - 1
"""Bits of a thread key that hold the thread id; 0 there: the boundary names its process only."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Openings and closings of ranges as columns, those of one thread in order.

    Attributes:
        time_ns: int64 host ns.
        correlation: int64, the process's newest correlation id at that moment; None for boundaries without stamps.
        thread: uint64, process id << 32 | thread id; thread id 0 for ranges that belong to a process.
        opens: bool.
        key: int64, the same at both ends of a range; 0 where only nesting pairs them.
        name: uint64, of openings.
        ignored: markers that were no boundaries.
        context: of dtype tracecontext.CONTEXT, of openings whose text is a traceparent; None where there is none.
    """

    time_ns: Int64
    thread: UInt64
    opens: Bool
    key: Int64
    name: UInt64
    correlation: Int64 | None = None
    ignored: int = 0
    context: Table | None = None


def marker_boundaries(markers: Records) -> Boundaries:
    """The boundaries that marker records (``Activity.markers``) tell of, in the order of their times."""
    flags = markers["flags_"]
    edges = markers[(flags & (MARKER_START | MARKER_END)) != 0]
    edges = edges[np.argsort(edges["timestamp"], kind="stable")]
    thread = marker_threads(edges)
    thread[edges["object_kind"] != OBJECT_THREAD] &= ~np.uint64(THREAD_MASK)
    return Boundaries(
        time_ns=edges["timestamp"].astype(np.int64),
        thread=thread,
        opens=(edges["flags_"] & MARKER_START) != 0,
        key=edges["id"].astype(np.int64),
        name=edges["name"].astype(np.uint64),
        ignored=len(markers) - len(edges),
    )


def stamped_boundaries(
    correlation: Int64, thread: UInt64, *, delta: Int64, name: UInt64, time_ns: Int64 | None = None
) -> Boundaries:
    """Boundaries that were stamped with correlation ids, in the order in which each thread passed them.

    A launch with id c lies after a boundary stamped s if s < c: the stamp is the last id that was given out before
    the boundary, or one that the stamping call itself drew.

    Args:
        correlation: shape (m,).
        thread: process id << 32 | thread id.
        delta: +1 for a push, -1 for a pop.
        name: pointer or index of the pushed range's name; ignored for pops.
        time_ns: host time of the boundaries; without it ``start_ns`` and ``end_ns`` of the ranges are the ids.
    """
    return Boundaries(
        time_ns=correlation if time_ns is None else time_ns,
        thread=thread,
        opens=delta > 0,
        key=np.zeros(len(correlation), np.int64),
        name=name,
        correlation=correlation,
    )

"""What is known of when, and by which thread, correlation ids were given out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanlite.agent.activity import Activity
from spanlite.agent.boundaries import Int64, UInt64

_WRAP = 1 << 32
AS_RECORDED = _WRAP >> 1
"""The reference at which `unwrap` leaves 32-bit ids as they are."""

_PREFERENCE = np.array([0, 2, 1, 5, 4, 3])
"""Rank of CUpti_ExternalCorrelationKind: custom 0 (3), 1, 2, then unknown (1), OpenACC (2), invalid (0)."""


@dataclass(frozen=True, slots=True)
class Anchors:
    """Correlation ids whose host time is recorded: the launches themselves, and calls between them.

    Attributes:
        correlation: int64, ascending, each once.
        time_ns: int64 host ns, within the call.
        thread: uint64, process id << 32 | thread id; 0 where the record does not name it.
    """

    correlation: Int64
    time_ns: Int64
    thread: UInt64

    def __len__(self) -> int:
        return len(self.correlation)


@dataclass(frozen=True, slots=True)
class Externals:
    """External-correlation ids that the program gave.

    Attributes:
        correlation: int64, ascending, each once.
        external_id: uint64.
    """

    correlation: Int64
    external_id: UInt64

    def __len__(self) -> int:
        return len(self.correlation)


def unwrap(correlation: npt.NDArray[np.integer], reference: int) -> Int64:
    """Correlation ids as numbers that go on growing: CUPTI's 32 bits last for hours only in a busy process.

    Args:
        correlation: as recorded, any integer type.
        reference: an unwrapped id at most 2^31 launches away from all of them.
    """
    ids = correlation.astype(np.int64)
    ids -= reference - (_WRAP >> 1)
    ids &= _WRAP - 1  # the remainder of a division, which takes ten times as long
    ids += reference - (_WRAP >> 1)
    return ids


def anchors_of(activity: Activity, reference: int = AS_RECORDED) -> Anchors:
    """The anchors among the records of a buffer: API calls, synchronisations, and launches with a queueing time.

    Args:
        activity: decoded records.
        reference: see `unwrap`.
    """
    apis, syncs, kernels = activity.apis, activity.synchronizations, activity.kernels
    # Latency timestamps, where they were on: the moment of the launch, within its API call.
    queued = kernels[kernels["queued"] != 0]
    thread = (apis["process_id"].astype(np.uint64) << np.uint64(32)) | apis["thread_id"].astype(np.uint64)
    return merge_anchors(
        Anchors(unwrap(apis["correlation_id"], reference), apis["start"].astype(np.int64), thread),
        _threadless(unwrap(syncs["correlation_id"], reference), syncs["start"].astype(np.int64)),
        _threadless(unwrap(queued["correlation_id"], reference), queued["queued"].astype(np.int64)),
    )


def merge_anchors(*parts: Anchors) -> Anchors:
    """One table of several; of anchors with one id the first part's counts."""
    filled = [part for part in parts if len(part)] or list(parts[:1])
    correlation = np.concatenate([part.correlation for part in filled])
    time_ns = np.concatenate([part.time_ns for part in filled])
    thread = np.concatenate([part.thread for part in filled])
    if correlation.size > 1 and not (correlation[1:] > correlation[:-1]).all():
        order = np.argsort(correlation, kind="stable")
        order = order[np.concatenate(([True], np.diff(correlation[order]) > 0))]
        correlation, time_ns, thread = correlation[order], time_ns[order], thread[order]
    return Anchors(correlation, time_ns, thread)


def externals_of(activity: Activity, reference: int = AS_RECORDED) -> Externals:
    """The external ids among the records of a buffer.

    CUPTI writes one record for each kind of id whose stack is not empty, with the id on top of it. Of several the
    first in this order counts: custom 0, 1, 2, unknown, OpenACC; within one kind, the last one recorded.
    """
    records = activity.externals
    correlation = unwrap(records["correlation_id"], reference)
    external_id = records["external_id"].astype(np.uint64)
    if correlation.size > 1 and not (correlation[1:] > correlation[:-1]).all():
        rank = _PREFERENCE[np.clip(records["external_kind"].astype(np.int64), 0, 5)]
        order = np.lexsort((np.arange(rank.size), rank, correlation))
        last = np.concatenate((np.diff(correlation[order]) > 0, [True]))
        order = order[last]
        correlation, external_id = correlation[order], external_id[order]
    return Externals(correlation, external_id)


def merge_externals(*parts: Externals) -> Externals:
    """One table of several; of records with one correlation id the first part's counts."""
    correlation = np.concatenate([part.correlation for part in parts])
    external_id = np.concatenate([part.external_id for part in parts])
    if correlation.size > 1 and not (correlation[1:] > correlation[:-1]).all():
        correlation, first = np.unique(correlation, return_index=True)
        external_id = external_id[first]
    return Externals(correlation, external_id)


def _threadless(correlation: Int64, time_ns: Int64) -> Anchors:
    return Anchors(correlation, time_ns, np.zeros(correlation.size, np.uint64))

"""Turns the bytes of CUPTI activity buffers into columns: one structured array for each kind of record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from spanlite.agent.layouts import ALIGNMENT, Kind, Layout
from spanlite.agent.walk import Walk, walk

Records = npt.NDArray[np.void]

# CUpti_ActivityFlag, the bits that a marker record's `flags_` holds.
MARKER_INSTANTANEOUS = 1 << 0
MARKER_START = 1 << 1
MARKER_END = 1 << 2
MARKER_SYNC_ACQUIRE = 1 << 3
MARKER_SYNC_ACQUIRE_SUCCESS = 1 << 4
MARKER_SYNC_ACQUIRE_FAILED = 1 << 5
MARKER_SYNC_RELEASE = 1 << 6

# CUpti_ActivityObjectKind, what a marker record's `object_kind` says its `object_id` names.
OBJECT_PROCESS = 1
OBJECT_THREAD = 2


@dataclass(frozen=True, slots=True)
class Activity:
    """The records of a buffer by kind, each array in the order of the buffer.

    The arrays are structured, their field names those of cupti-python (``start``, ``correlation_id``, …), and own
    their bytes: the buffer may be freed. Times are in ns of the clock that CUPTI stamps with.

    Attributes:
        kernels: kinds 3 and 10.
        memcpys: kind 1.
        memsets: kind 2.
        markers: kind 12.
        externals: kind 39, external-correlation ids of API calls.
        apis: kinds 4 and 5, driver and runtime calls; their field ``kind`` tells them apart.
        synchronizations: kind 38.
        counts: records found by kind, skipped kinds included.
        skipped: records found by kind, of the kinds that are not decoded.
        version: the CUPTI version whose layout was used.
    """

    kernels: Records
    memcpys: Records
    memsets: Records
    markers: Records
    externals: Records
    apis: Records
    synchronizations: Records
    counts: Mapping[int, int]
    skipped: Mapping[int, int]
    version: int


def decode(data: bytes | memoryview, layout: Layout) -> Activity:
    """Decodes whole activity buffers, records back to back.

    Args:
        data: exactly the valid bytes of one buffer, or of several one after the other.
        layout: that of the CUPTI version which wrote them.

    Raises:
        LayoutError: see `walk`; its ``offset`` is the byte of the record that cannot be read.
    """
    found = walk(data, layout)
    per_kind = np.bincount(found.kinds)
    counts = {int(kind): int(per_kind[kind]) for kind in np.flatnonzero(per_kind)}

    def records(*kinds: Kind) -> Records:
        return _records(data, found, layout.dtypes[kinds[0]], [kind for kind in kinds if kind in counts])

    return Activity(
        kernels=records(Kind.CONCURRENT_KERNEL, Kind.KERNEL),
        memcpys=records(Kind.MEMCPY),
        memsets=records(Kind.MEMSET),
        markers=records(Kind.MARKER),
        externals=records(Kind.EXTERNAL_CORRELATION),
        apis=records(Kind.DRIVER, Kind.RUNTIME),
        synchronizations=records(Kind.SYNCHRONIZATION),
        counts=MappingProxyType(counts),
        skipped=MappingProxyType({kind: count for kind, count in counts.items() if kind not in layout.dtypes}),
        version=layout.version,
    )


def marker_threads(markers: Records) -> npt.NDArray[np.uint64]:
    """The thread that each marker was set by: process id in the upper 32 bits, thread id in the lower.

    A marker that names a process only has thread id 0; one that names neither gives 0.

    Args:
        markers: `Activity.markers`.
    """
    # The union CUpti_ActivityObjectKindId begins with {processId, threadId} for these two kinds of object.
    pair = np.ascontiguousarray(markers["object_id"]).view(np.dtype("<u4")).reshape(-1, 3).astype(np.uint64)
    process, thread = pair[:, 0] << np.uint64(32), pair[:, 1]
    kind = markers["object_kind"]
    named: npt.NDArray[np.uint64] = np.where(kind == OBJECT_THREAD, process | thread, process)
    named[(kind != OBJECT_THREAD) & (kind != OBJECT_PROCESS)] = 0
    return named


def _records(data: bytes | memoryview, found: Walk, dtype: np.dtype[np.void], kinds: list[Kind]) -> Records:
    """Copies the records of some kinds of one layout into one array."""
    if not kinds:
        return np.empty(0, dtype)
    chosen = found.kinds == kinds[0]
    for kind in kinds[1:]:
        chosen |= found.kinds == kind
    # Every place where a record of this length fits, as overlapping opaque items: choosing among them copies whole
    # records, several times faster than copying fields or words.
    places = (len(data) - dtype.itemsize) // ALIGNMENT + 1
    every = np.ndarray((places,), np.dtype((np.void, dtype.itemsize)), data, strides=(ALIGNMENT,))
    starts = found.offsets.take(np.flatnonzero(chosen))
    copied: Records = every[starts // ALIGNMENT].view(dtype)
    return copied

"""Spans to sums and histograms by group, in C; see pipeline.sums for what they mean."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_ENTRIES = 1 << 22
"""Entries of the tables that groups and buckets are counted in: 16 and 32 MiB. Beyond, numpy sorts instead."""
SUMS = np.dtype(
    [(name, "<i8") for name in ("count", "spans", "sum_ns", "min_ns", "max_ns", "bytes", "row")] + [("span_id", "<u8")]
)
"""`struct sums` of kernels.c."""


class _Batch(ctypes.Structure):
    """`struct batch` of kernels.c."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("start", "duration", "kind", "config", "stage", "place")),
        *((name, ctypes.c_void_p) for name in ("bytes", "bits", "weight", "gpu")),
        *((name, ctypes.c_int64) for name in ("kinds", "range", "gauge", "configs", "places", "stages", "gpus")),
        *((name, ctypes.c_int64) for name in ("window_ns", "window")),
    )


class Columns(NamedTuple):
    """Columns of a batch with the dtypes of SpanColumns; `gpu` is int32, one of each place."""

    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    kind: NDArray[np.uint8]
    config: NDArray[np.int32]
    stage: NDArray[np.int32]
    place: NDArray[np.int32]
    bytes: NDArray[np.int64]
    weight: NDArray[np.uint32]
    gpu: NDArray[np.int32]


class Sizes(NamedTuple):
    """How many values a column takes: kinds, configs, texts, GPUs; and which kinds are apart.

    Kinds from `kinds` on and `range` are left out; those that are `gauge` have the bits of a value in `bytes`.
    """

    kinds: int
    range: int
    gauge: int
    configs: int
    texts: int
    gpus: int


class Cells(NamedTuple):
    """How a duration finds its bucket; see contract.histogram."""

    position: NDArray[np.int32]
    bound: NDArray[np.int64]
    shift: int
    lowest_index: int


class Found(NamedTuple):
    """Groups in ascending order of (window, kind, config, stage, gpu), what is in each, and their histograms' rows.

    `sums` has dtype SUMS; the histograms' columns are those of pipeline.partial.Partial.
    """

    window: NDArray[np.int64]
    kind: NDArray[np.int64]
    config: NDArray[np.int64]
    stage: NDArray[np.int64]
    gpu: NDArray[np.int64]
    sums: NDArray[np.void]
    bucket_row: NDArray[np.int32]
    bucket_index: NDArray[np.int32]
    bucket_count: NDArray[np.int64]


def fold(
    library: ctypes.CDLL, columns: Columns, sizes: Sizes, cells: Cells, *, width_ns: int, ids: tuple[int, int]
) -> Found | None:
    """Groups and sums the rows of a batch that are folded; it has some.

    Args:
        width_ns: of a window.
        ids: session and first row, from which span ids are made.

    Returns:
        None where the tables would grow too large.

    Raises:
        IndexError: a row or place points at an entry that is not there.
    """
    held = [np.ascontiguousarray(column) for column in columns]
    rows, gpu = len(columns.start_ns), columns.gpu
    counts = (*sizes[:-2], len(gpu), *sizes[-2:])
    addresses = [_address(column) for column in held]
    moved = Columns._fields.index("bytes")
    batch = _Batch(rows, *addresses[: moved + 1], *addresses[moved:], *counts, width_ns)
    given = ctypes.addressof(batch)
    used = np.zeros(sizes.texts, dtype=np.uint8)
    extent = np.empty(4, dtype=np.int64)
    wrong = library.spanlite_extent(given, _address(used), _address(extent))
    if wrong >= 0 or not (gpu.min(initial=0) >= 0 and gpu.max(initial=0) < sizes.gpus):
        raise IndexError(f"row {wrong} or a place of the batch points at an entry that is not there")
    first_ns, last_ns, weighted, moves = extent.tolist()
    if not weighted:
        batch.weight = None
    if not moves:
        batch.bytes = None
    stages: NDArray[np.int64] = np.flatnonzero(used)
    stage_place = np.zeros(sizes.texts, dtype=np.int32)
    stage_place[stages] = np.arange(len(stages))
    first_window = first_ns // width_ns
    shape = (last_ns // width_ns - first_window + 1, sizes.kinds, sizes.configs, len(stages), sizes.gpus)
    entries = int(np.prod(shape, dtype=object))
    if entries > MOST_ENTRIES:
        return None
    batch.window, batch.stages = first_window, len(stages)
    number = np.zeros(entries, dtype=np.int32)
    group = np.empty(rows, dtype=np.int32)
    code = np.empty(min(rows, entries), dtype=np.int64)
    groups = library.spanlite_groups(
        given, _address(stage_place), _address(number), entries, _address(group), _address(code)
    )
    sums = np.zeros(groups, dtype=SUMS)
    histograms = _histograms(library, given, group, sums, cells=cells, ids=ids)
    if histograms is None:
        return None
    parts: tuple[NDArray[np.int64], ...] = np.unravel_index(code[:groups], shape)
    window, kind, config, stage, of_gpu = parts
    return Found(window + first_window, kind, config, stages[stage], of_gpu, sums, *histograms)


def _histograms(
    library: ctypes.CDLL,
    batch: int,
    group: NDArray[np.int32],
    sums: NDArray[np.void],
    *,
    cells: Cells,
    ids: tuple[int, int],
) -> tuple[NDArray[Any], ...] | None:
    """Fills the sums and counts the buckets; row, index and count of each that is not empty."""
    rows, groups = len(group), len(sums)
    bucket = np.empty(rows, dtype=np.int32)
    edges = np.empty(2, dtype=np.int32)
    tables = (_address(cells.position), _address(cells.bound), cells.shift, cells.lowest_index)
    library.spanlite_sums(batch, _address(group), *ids, *tables, _address(sums), _address(bucket), _address(edges))
    library.spanlite_span_ids(batch, _address(sums), groups, *ids)
    lowest, highest = edges.tolist()
    buckets = highest - lowest + 1
    if groups * buckets > MOST_ENTRIES:
        return None
    table = np.zeros(groups * buckets, dtype=np.int64)
    room = min(rows, len(table))
    out: tuple[NDArray[Any], ...] = tuple(np.empty(room, dtype=dtype) for dtype in (np.int32, np.int32, np.int64))
    counting = (_address(group), _address(bucket), groups, lowest, buckets, _address(table))
    found = library.spanlite_buckets(batch, *counting, *map(_address, out))
    return tuple(each[:found].copy() for each in out)  # not all the room: a partial waits for its window


def _address(array: NDArray[Any]) -> int:
    """Where an array lies; whoever calls holds on to it."""
    return array.ctypes.data

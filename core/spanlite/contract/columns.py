"""The one in-process form of spans: equal-length numpy columns, and tables for what repeats.

A span is a row index. Nothing in spanlite makes a Python object per span; small objects exist per batch, per table
entry at most.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Int32 = NDArray[np.int32]
UInt32 = NDArray[np.uint32]
UInt8 = NDArray[np.uint8]
Table = NDArray[np.void]
"""A structured array: one entry a row, fields of CONFIG, PLACE, NODE or TRACE."""

UNKNOWN_STAGE = "unknown"
"""Stage of a span whose records contradict each other: counted, never guessed."""


class Kind(IntEnum):
    """What a span is; the values of proto SpanKind."""

    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    RANGE = 4
    TIMING = 5
    COUNTER = 6
    GAUGE = 7


KERNEL, MEMCPY, MEMSET, RANGE, TIMING, COUNTER, GAUGE = (int(kind) for kind in Kind)
"""As plain numbers, to compare columns with: numpy widens a column before it compares it with an enum's member."""

OBSERVATIONS = frozenset((TIMING, COUNTER, GAUGE))
"""Kinds whose rows are observations of custom metrics: see contract.customs."""


class SamplingMode(IntEnum):
    """How the agent chose spans; the values of proto SamplingMode."""

    FULL = 1
    DUTY_CYCLE = 2
    TRACES = 3
    COUNTS_ONLY = 4


class Limiter(IntEnum):
    """The resource that limits theoretical occupancy; the values of proto OccupancyLimiter.

    Of several with the same limit the smallest value here is named; NONE where no limits are known.
    """

    NONE = 0
    WARPS = 1
    BLOCKS = 2
    REGISTERS = 3
    SHARED_MEMORY = 4
    BARRIERS = 5


CONFIG = np.dtype(
    [
        ("kernel", "<i4"),  # index into strings: bounded id
        ("name", "<i4"),  # index into strings: full (mangled) name, or a range's text
        ("grid_x", "<u4"),
        ("grid_y", "<u4"),
        ("grid_z", "<u4"),
        ("block_x", "<u4"),
        ("block_y", "<u4"),
        ("block_z", "<u4"),
        ("cluster_x", "<u4"),
        ("cluster_y", "<u4"),
        ("cluster_z", "<u4"),
        ("registers_per_thread", "<u4"),
        ("static_shared_memory", "<u4"),
        ("dynamic_shared_memory", "<u4"),
        ("shared_memory_executed", "<u4"),
        ("local_memory_per_thread", "<u4"),
        ("launch_type", "<u4"),
        ("copy_kind", "<u4"),
        ("active_warps", "<u4"),
        ("max_warps", "<u4"),
        ("limiter", "<u4"),
    ]
)
"""Launch configuration: fields and units of proto LaunchConfig, names as indexes into `strings`."""

PLACE = np.dtype(
    [
        ("gpu", "<i4"),  # 0 host, else 1 + index into Batch.gpus
        ("device_id", "<u4"),
        ("context_id", "<u4"),
        ("stream_id", "<u4"),
        ("channel_id", "<u4"),
        ("channel_type", "<i4"),
        ("priority", "<i4"),
        ("thread_id", "<u8"),
    ]
)
NODE = np.dtype([("graph_id", "<u4"), ("graph_node_id", "<u8")])
TRACE = np.dtype([("id", "V16"), ("remote_parent", "<u8"), ("start_ns", "<i8")])


@dataclass(frozen=True, slots=True)
class SpanColumns:
    """Spans as columns, all of one length n, rows in the order in which they were recorded.

    Attributes:
        start_ns: int64 Unix nanoseconds.
        duration_ns: int64, >= 0.
        kind: uint8, values of Kind.
        config: int32 index into `configs`.
        place: int32 index into `places`.
        node: int32 index into `nodes`; entry 0 is (0, 0) = outside graphs.
        stage: int32 index into `strings`; 0 = none.
        trace: int32 index into `traces`, -1 = none.
        parent: int64 number of the parent range in the session, -1 = none.
        range_number: int64, of ranges their number in the session, -1 for all other rows.
        correlation: int64 (CUPTI's uint32).
        bytes: int64, of copies and memory sets; of counters the increment, of gauges the bits of a float64; else 0.
        weight: uint32, how many executions the span stands for.
        strings: texts; entry 0 is "".
        configs, places, nodes, traces: tables of dtype CONFIG, PLACE, NODE, TRACE.
    """

    start_ns: Int64
    duration_ns: Int64
    kind: UInt8
    config: Int32
    place: Int32
    node: Int32
    stage: Int32
    trace: Int32
    parent: Int64
    range_number: Int64
    correlation: Int64
    bytes: Int64
    weight: UInt32
    strings: tuple[str, ...]
    configs: Table
    places: Table
    nodes: Table
    traces: Table

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, rows: Int64 | NDArray[np.bool_] | slice) -> SpanColumns:
        """The rows named by an index array, a mask or a slice; tables are shared, not cut."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ROW_COLUMNS})

    @property
    def is_range(self) -> NDArray[np.bool_]:
        """Which rows are ranges; the others are GPU work and observations."""
        return np.asarray(self.kind == RANGE)

    @property
    def is_gauge(self) -> NDArray[np.bool_]:
        """Which rows are observations of gauges: their `bytes` are a value's bits and add up to nothing."""
        return np.asarray(self.kind == GAUGE)

    @property
    def occupancy(self) -> NDArray[np.float64]:
        """Theoretical occupancy of each row, 0..1; nan where it is not known."""
        return config_occupancy(self.configs)[self.config]


ROW_COLUMNS: dict[str, np.dtype[np.generic]] = {
    "start_ns": np.dtype("<i8"),
    "duration_ns": np.dtype("<i8"),
    "kind": np.dtype("u1"),
    "config": np.dtype("<i4"),
    "place": np.dtype("<i4"),
    "node": np.dtype("<i4"),
    "stage": np.dtype("<i4"),
    "trace": np.dtype("<i4"),
    "parent": np.dtype("<i8"),
    "range_number": np.dtype("<i8"),
    "correlation": np.dtype("<i8"),
    "bytes": np.dtype("<i8"),
    "weight": np.dtype("<u4"),
}
"""Per-row columns of SpanColumns and their dtypes; the other fields are tables."""


def config_occupancy(configs: Table) -> NDArray[np.float64]:
    """active_warps / max_warps of each entry; nan where max_warps is 0."""
    most = configs["max_warps"].astype(np.float64)
    most[most == 0] = np.nan
    return configs["active_warps"] / most


def empty_table(dtype: np.dtype[np.void], rows: int = 0) -> Table:
    """A zeroed table; NODE tables start with one zero entry, so ask for at least 1 row of those."""
    return np.zeros(rows, dtype=dtype)


def make_columns(
    start_ns: Int64,
    duration_ns: Int64,
    *,
    tables: tuple[tuple[str, ...], Table, Table, Table, Table],
    **columns: NDArray[np.generic],
) -> SpanColumns:
    """Columns with every dtype put right; columns that are left out get their neutral value.

    Args:
        start_ns, duration_ns: shape (n,).
        tables: strings, configs, places, nodes, traces.
        columns: any other of ROW_COLUMNS, shape (n,).
    """
    neutral = {"kind": Kind.KERNEL, "trace": -1, "parent": -1, "range_number": -1, "weight": 1}
    given: dict[str, NDArray[np.generic]] = {"start_ns": start_ns, "duration_ns": duration_ns, **columns}
    rows = len(start_ns)
    filled: dict[str, object] = {}
    for name, dtype in ROW_COLUMNS.items():
        if name in given:
            filled[name] = np.ascontiguousarray(given[name], dtype=dtype)
        else:
            filled[name] = np.full(rows, neutral.get(name, 0), dtype=dtype)
    strings, configs, places, nodes, traces = tables
    table_fields = {"strings": strings, "configs": configs, "places": places, "nodes": nodes, "traces": traces}
    return SpanColumns(**filled, **table_fields)  # type: ignore[arg-type]  # every field is in one of the two dicts


def equal(left: SpanColumns, right: SpanColumns) -> bool:
    """Whether two sets of columns are the same to the bit, tables included."""
    for field in fields(SpanColumns):
        a, b = getattr(left, field.name), getattr(right, field.name)
        same = a == b if field.name == "strings" else a.dtype == b.dtype and bool(np.array_equal(a, b))
        if not same:
            return False
    return True

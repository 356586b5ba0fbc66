"""CUPTI records to launches: kernels, copies and memory sets of a buffer as one set of columns, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from spanlite.agent.activity import Activity, Records
from spanlite.agent.launches import CONFIG_COLUMNS, PLACE_COLUMNS, Launches
from spanlite.agent.validate import validate
from spanlite.contract.columns import Int64, Kind

COPY_KINDS = {
    0: "unknown",
    1: "host_to_device",
    2: "device_to_host",
    3: "host_to_array",
    4: "array_to_host",
    5: "array_to_array",
    6: "array_to_device",
    7: "device_to_array",
    8: "device_to_device",
    9: "host_to_host",
    10: "peer_to_peer",
}
"""CUpti_ActivityMemcpyKind."""


def launches_of(activity: Activity, *, now_ns: int | None) -> tuple[Launches, dict[str, int]]:
    """The GPU work of a buffer, and how many records were refused for which reason.

    Rows are in order of their kinds (kernels, copies, memory sets) and within a kind in order of the buffer.

    Args:
        activity: decoded records.
        now_ns: wall clock when the buffer came; see validate.
    """
    by_kind = {Kind.KERNEL: activity.kernels, Kind.MEMCPY: activity.memcpys, Kind.MEMSET: activity.memsets}
    kinds = [kind for kind, records in by_kind.items() if len(records)]
    sources = [by_kind[kind] for kind in kinds]
    start = _joined(sources, "start")
    end = _joined(sources, "end")
    keep, rejected = validate(start, end, now_ns=now_ns)
    rows: Any = slice(None) if keep.all() else keep
    kind = np.repeat(np.array(kinds, dtype=np.uint8), [len(source) for source in sources])[rows]

    def column(name: str) -> Int64:
        return np.asarray(_joined(sources, name)[rows], dtype=np.int64)

    launches = Launches(
        start_ns=start[rows],
        duration_ns=(end - start)[rows],
        kind=kind,
        name=column("name"),
        correlation=column("correlation_id"),
        bytes=column("bytes"),
        graph_id=column("graph_id"),
        graph_node_id=column("graph_node_id"),
        config={name: column(name) for name in CONFIG_COLUMNS if _has(sources, name)},
        place={name: column(name) for name in PLACE_COLUMNS},
    )
    return launches, rejected


def name_of(names: Mapping[int, str]) -> Callable[[int, int], str]:
    """The full name of a launch by its kind and its name column: a pointer for kernels, else nothing."""

    def full_name(kind: int, pointer: int) -> str:
        if kind == Kind.MEMCPY:
            return f"memcpy_{COPY_KINDS.get(pointer, 'unknown')}"
        return "memset" if kind == Kind.MEMSET else names.get(pointer, "unnamed")

    return full_name


def _has(sources: list[Records], name: str) -> bool:
    return any(name in (source.dtype.names or ()) for source in sources)


def _joined(sources: list[Records], name: str) -> Int64:
    """One column over all kinds as int64; a kind without the field has 0, and copies have their copy kind as name."""
    parts = []
    for source in sources:
        field = "copy_kind" if name == "name" and "copy_kind" in (source.dtype.names or ()) else name
        has = field in (source.dtype.names or ())
        values = source[field] if has else np.zeros(len(source), dtype=np.int64)
        parts.append(values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

"""CUPTI records to launches: kernels, copies and memory sets of a buffer as one set of columns, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from spanlite.agent.activity import Activity, Records
from spanlite.agent.distinct import distinct_rows
from spanlite.agent.launches import SHAPE_COLUMNS, Launches
from spanlite.agent.validate import validate
from spanlite.contract.columns import Int32, Int64, Kind, UInt64

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
    shape, samples = _shapes(sources)
    shapes = {name: _joined(samples, name) for name in SHAPE_COLUMNS if name == "name" or _has(sources, name)}
    shapes["kind"] = np.repeat(np.array(kinds, dtype=np.int64), [len(sample) for sample in samples])
    launches = Launches(
        start_ns=start[rows],
        duration_ns=(end - start)[rows],
        correlation=_joined(sources, "correlation_id")[rows],
        bytes=np.maximum(_joined(sources, "bytes")[rows], 0),
        shape=shape[rows],
        shapes=shapes,
    )
    return launches, rejected


def name_of(names: Mapping[int, str], lasting: Callable[[str], str] = lambda name: name) -> Callable[[int, int], str]:
    """The full name of a launch by its kind and its name column: a pointer for kernels, else nothing.

    Args:
        names: by pointer.
        lasting: gives the name that a just-in-time kernel keeps when it is compiled anew; see kernelsource.SourceTable.
    """

    def full_name(kind: int, pointer: int) -> str:
        if kind == Kind.MEMCPY:
            return f"memcpy_{COPY_KINDS.get(pointer, 'unknown')}"
        return "memset" if kind == Kind.MEMSET else lasting(names.get(pointer, "unnamed"))

    return full_name


def _shapes(sources: list[Records]) -> tuple[Int32, list[Records]]:
    """Each record's shape by number, and for each source a record of each of its shapes, in order of the numbers."""
    numbers: list[Int32] = [np.zeros(0, dtype=np.int32)]
    samples: list[Records] = []
    before = 0
    for source in sources:
        at, mask = _shape_words(source.dtype)
        words = source.view(np.uint64).reshape(len(source), -1).take(at, axis=1)
        for column in np.flatnonzero(~mask).tolist():
            words[:, column] &= mask[column]
        first, number = distinct_rows(words)
        samples.append(source[first])
        numbers.append(number + np.int32(before))
        before += len(first)
    return np.concatenate(numbers), samples


@cache
def _shape_words(dtype: np.dtype[np.void]) -> tuple[Int64, UInt64]:
    """The 8-byte words of a record that hold something of its shape, and which of their bits do."""
    fields = dict(dtype.fields or {})
    covered = np.zeros(dtype.itemsize, dtype=np.uint8)
    for name in SHAPE_COLUMNS:
        field = "copy_kind" if name == "name" and "copy_kind" in fields else name
        if name != "kind" and field in fields:
            inner, offset, *_ = fields[field]
            covered[offset : offset + inner.itemsize] = 0xFF
    mask = covered.view(np.uint64)
    at = np.flatnonzero(mask)
    return at, mask[at]


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

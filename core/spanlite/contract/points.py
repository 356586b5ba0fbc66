"""Metric points: what one series did in one window, or since it began."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spanlite.contract.columns import GAUGE, Int32, Int64, Kind, Limiter
from spanlite.contract.histogram import SCHEMA, quantile_ns


class Launch(NamedTuple):
    """The launch configuration of a series; units as in proto LaunchConfig."""

    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    cluster: tuple[int, int, int] = (0, 0, 0)
    registers_per_thread: int = 0
    static_shared_memory: int = 0
    dynamic_shared_memory: int = 0
    shared_memory_executed: int = 0
    local_memory_per_thread: int = 0
    launch_type: int = 0
    copy_kind: int = 0
    active_warps: int = 0
    max_warps: int = 0
    limiter: int = 0


class Series(NamedTuple):
    """Identity of a series; hashable, and the same for the same work in every run.

    `kernel` is the bounded id, `name` the full one. The series "other" that takes what top-K leaves over has
    kernel "other", an empty name, and of the launch only max_warps and copy_kind.
    """

    gpu_uuid: str
    kind: int
    kernel: str
    name: str = ""
    launch: Launch = Launch()
    stage: str = ""
    workload: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    host: str = ""


OTHER = "other"
_BITS, _FLOAT = struct.Struct("<Q"), struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class Exemplar:
    """The longest execution of a window: of equals the earliest, or the newest where they took no time.

    Of gauges `span_id` is the value, as the bits of a float64.
    """

    trace_id: bytes
    span_id: int
    duration_ns: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Point:
    """One series in one window; fields and units of proto MetricPoint.

    `bucket_index` (ascending) and `bucket_count` are equally long; the counts add up to `count`. `epoch` is the
    generation of a cumulative point's state: greater where counting began anew at zero.
    """

    series: Series
    window_start_ns: int
    window_end_ns: int
    count: int
    spans: int
    sum_ns: int
    min_ns: int
    max_ns: int
    warp_ns: int
    bytes: int
    bucket_index: Int32
    bucket_count: Int64
    exemplar: Exemplar | None = None
    cumulative: bool = False
    epoch: int = 0

    @property
    def occupancy(self) -> float:
        """Time-weighted theoretical occupancy 0..1; nan where it is not known."""
        warps = self.series.launch.max_warps
        return self.warp_ns / (self.sum_ns * warps) if warps and self.sum_ns else float("nan")

    @property
    def value(self) -> float | None:
        """Of gauges the newest value; None for all else, and where the point does not tell."""
        if self.series.kind != GAUGE or self.exemplar is None:
            return None
        return value_of(self.exemplar.span_id)

    def quantile_ns(self, q: float) -> float:
        """Quantile of the durations, at most 1.1 % off."""
        return quantile_ns(self.bucket_index, self.bucket_count, q)


def value_of(bits: int) -> float:
    """The float64 with these bits, a uint64."""
    value: float = _FLOAT.unpack(_BITS.pack(bits))[0]
    return value


def merge_buckets(index: Int32, count: Int64) -> tuple[Int32, Int64]:
    """Adds up equal buckets: any order in, ascending indexes out."""
    merged, inverse = np.unique(index, return_inverse=True)
    total = np.zeros(len(merged), dtype=np.int64)
    np.add.at(total, inverse, count)
    return merged.astype(np.int32), total


def point_json(point: Point) -> dict[str, object]:
    """A point as JSON values: seconds for people and tools, whole nanoseconds for exactness."""
    series, launch, value = point.series, point.series.launch, point.value
    labels: dict[str, object] = {
        "gpu_uuid": series.gpu_uuid,
        "kind": Kind(series.kind).name.lower(),
        "kernel": series.kernel,
        "name": series.name,
        "stage": series.stage,
        "workload": series.workload,
        "namespace": series.namespace,
        "pod": series.pod,
        "container": series.container,
        "host": series.host,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in launch._asdict().items()},
        "limiter": Limiter(launch.limiter).name.lower(),
    }
    return {
        "window": {"start_ns": point.window_start_ns, "end_ns": point.window_end_ns},
        "labels": labels,
        "count": point.count,
        "spans": point.spans,
        "sum": point.sum_ns / 1e9,
        "min": point.min_ns / 1e9,
        "max": point.max_ns / 1e9,
        "sum_ns": point.sum_ns,
        "min_ns": point.min_ns,
        "max_ns": point.max_ns,
        "occupancy": None if not launch.max_warps or not point.sum_ns else point.occupancy,
        "bytes": point.bytes,
        **({} if value is None else {"value": _number(value)}),
        "schema": SCHEMA,
        "buckets": [[int(i), int(c)] for i, c in zip(point.bucket_index, point.bucket_count, strict=True)],
        **({} if point.exemplar is None else {"exemplar": _exemplar_json(point.exemplar, value)}),
    }


def _number(value: float) -> float | str:
    """The number; its name where JSON has no word for it."""
    return value if math.isfinite(value) else str(value)


def _exemplar_json(exemplar: Exemplar, value: float | None) -> dict[str, object]:
    """An exemplar as JSON values; `value` is that of a gauge, else None."""
    return {
        "trace_id": exemplar.trace_id.hex() if any(exemplar.trace_id) else None,
        "span_id": f"{exemplar.span_id:016x}",
        "value": exemplar.duration_ns / 1e9 if value is None else _number(value),
        "duration_ns": exemplar.duration_ns,
        "start_ns": exemplar.start_ns,
    }

"""The demo's tables: kernels by GPU time, and the shares of the stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from spanlite.contract.columns import OBSERVATIONS, Int32, Int64, Kind, Limiter
from spanlite.contract.histogram import quantile_ns
from spanlite.contract.points import Point, merge_buckets

_NAME_CHARS = 46


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel over all its launch configurations and stages."""

    kernel: str
    kind: str
    count: int
    sum_ns: int
    p50_ns: float
    p99_ns: float
    occupancy: float
    limiter: str
    share: float


def kernel_rows(points: Iterable[Point]) -> list[KernelRow]:
    """Kernels by GPU time, from cumulative points."""
    grouped: dict[tuple[int, str], list[Point]] = defaultdict(list)
    for point in _work(points):
        grouped[point.series.kind, point.series.kernel].append(point)
    total = sum(point.sum_ns for group in grouped.values() for point in group) or 1
    rows = [_kernel_row(key, group, total) for key, group in grouped.items()]
    return sorted(rows, key=lambda row: (-row.sum_ns, row.kernel))


def stage_shares(points: Iterable[Point]) -> dict[str, float]:
    """Share of GPU time by stage; spans outside all ranges are `(none)`."""
    time_ns: dict[str, int] = defaultdict(int)
    for point in _work(points):
        time_ns[point.series.stage or "(none)"] += point.sum_ns
    total = sum(time_ns.values()) or 1
    return {stage: ns / total for stage, ns in sorted(time_ns.items(), key=lambda item: -item[1])}


def draw(points: Iterable[Point], *, most: int = 12) -> Group:
    """Both tables for a terminal."""
    points = list(points)
    rows = kernel_rows(points)
    table = Table(title="Kernels by GPU time", title_justify="left", expand=False)
    table.add_column("kernel", no_wrap=True)
    for name in ("time %", "launches", "p50", "p99", "occupancy", "limited by"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows[:most]:
        occupancy = "" if np.isnan(row.occupancy) else f"{row.occupancy:.0%}"
        cells = (f"{row.share:.1%}", f"{row.count:,}", _time(row.p50_ns), _time(row.p99_ns), occupancy, row.limiter)
        table.add_row(_shortened(row.kernel), *cells)
    if len(rows) > most:
        rest = sum(row.share for row in rows[most:])
        table.add_row(f"{len(rows) - most} more", f"{rest:.1%}", f"{sum(row.count for row in rows[most:]):,}")
    stages = Table(title="GPU time by stage", title_justify="left")
    stages.add_column("stage")
    stages.add_column("time %", justify="right")
    stages.add_column("")
    for stage, share in list(stage_shares(points).items())[:8]:
        stages.add_row(_shortened(stage), f"{share:.1%}", "█" * round(share * 40))
    return Group(table, stages)


def summary_json(points: Iterable[Point]) -> dict[str, Any]:
    """The same for machines; times in seconds."""
    points = list(points)
    shares: Mapping[str, float] = stage_shares(points)
    kernels = [
        {
            "kernel": row.kernel,
            "kind": row.kind,
            "count": row.count,
            "seconds": row.sum_ns / 1e9,
            "p50_seconds": row.p50_ns / 1e9,
            "p99_seconds": row.p99_ns / 1e9,
            "theoretical_occupancy": None if np.isnan(row.occupancy) else row.occupancy,
            "limiter": row.limiter,
            "share": row.share,
        }
        for row in kernel_rows(points)
    ]
    return {"kernels": kernels, "stages": shares}


def _work(points: Iterable[Point]) -> Iterator[Point]:
    """The points of GPU work; custom metrics take no GPU time."""
    return (point for point in points if point.series.kind not in OBSERVATIONS)


def _kernel_row(key: tuple[int, str], group: list[Point], total: int) -> KernelRow:
    index, count = _buckets(group)
    known = [point for point in group if point.series.launch.max_warps]
    capacity = sum(point.sum_ns * point.series.launch.max_warps for point in known)
    longest = max(group, key=lambda point: point.sum_ns)
    return KernelRow(
        kernel=key[1],
        kind=Kind(key[0]).name.lower(),
        count=sum(point.count for point in group),
        sum_ns=sum(point.sum_ns for point in group),
        p50_ns=quantile_ns(index, count, 0.5),
        p99_ns=quantile_ns(index, count, 0.99),
        occupancy=sum(point.warp_ns for point in known) / capacity if capacity else float("nan"),
        limiter=Limiter(longest.series.launch.limiter).name.lower().replace("_", " ") if capacity else "",
        share=sum(point.sum_ns for point in group) / total,
    )


def _buckets(group: list[Point]) -> tuple[Int32, Int64]:
    index = np.concatenate([point.bucket_index for point in group])
    return merge_buckets(index, np.concatenate([point.bucket_count for point in group]))


def _shortened(name: str) -> Text:
    """At most _NAME_CHARS, both ends kept: namespaces and hashes tell kernels apart.

    A name is whatever a program chose: as Text its brackets are no markup, and what could steer a terminal is left out.
    """
    name = "".join(char if char.isprintable() else "?" for char in name.removeprefix("at::native::"))
    half = _NAME_CHARS // 2
    return Text(name if len(name) <= _NAME_CHARS else f"{name[: half - 1]}…{name[-half:]}")


def _time(ns: float) -> str:
    return f"{ns / 1e3:.1f} µs" if ns < 1e6 else f"{ns / 1e6:.2f} ms"

"""Sums of cumulative points: exact in counts, nanoseconds and buckets, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from spanlite.contract.columns import Int32, Int64
from spanlite.contract.points import Exemplar, Point, merge_buckets

Key = TypeVar("Key")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Total:
    """What several series did together.

    Attributes:
        warp_ns, capacity_ns: sums of duration times active, and times maximum warps, where those are known.
        bucket_index: ascending, shape (k,); bucket_count likewise, adding up to count.
        exemplars: the longest execution of each series that has one.
    """

    count: int
    sum_ns: int
    warp_ns: int
    capacity_ns: int
    bytes: int
    bucket_index: Int32
    bucket_count: Int64
    exemplars: tuple[Exemplar, ...]

    @property
    def occupancy(self) -> float | None:
        """Time-weighted theoretical occupancy; None where no series knows its warps."""
        return self.warp_ns / self.capacity_ns if self.capacity_ns else None


def total(points: Sequence[Point]) -> Total:
    """Adds up at least one point."""
    index, count = points[0].bucket_index, points[0].bucket_count
    if len(points) > 1:
        index, count = merge_buckets(
            np.concatenate([p.bucket_index for p in points]), np.concatenate([p.bucket_count for p in points])
        )
    known = [p for p in points if p.series.launch.max_warps]
    return Total(
        count=sum(p.count for p in points),
        sum_ns=sum(p.sum_ns for p in points),
        warp_ns=sum(p.warp_ns for p in known),
        capacity_ns=sum(p.sum_ns * p.series.launch.max_warps for p in known),
        bytes=sum(p.bytes for p in points),
        bucket_index=index,
        bucket_count=count,
        exemplars=tuple(p.exemplar for p in points if p.exemplar),
    )


def add_earlier(earlier: Point, later: Point) -> Point:
    """`later` with all that `earlier`, of the same series, had counted."""
    index, count = merge_buckets(
        np.concatenate([earlier.bucket_index, later.bucket_index]),
        np.concatenate([earlier.bucket_count, later.bucket_count]),
    )
    exemplars = [e for e in (earlier.exemplar, later.exemplar) if e]
    return replace(
        later,
        window_start_ns=earlier.window_start_ns,
        count=earlier.count + later.count,
        spans=earlier.spans + later.spans,
        sum_ns=earlier.sum_ns + later.sum_ns,
        min_ns=min(earlier.min_ns, later.min_ns),
        max_ns=max(earlier.max_ns, later.max_ns),
        warp_ns=earlier.warp_ns + later.warp_ns,
        bytes=earlier.bytes + later.bytes,
        bucket_index=index,
        bucket_count=count,
        exemplar=max(exemplars, key=lambda e: (e.duration_ns, e.start_ns if later.max_ns == 0 else 0), default=None),
    )


def group(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Rows by key, in order of first sight."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups

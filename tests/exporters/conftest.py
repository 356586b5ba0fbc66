"""Points made from real durations, by arithmetic of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from spanlite.contract.columns import Kind
from spanlite.contract.points import Exemplar, Launch, Point, Series

Durations = NDArray[np.int64]
MakePoint = Callable[..., Point]


def exact_bucket(duration_ns: int) -> int:
    """Smallest i with duration <= 2^(i/32) s, in whole numbers: d^32 <= 2^i * 10^288."""
    index = math.ceil(32 * math.log2(duration_ns / 1e9)) - 1
    power = duration_ns**32
    while power << max(-index, 0) > 10**288 << max(index, 0):
        index += 1
    return index


def cumulative_point(
    series: Series, duration_ns: Durations | list[int], *, end_ns: int = 10**10, moved: int = 0
) -> Point:
    """A cumulative point of these executions; its exemplar is the longest."""
    values = np.asarray(duration_ns, dtype=np.int64)
    distinct, times = np.unique(values, return_counts=True)
    counted: dict[int, int] = {}
    for duration, number in zip(distinct.tolist(), times.tolist(), strict=True):
        index = exact_bucket(duration)
        counted[index] = counted.get(index, 0) + number
    indexes = sorted(counted)
    return Point(
        series=series,
        window_start_ns=0,
        window_end_ns=end_ns,
        count=len(values),
        spans=len(values),
        sum_ns=int(values.sum()),
        min_ns=int(values.min()),
        max_ns=int(values.max()),
        warp_ns=int(values.sum()) * series.launch.active_warps,
        bytes=moved,
        bucket_index=np.array(indexes, dtype=np.int32),
        bucket_count=np.array([counted[i] for i in indexes], dtype=np.int64),
        exemplar=Exemplar(bytes(range(16)), 0xABC, int(values.max()), 1_700_000_000 * 10**9),
        cumulative=True,
    )


@pytest.fixture
def make_point() -> MakePoint:
    """cumulative_point, for tests to call."""
    return cumulative_point


@pytest.fixture(scope="session")
def serve_durations() -> dict[str, Durations]:
    """20,000 executions of a recorded H200 serving run: durations in nanoseconds by kernel."""
    table = pq.read_table(Path(__file__).parents[1] / "data" / "serve_slice.parquet")
    kernels = table["kernel"].to_numpy(zero_copy_only=False)
    duration = table["duration_ns"].to_numpy().astype(np.int64)
    return {str(kernel): duration[kernels == kernel] for kernel in np.unique(kernels.astype(str))}


@pytest.fixture(scope="session")
def serve_points(serve_durations: dict[str, Durations]) -> list[Point]:
    """Each kernel of the run, its executions dealt over three launch configurations and two stages."""
    points = []
    for number, (name, durations) in enumerate(serve_durations.items()):
        for part in range(3):
            if len(durations[part::3]):
                launch = Launch(grid=(part + 1, 1, 1), active_warps=16 * (part + 1), max_warps=64, limiter=part + 1)
                stage = "prefill" if part == 0 else "decode"
                series = Series("GPU-1", Kind.KERNEL, f"k{number:02}", name=name, launch=launch, stage=stage)
                points.append(cumulative_point(series, durations[part::3]))
    return points

"""What it costs to tell a series: processor time of the second stage's `emit`, by series of the GPU and share touched.

    python benchmarks/bench_points.py [--json FILE]

State is in memory, so what a stream engine adds is left out. Each GPU's series exist already; then windows of which
each has work of some of them are added and told one by one. A series has some ten buckets in a window and some thirty
in its totals, as in the recorded serving run; which ones is drawn anew for each window, from fixed seeds.
`first_us_per_point` is of the first window, in which every series is new.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import Figure, json_path, show  # noqa: E402 - run as a script, its folder is the path
from spanlite.contract.point_codec import decode_point, series_key  # noqa: E402
from spanlite.contract.points import Launch, Series  # noqa: E402
from spanlite.pipeline.partial import Partial  # noqa: E402
from spanlite.pipeline.pieces import pack  # noqa: E402
from spanlite.pipeline.series import SeriesRegistry  # noqa: E402
from spanlite.pipeline.totalstage import TotalStage  # noqa: E402
from tests.pipeline.simulator import MemoryLog, MemoryTable, Store  # noqa: E402

SERIES = (100, 1_000, 10_000, 100_000)
SHARES = (0.01, 1.0)
_WIDTH_NS = 10_000_000_000
_GPU = "GPU-2f6a1c54-0d1e-4c8b-9b5e-6a6f2d0c7e11"
_BUCKETS, _OF = 10, 30
_LEAST_S, _LEAST_EMITS = 0.5, 3


def registry_of(series: int) -> SeriesRegistry:
    """As many series of one GPU: kernels with template-heavy names and the labels that a pod gives them."""
    registry = SeriesRegistry()
    for number in range(series):
        launch = Launch((132, 1 + number % 7, 1), (256, 1, 1), (1, 1, 1), 64, 1024, 49152, 102400, 0, 1, 0, 32, 64, 3)
        full = f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_{number}>(Params)"
        kernel = f"cutlass::Kernel2#{number:08x}"
        owner = ("serve", "production", f"serve-{number % 8}-7c9d", "vllm", "node-17")
        registry.number(Series(_GPU, 1, kernel, full, launch, ("prefill", "decode")[number % 2], *owner))
    return registry


def window_of(numbers: NDArray[np.int32], window: int, random: np.random.Generator) -> Partial:
    """One window of some series."""
    rows = len(numbers)
    index = np.sort(np.argsort(random.random((rows, _OF)), axis=1)[:, :_BUCKETS], axis=1).astype(np.int32) - 600
    count = random.geometric(0.02, (rows, _BUCKETS))
    total = count.sum(axis=1)
    longest = random.integers(20_000, 90_000, rows)
    return Partial(
        window=np.full(rows, window, dtype=np.int64),
        series=numbers,
        count=total,
        spans=total,
        sum_ns=total * 12_345,
        min_ns=random.integers(1000, 5000, rows),
        max_ns=longest,
        warp_ns=total * 12_345 * 32,
        bytes=np.zeros(rows, dtype=np.int64),
        exemplar_trace=np.frombuffer(random.bytes(16 * rows), dtype="V16"),
        exemplar_span=random.integers(1, 1 << 63, rows).astype(np.uint64),
        exemplar_start_ns=window * _WIDTH_NS + random.integers(0, _WIDTH_NS, rows),
        bucket_row=np.repeat(np.arange(rows, dtype=np.int32), _BUCKETS),
        bucket_index=index.ravel(),
        bucket_count=count.ravel(),
    )


def measure(registry: SeriesRegistry, share: float) -> dict[str, Figure]:
    """Tells windows until there are enough of them; the table must then hold every execution, each series once."""
    series = len(registry.series)
    random = np.random.default_rng(series)
    store = Store({})
    stage = TotalStage(_WIDTH_NS, series, 1, MemoryLog(store, "waiting"), MemoryTable(store, "kept"))
    told, executions = max(1, round(series * share)), 0
    spent_s, emits, points, first_s = 0.0, -1, 0, 0.0
    while emits < _LEAST_EMITS or spent_s < _LEAST_S:
        touched = np.arange(series) if emits < 0 else np.sort(random.choice(series, told, replace=False))
        window = window_of(touched.astype(np.int32), 179_000_000 + emits, random)
        executions += int(window.count.sum())
        stage.take(pack(window, registry))
        begin = time.process_time()
        made = sum(1 for _ in stage.emit(_GPU))
        took_s = time.process_time() - begin
        assert made == len(touched), f"{made} points of {len(touched)} series"
        if emits < 0:
            first_s = took_s
        else:
            spent_s, points = spent_s + took_s, points + made
        emits += 1
    kept: dict[bytes, bytes] = store.saved["kept", store.key]
    assert sum(decode_point(point).count for point in kept.values()) == executions, (
        "executions are missing from the points"
    )
    assert kept.keys() == {series_key(each) for each in registry.series}
    return {
        "series": series,
        "touched_percent": 100 * share,
        "points": told,
        "us_per_point": 1e6 * spent_s / points,
        "ms_per_emit": 1e3 * spent_s / emits,
        "first_us_per_point": 1e6 * first_s / series,
        "bytes_per_point": sum(map(len, kept.values())) / series,
    }


def main() -> None:
    """Measures, prints the table and, if asked, writes the figures."""
    path = json_path((__doc__ or "").splitlines()[0])
    rows: list[dict[str, Figure]] = []
    for series in SERIES:
        registry = registry_of(series)
        rows += [measure(registry, share) for share in SHARES]
    show("TotalStage.emit, state in memory, processor time", rows, path)


if __name__ == "__main__":
    main()

"""Spans to partial aggregates: million spans a second on one core, and whether every number is right.

    SPANLITE_RECORDINGS=FOLDER python benchmarks/bench_fold.py [--json FILE]

Folds serve_steady.parquet of that folder, else the 20,000 rows of tests/data, in batches of 65,536 spans. The check
groups the same file with Arrow, finds buckets in whole numbers and quantiles by sorting, and compares everything.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import Figure, best_s, json_path, show  # noqa: E402 - run as a script, its folder is the path
from spanlite.agent.batcher import BATCH_ROWS  # noqa: E402
from spanlite.agent.tables import KernelTable  # noqa: E402
from spanlite.contract.batch import Batch  # noqa: E402
from spanlite.contract.codec import decode_batch, encode_batch  # noqa: E402
from spanlite.contract.points import Point  # noqa: E402
from spanlite.pipeline.fold import fold_batch  # noqa: E402
from spanlite.pipeline.partial import Partial, merge  # noqa: E402
from spanlite.pipeline.points import points  # noqa: E402
from spanlite.pipeline.series import SeriesRegistry  # noqa: E402
from spanlite.runtime.clock import ManualClock  # noqa: E402
from tests.native.without import numpy_only  # noqa: E402
from tests.stack import load  # noqa: E402

WIDTH_NS = 10_000_000_000
QUANTILES = (0.01, 0.5, 0.9, 0.99, 0.999)
_LAUNCH = (
    *(f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz"),
    "registers_per_thread",
    "static_shared_memory",
    "dynamic_shared_memory",
    "shared_memory_executed",
    "local_memory_per_thread",
    "launch_type",
)


def _fold(batches: list[Batch], registry: SeriesRegistry) -> Partial:
    return merge([fold_batch(batch, WIDTH_NS, registry) for batch in batches])


def _key(point: Point, columns: list[str]) -> tuple[object, ...]:
    launch = point.series.launch
    fields = (*launch.grid, *launch.block, *launch.cluster, *launch[3:9])
    at = dict(zip(_LAUNCH, fields, strict=True))
    return (point.window_start_ns // WIDTH_NS, point.series.name, *(at[name] for name in columns))


def _exact_buckets(duration_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> dict[int, int]:
    """Executions by bucket: the smallest i with d^32 <= 2^i * 10^288, in Python's whole numbers."""
    counted: dict[int, int] = {}
    for duration, count in zip(*(part.tolist() for part in np.unique(duration_ns, return_counts=True)), strict=True):
        index = math.ceil(32 * math.log2(duration / 1e9)) - 2
        while duration**32 << max(-index, 0) > 10**288 << max(index, 0):
            index += 1
        counted[index] = counted.get(index, 0) + count
    return counted


def check(path: Path, made: list[Point]) -> dict[str, Figure]:
    """Compares points with a group-by of the file; differences are counted, the errors are the worst of any series."""
    table = pq.read_table(path)
    columns = [name for name in _LAUNCH if name in table.column_names]
    window = pa.array(table["start_ns"].to_numpy() // WIDTH_NS)
    table = table.append_column("window", window).set_column(
        table.column_names.index("duration_ns"), "duration_ns", pc.cast(table["duration_ns"], pa.int64())
    )
    keys = ["window", "kernel", *columns]
    grouped = table.group_by(keys).aggregate([("duration_ns", "list")])
    names = zip(*(grouped[name].to_pylist() for name in keys), strict=True)
    by_key = {_key(point, columns): point for point in made}
    wrong, sum_error, quantile_error = len(made) - len(by_key), 0.0, 0.0
    for key, durations in zip(names, grouped["duration_ns_list"].combine_chunks(), strict=True):
        exact = np.sort(durations.values.to_numpy())
        point = by_key.pop(key)
        buckets = dict(zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True))
        same = (point.count, point.min_ns, point.max_ns, buckets) == (
            len(exact),
            exact[0],
            exact[-1],
            _exact_buckets(exact),
        )
        wrong += int(not same)
        sum_error = max(sum_error, abs(point.sum_ns / exact.astype(np.float64).sum() - 1))
        for q in QUANTILES:
            value = exact[max(math.ceil(q * len(exact)), 1) - 1]
            quantile_error = max(quantile_error, abs(point.quantile_ns(q) / value - 1))
    return {
        "series": len(made),
        "series that differ": wrong + len(by_key),
        "rel. error of sums": sum_error,
        "worst quantile error %": 100 * quantile_error,
    }


def beside_numpy(name: str, batches: Sequence[Batch]) -> dict[str, Figure]:
    """Decoding and folding in C, then the same by numpy."""
    encoded, registry = [encode_batch(batch) for batch in batches], SeriesRegistry()
    spans = sum(len(batch.columns) for batch in batches)

    def decode() -> None:
        for data in encoded:
            decode_batch(data)

    def fold() -> None:
        for batch in batches:
            fold_batch(batch, WIDTH_NS, registry)

    decode_s, fold_s = best_s(decode), best_s(fold)
    with numpy_only():
        numpy_decode_s, numpy_fold_s = best_s(decode), best_s(fold)
    return {
        "recording": name,
        "decode M/s": spans / decode_s / 1e6,
        "numpy": spans / numpy_decode_s / 1e6,
        "times": numpy_decode_s / decode_s,
        "fold M/s": spans / fold_s / 1e6,
        "by numpy": spans / numpy_fold_s / 1e6,
        "times faster": numpy_fold_s / fold_s,
    }


def main() -> None:
    """Measures, checks, prints both tables and, if asked, writes the figures."""
    path = json_path("spans to partial aggregates")
    folder = os.environ.get("SPANLITE_RECORDINGS", "")
    source = Path(folder) / "serve_steady.parquet"
    if not folder or not source.is_file():
        source = _ROOT / "tests" / "data" / "serve_slice.parquet"
    batches = list(KernelTable(source).batches(ManualClock()))
    encoded = [encode_batch(batch) for batch in batches]
    spans = sum(len(batch.columns) for batch in batches)
    registry = SeriesRegistry()
    figures = check(source, points(_fold(batches, registry), WIDTH_NS, registry))
    assert figures["series that differ"] == 0
    fold_s = best_s(lambda: _fold(batches, SeriesRegistry()))
    decode_s = best_s(lambda: _fold([decode_batch(data) for data in encoded], SeriesRegistry()))
    row: dict[str, Figure] = {
        "recording": source.stem,
        "spans": spans,
        "fold + merge M/s": spans / fold_s / 1e6,
        "decode + fold + merge M/s": spans / decode_s / 1e6,
        **figures,
    }
    beside = [beside_numpy(source.stem, batches), beside_numpy("serve-cupti130500", load.recorded(BATCH_ROWS))]
    show("fold, one core, best of 7", [row])
    show("in C and by numpy, a registry that knows the series", beside)
    if path:
        path.write_text(json.dumps({"rows": [row], "beside_numpy": beside}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What the streaming jobs keep and hand on: batches by their size, state, points, the exporter's memory and scrapes.

    SPANLITE_RECORDINGS=FOLDER python benchmarks/bench_sizes.py [--json FILE]

Takes serve_steady.parquet of that folder, else the slice in tests/data. A batch costs what it costs whatever is in it,
and then something for each span: both come from a line through two sizes, 256 and 8,192 spans. Stages run on state in
memory and take processor time, so what a stream engine adds is left out. The exporter holds the recording's series on
many GPUs at once.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import zstandard

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import Figure, best_s, json_path, show  # noqa: E402 - run as a script, its folder is the path
from spanlite.agent.columns import compact  # noqa: E402
from spanlite.agent.tables import KernelTable  # noqa: E402
from spanlite.contract.batch import Batch  # noqa: E402
from spanlite.contract.codec import encode_batch  # noqa: E402
from spanlite.contract.point_codec import decode_point, encode_point  # noqa: E402
from spanlite.contract.points import Point  # noqa: E402
from spanlite.exporters.families import families  # noqa: E402
from spanlite.exporters.native import protobuf  # noqa: E402
from spanlite.exporters.prometheus import text  # noqa: E402
from spanlite.exporters.table import PointTable  # noqa: E402
from spanlite.pipeline.fold import fold_batch  # noqa: E402
from spanlite.pipeline.foldstage import FoldStage  # noqa: E402
from spanlite.pipeline.partial import merge, select  # noqa: E402
from spanlite.pipeline.pieces import pack, unpack  # noqa: E402
from spanlite.pipeline.points import Totals  # noqa: E402
from spanlite.pipeline.series import SeriesRegistry  # noqa: E402
from spanlite.pipeline.totalstage import TotalStage  # noqa: E402
from spanlite.pipeline.windows import WindowPolicy  # noqa: E402
from spanlite.runtime.clock import ManualClock  # noqa: E402
from tests.pipeline.simulator import MemoryLog, MemoryTable, MemoryValue, Store  # noqa: E402

WIDTH_NS = 10_000_000_000
SMALL, LARGE = 256, 8192
_GPUS = 40
_UPDATES = 30


def best_cpu_s(call: Callable[[], object], runs: int = 7) -> float:
    """Least processor time of several calls."""
    return best_s(call, runs, time.process_time)


def cut(batch: Batch, rows: int, most: int) -> list[Batch]:
    """Up to `most` batches of exactly `rows` spans from one batch, numbered from 0."""
    parts = [slice(at, at + rows) for at in range(0, len(batch.columns) - rows + 1, rows)][:most]
    return [
        replace(batch, sequence=number, first_row=batch.first_row + part.start, columns=batch.columns.take(part))
        for number, part in enumerate(parts)
    ]


def line(small: float, large: float) -> tuple[float, float]:
    """What a batch costs, and what each span adds, from the costs of a batch of SMALL and one of LARGE spans."""
    each = (large - small) / (LARGE - SMALL)
    return small - SMALL * each, each


def fold_s(messages: list[bytes], producer: bytes) -> float:
    """Seconds that the first stage takes for a message; the window stays open, as it does most of the time."""

    def run() -> None:
        store = Store({})
        progress, pending = MemoryValue(store, "progress"), MemoryLog(store, "pending")
        stage = FoldStage(WindowPolicy(width_ns=1 << 62, lateness_ns=0), progress, pending)
        for message in messages:
            assert not list(stage.take(producer, message))

    return best_cpu_s(run) / len(messages)


def batch_costs(batches: list[Batch]) -> dict[str, Figure]:
    """Bytes and seconds of batches, small and large."""
    parts = [part for batch in batches for part in cut(batch, LARGE, 24)][:24]
    largest = [replace(part, sequence=at) for at, part in enumerate(parts)]
    smallest = [
        replace(part, sequence=at) for at, part in enumerate(part for batch in largest for part in cut(batch, SMALL, 8))
    ]
    written = {rows: [encode_batch(_compact(b)) for b in made] for rows, made in ((SMALL, smallest), (LARGE, largest))}
    size = {rows: statistics.mean(map(len, messages)) for rows, messages in written.items()}
    seconds = {rows: fold_s(messages, largest[0].producer) for rows, messages in written.items()}
    per_batch, per_span = line(size[SMALL], size[LARGE])
    fold_batch_s, fold_span_s = line(seconds[SMALL], seconds[LARGE])
    return {
        "wire_bytes_per_batch": per_batch,
        "wire_bytes_per_span": per_span,
        "fold_seconds_per_batch": fold_batch_s,
        "fold_spans_per_core_second": 1 / fold_span_s,
    }


def _compact(batch: Batch) -> Batch:
    """As the agent sends it: with the tables that its own rows need."""
    return replace(batch, columns=compact(batch.columns))


def state_sizes(batches: list[Batch]) -> tuple[dict[str, Figure], list[Point], bytes]:
    """Bytes of state a series, in the first stage and in the second; the cumulative points; and one window's piece."""
    registry = SeriesRegistry()
    partials = [fold_batch(batch, WIDTH_NS, registry) for batch in batches]
    whole = merge(partials)
    made = Totals(WIDTH_NS, registry).add(whole)
    sizes = [len(encode_point(point)) for point in made]
    assert [decode_point(encode_point(point)).count for point in made] == [point.count for point in made]
    largest = max(partials, key=len)
    one = select(largest, largest.window == largest.window[0])
    piece = pack(one, registry)
    assert int(unpack(piece, SeriesRegistry()).spans.sum()) == int(one.spans.sum())
    zstd = zstandard.ZstdCompressor(level=3)
    together = b"".join(encode_point(point) for point in made)
    figures: dict[str, Figure] = {
        "point_bytes": statistics.mean(sizes),
        "point_bytes_largest": max(sizes),
        "point_compressed_share": len(zstd.compress(together)) / len(together),
        "pending_bytes_per_series": len(piece) / len(one),
    }
    return figures, made, piece


def total_s(piece: bytes, series: int) -> float:
    """Seconds that the second stage takes to add a piece to a GPU's totals and tell of a series, in the long run."""
    store = Store({})
    stage = TotalStage(WIDTH_NS, 500, 1, MemoryLog(store, "waiting"), MemoryTable(store, "kept"))

    def run() -> None:
        for _ in range(_UPDATES):
            stage.take(piece)
            assert len(list(stage.emit("GPU"))) == series

    return best_cpu_s(run) / _UPDATES / series


def exporter(made: list[Point]) -> dict[str, Figure]:
    """Memory, decoding time and scrape of an exporter that holds the points of many GPUs."""
    values = [
        encode_point(replace(point, series=point.series._replace(gpu_uuid=f"GPU-{gpu:036d}")))
        for gpu in range(_GPUS)
        for point in made
    ]
    tracemalloc.start()
    table = PointTable(series_cap=1 << 30, clock=ManualClock(made[0].window_end_ns))
    table.put([decode_point(value) for value in values])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    families_of = list(families(table.snapshot()))
    shown = {name: len(list(family.samples)) for family in families_of if (name := family.spec.name)}
    sets = shown["spanlite_kernel_launches_total"]
    classic, native = text(families_of), protobuf(families_of)
    samples = sum(line[0] != ord("#") for line in classic.splitlines())
    return {
        "exporter_bytes_per_series": held / len(values),
        "exporter_point_decodes_per_core_second": len(values)
        / best_cpu_s(lambda: [decode_point(v) for v in values], 3),
        "series_per_label_set": len(values) / sets,
        "scrape_text_bytes_per_label_set": len(classic) / sets,
        "scrape_native_bytes_per_label_set": len(native) / sets,
        "prometheus_classic_series_per_label_set": samples / sets,
        "prometheus_native_series_per_label_set": sum(shown.values()) / sets,
        "scrape_seconds_per_label_set": best_cpu_s(lambda: text(families(table.snapshot())), 3) / sets,
    }


def main() -> None:
    """Measures, prints the table and, if asked, writes the figures."""
    path = json_path(__doc__.splitlines()[0] if __doc__ else "")
    source = Path(os.environ.get("SPANLITE_RECORDINGS", "")) / "serve_steady.parquet"
    if not source.is_file():
        source = _ROOT / "tests" / "data" / "serve_slice.parquet"
    batches = list(KernelTable(source).batches(ManualClock()))
    sizes, made, piece = state_sizes(batches)
    total = total_s(piece, len(unpack(piece, SeriesRegistry())))
    figures = {**batch_costs(batches), **sizes, "total_seconds_per_point": total, **exporter(made)}
    rows: list[dict[str, Figure]] = [{"figure": name, "value": value} for name, value in figures.items()]
    show(f"{source.stem}: what batches, state, points and scrapes take", rows, path)


if __name__ == "__main__":
    main()

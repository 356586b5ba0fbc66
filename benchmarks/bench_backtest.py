"""Backtest: spans/s from an archive to points, points/s of files and detectors, and the memory of the command.

The archive is a recorded serving run, several times over; batches are as large as an agent's. `run` reads in a thread
of its own, so it uses two cores; `processor` is what both take together. Detectors look at a million points: a thousand
series in a thousand windows, all of them with histograms of the recorded run.

SPANLITE_RECORDINGS names a folder with serve_steady.parquet, a kernel table; else a slice of it in tests/data serves.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from spanlite.cli.backtest_run import backtest_archive
from spanlite.cli.replay_run import ArchiveFiles
from spanlite.pipeline.backtest.diff import compare
from spanlite.pipeline.backtest.files import read_points, write_columns
from spanlite.pipeline.backtest.run import Backtest
from spanlite.pipeline.detect.detectors import detector_of
from spanlite.pipeline.detect.port import detect
from spanlite.pipeline.detect.rules import parse_rule
from spanlite.pipeline.pointset import PointSet
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy
from spanlite.replay.plan import make_plan
from spanlite.replay.read import Reader
from spanlite.replay.selection import EVERYTHING, Selection
from spanlite.runtime.allocator import keep_freed

sys.path[:0] = [str(Path(__file__).parents[1])]

from benchmarks._table import Figure, best_s, json_path, show  # noqa: E402 - the root comes first
from benchmarks.bench_archive import find_table, read_table  # noqa: E402 - likewise
from benchmarks.bench_replay import _CHILD, write  # noqa: E402 - likewise

RUNS = 3
SECOND_NS = 10**9
SERIES = WINDOWS = 1000
RULES = ("p99 > 1s for 3", "mean > 1us for 3", "p99 > 1.5x of 30 for 2", "calls < 0.5x of 30 for 2")


def memory_mib(folder: Path) -> float:
    """Most memory of `spanlite backtest run`, in MiB."""
    words = ["backtest", "run", str(folder / "traces"), "-o", str(folder / "points.bin"), "-q"]
    done = subprocess.run([sys.executable, "-c", _CHILD, *words], check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def measure_archive(folder: Path) -> list[dict[str, Figure]]:
    """What a span costs on its way from the archive to points."""
    batches = read_table(find_table())
    spans = write(folder / "traces", batches)
    where, files = str(folder / "traces"), ArchiveFiles(str(folder / "traces"))
    rows: list[dict[str, Figure]] = []

    def add(what: str, work: Callable[[], object], count: int = spans) -> None:
        rows.append(
            {
                "what": what,
                "items": count,
                "items_per_s": count / best_s(work, RUNS),
                "items_per_s_of_processor": count / best_s(work, RUNS, time.process_time),
            }
        )

    def read() -> None:
        plan = make_plan(files, EVERYTHING)
        for _number, parts in Reader(files, plan, EVERYTHING).batches(fill=True):
            assert len(parts) == 1

    def fold() -> None:
        graph = Backtest(WindowPolicy(10 * SECOND_NS, None), top_k=500)
        for _ in range(-(-spans // sum(len(batch.columns) for batch in batches))):
            for batch in batches:
                graph.take(batch)
        assert graph.account.spans == spans
        graph.finish()

    def run(width_ns: int, selection: Selection = EVERYTHING) -> None:
        policy = WindowPolicy(width_ns, None)
        found, account = backtest_archive(where, policy, top_k=500, selection=selection)
        assert int(found.rows.spans.sum()) == account.folds.folded

    add("plan and reading", read)
    add("stages, batches in memory", fold)
    add("run, windows of 10 s", lambda: run(10 * SECOND_NS))
    add("run, windows of 100 ms", lambda: run(SECOND_NS // 10))
    add("run, kernels by pattern", lambda: run(10 * SECOND_NS, Selection(kernels=("*gemm*", "*nvjet*"))))
    return rows


def many_points(folder: Path) -> PointSet:
    """A million points made of those of the recorded run, each window a permutation of them."""
    found = backtest_archive(str(folder / "traces"), WindowPolicy(SECOND_NS // 10, None), top_k=500)[0].merged()
    rng = np.random.default_rng(1)
    parts = found.where(np.arange(len(found)) < SERIES)
    base = len(parts)
    registry = SeriesRegistry()
    series = parts.registry.series[0]
    for number in range(SERIES):
        registry.number(series._replace(kernel=f"kernel-{number}"))
    copies = -(-SERIES * WINDOWS // base)
    lengths = np.tile(np.bincount(parts.rows.bucket_row, minlength=base), copies)[: SERIES * WINDOWS]
    buckets = int(lengths.sum())
    columns = {
        name: np.tile(getattr(parts.rows, name), copies)[: SERIES * WINDOWS]
        for name in type(parts.rows).__slots__
        if not name.startswith("bucket_")
    }
    columns["window"] = np.repeat(np.arange(WINDOWS, dtype=np.int64), SERIES)
    columns["series"] = np.concatenate([rng.permutation(SERIES) for _ in range(WINDOWS)]).astype(np.int32)
    rows = type(parts.rows)(
        **columns,
        bucket_row=np.repeat(np.arange(SERIES * WINDOWS, dtype=np.int32), lengths),
        bucket_index=np.tile(parts.rows.bucket_index, copies)[:buckets],
        bucket_count=np.tile(parts.rows.bucket_count, copies)[:buckets],
    )
    return replace(parts, registry=registry, rows=rows).merged()


def measure_points(folder: Path) -> list[dict[str, Figure]]:
    """What a point costs in files, comparisons and detectors."""
    found, path = many_points(folder), folder / "many.bin"
    rows: list[dict[str, Figure]] = []

    def add(what: str, work: Callable[[], object]) -> None:
        rows.append(
            {
                "what": what,
                "items": len(found),
                "items_per_s": len(found) / best_s(work, 1),
                "items_per_s_of_processor": len(found) / best_s(work, 1, time.process_time),
            }
        )

    def store() -> None:
        with path.open("wb") as stream:
            write_columns(stream, found)

    add("points to a file of columns", store)
    add("points from it", lambda: read_points(path))
    add("points compared", lambda: compare(found, found))
    for text in RULES:
        add(f"rule {text}", lambda text=text: detect(detector_of(parse_rule(text)), found))  # type: ignore[misc]
    add("rule p99 > 1.5x of 30, stepwise", lambda: stepwise(found))
    return rows


def stepwise(found: PointSet) -> None:
    """Window by window, as a streaming detector gets them."""
    detector = detector_of(parse_rule("p99 > 1.5x of 30 for 2"))
    for part in found.parts(SERIES):
        detector.step(part)


def main() -> None:
    """Prints the figures; `--json FILE` writes them as well."""
    path = json_path(__doc__ or "")
    keep_freed()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = measure_archive(folder)
        rows += measure_points(folder)
        memory = memory_mib(folder)
    title = f"backtest: spans and points per second; the command takes {memory:.0f} MiB at most"
    show(title, rows, path)


if __name__ == "__main__":
    main()

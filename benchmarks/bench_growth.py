"""How the metrics job's cost grows with series, partitions and the size of batches, on a real Flink and Kafka.

    python benchmarks/bench_growth.py [--json FILE] [--spans N]

Each row is a topic of its own, filled with the recorded serving run again and again, and an unbounded job that reads it
from the beginning with two subtasks, thread mode, one TaskManager for all rows, after a first job that only warms it up
(it needs `make flink-venv`). Times and sequences go on from copy to copy, so windows close as they would.

series: as many as the row says, the same number on each GPU. The executions of each recorded series are dealt in turn
to variants of it that differ in the kernel's name, the more the more frequent it is; so each has its share of the
spans, and nearly every series is in every window. On 4 GPUs, one process each; then on so many GPUs that each has 250
series, or 1,000. `--top-k` is above them all.
partitions: 16 processes with a GPU each, 72 series each as recorded; batches as the agent makes them.
batch: the same, with the run cut anew into batches of so many spans.

Columns: `spans_per_s` and `spans_per_core_s` (processor time of the TaskManager, JVM and all) between a tenth and nine
tenths of the batches; `read_s` from the first to the last batch, `told_s` until the job has also been drained and has
ended; `cpu_s` the TaskManager's processor time in `told_s`; `open_bytes` of state in a checkpoint when all has been
read, with the last windows open; `state_bytes` of the savepoint when all is told; `rss` and `peak_rss` of the
TaskManager at the end of the row (Java's heap is in memory from the start, and the allocator keeps some of what earlier
rows took); `aggregates` that the fold makes, one a batch, window and series; `series` in the topic of points, counted
there, and `points` told; `late` points of windows that were closed already. No figure comes of a run that lost a span:
the newest points must tell of each.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

from benchmarks._flink import (  # noqa: E402 - run as a script, its folder is the path
    SETTINGS,
    MetricsJob,
    make_topics,
    steady,
)
from benchmarks._loads import cut, repeated, send, whole_run, with_series  # noqa: E402
from benchmarks._process import forget_peak, memory, process_cpu_s  # noqa: E402
from benchmarks._table import Figure, show  # noqa: E402
from spanlite.agent.batcher import BATCH_ROWS  # noqa: E402
from spanlite.pipeline.fold import fold_batch  # noqa: E402
from spanlite.pipeline.series import SeriesRegistry  # noqa: E402
from tests.stack.cluster import VENV  # noqa: E402
from tests.stack.flink import Flink  # noqa: E402
from tests.stack.kafka import Kafka  # noqa: E402

_SPANS = 6_000_000
_TOP_K = 1_000_000
_WINDOW_NS = 10 * 10**9


class Case(NamedTuple):
    """A row.

    Attributes:
        varies: which of the others does so in its table.
        gpus: processes, with a GPU each.
        series: of one GPU; 0 leaves them as they were recorded.
        share: of the spans of a usual row; less where it would take too long.
    """

    varies: str
    gpus: int = 16
    series: int = 0
    partitions: int = 4
    batch: int = BATCH_ROWS
    share: float = 1.0


CASES = (
    *(Case("batch", batch=rows, share=min(1.0, rows / 4096)) for rows in (256, 1024, 4096, 8192, 32_768)),
    *(Case("partitions", partitions=number) for number in (1, 2, 4)),
    *(Case("series", 4, series) for series in (25, 250)),
    Case("series", 4, 2500, share=0.5),
    Case("series", 40, 250, share=0.8),
    Case("series", 4, 25_000, share=0.09),
    Case("series", 100, 1000, share=2.0),
)
_WARM = Case("nothing", batch=256, share=1 / 8)
"""Many records, since Java compiles what has run often."""


def measure(kafka: Kafka, flink: Flink, prefix: str, case: Case, spans: int) -> dict[str, Figure]:
    """Fills topics and runs the job on them."""
    make_topics(kafka, prefix, case.partitions)
    run = whole_run()
    base = cut(with_series(run, case.series) if case.series else run, case.batch)
    copies = max(1, round(spans * case.share / case.gpus / len(run.columns)))
    sent = send(kafka.bootstrap, f"{prefix}.spans", repeated(base, range(copies), case.gpus))
    forget_peak(flink.taskmanagers[-1].pid)
    job = MetricsJob(kafka, flink, prefix, "--top-k", str(_TOP_K))
    job.await_read(sent.batches)
    began = next(before for before, after in zip(job.samples, job.samples[1:], strict=False) if after.records)
    read_s = job.samples[-1].at_s - began.at_s
    checkpoint = job.checkpoint()
    state_bytes = job.drain()
    told_s, used_s = time.perf_counter() - began.at_s, process_cpu_s(job.pid) - began.cpu_s
    held = memory(job.pid)
    told = job.check(sent.work)
    registry = SeriesRegistry()
    batches_per_s, batches_per_core_s = steady(job.samples, sent.batches)
    row: dict[str, Figure] = {
        "varies": case.varies,
        "gpus": case.gpus,
        "series": told.series,
        "partitions": case.partitions,
        "batch": case.batch,
        "spans": sent.rows,
        "batches": sent.batches,
        "aggregates": copies * case.gpus * sum(len(fold_batch(batch, _WINDOW_NS, registry)) for batch in base),
        "points": told.points,
        "late": told.late,
        "spans_per_s": batches_per_s * sent.rows / sent.batches,
        "spans_per_core_s": batches_per_core_s * sent.rows / sent.batches,
        "read_s": read_s,
        "told_s": told_s,
        "cpu_s": used_s,
        "open_bytes": job.state_size(checkpoint),
        "state_bytes": state_bytes,
        "rss": held.now,
        "peak_rss": held.peak,
    }
    print(row, file=sys.stderr, flush=True)
    return row


def costs(rows: Sequence[dict[str, Figure]]) -> dict[str, Figure]:
    """Processor time of a job and of what it works on: least squares over the rows, each by its share; none below 0."""
    names = ["spans", "batches", "aggregates", "points", "jobs"]
    spent_s = np.array([float(row["cpu_s"]) for row in rows])
    counts = np.array([[float(row.get(name, 1)) for name in names] for row in rows]) / spent_s[:, None]
    while (found := np.linalg.lstsq(counts, np.ones(len(rows)), rcond=None)[0]).min() < 0:
        least = int(found.argmin())
        counts = np.delete(counts, least, axis=1)
        del names[least]
    return {f"{name}_core_us": float(each) * 1e6 for name, each in zip(names, found, strict=True)}


def main() -> None:
    """All rows, three tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--spans", type=int, default=_SPANS, metavar="N", help=f"of a usual row (default {_SPANS:,})")
    options = parser.parse_args()
    rows: list[dict[str, Figure]] = []
    with (
        tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name,
        Kafka(Path(name) / "kafka") as kafka,
        Flink(Path(name) / "flink", venv=VENV, slots=2, settings=SETTINGS) as flink,
    ):
        measure(kafka, flink, "warm", _WARM, options.spans)
        for at, case in enumerate(CASES):
            rows.append(measure(kafka, flink, f"row{at}", case, options.spans))
    for one, value in (made := costs(rows)).items():
        print(f"{one}: {value:,.3g}")
    for varies in dict.fromkeys(row["varies"] for row in rows):
        show(f"Metrics job by {varies}: 2 subtasks, all on 2 cores", [row for row in rows if row["varies"] == varies])
    if options.json:
        title = "How the metrics job's cost grows"
        options.json.write_text(json.dumps({"title": title, "rows": rows, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()

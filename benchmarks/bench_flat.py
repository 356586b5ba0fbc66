"""Whether the metrics job stays flat over 100 M spans: memory and state, on a real Flink and Kafka.

    python benchmarks/bench_flat.py [--json FILE] [--spans N]

The recorded serving run over and over, by 16 processes with a GPU each, sent while the job runs and never more than
8 M spans ahead of it; times, rows and sequences go on, so windows close as they would (it needs `make
flink-venv`). Two subtasks, thread mode. Every 10 M spans a row: resident memory of the TaskManager, the Java heap in
use (the least that was seen since the row before; garbage counts until Java collects it), the state in a checkpoint
taken then.

Flat means: what the job holds depends on how many series, producers and open windows there are, and not on how many
spans have passed. State then only follows the last windows that are open at that moment, and the numbers in points,
which are longer the larger they are; memory moves within what the allocators keep back. Java's heap is in memory from
the start, so what grows is Python's, or what Java has outside. Growth is told from a fifth of the spans (20 M) to the
end. What is asserted is that the newest points tell of every span.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

from benchmarks._flink import SETTINGS, MetricsJob, make_topics  # noqa: E402 - run as a script
from benchmarks._loads import Message, Sent, cut, repeated, send, whole_run  # noqa: E402
from benchmarks._process import memory  # noqa: E402
from benchmarks._table import Figure, show  # noqa: E402
from spanlite.agent.batcher import BATCH_ROWS  # noqa: E402
from spanlite.runtime.clock import SystemClock  # noqa: E402
from tests.stack.cluster import VENV  # noqa: E402
from tests.stack.flink import Flink  # noqa: E402
from tests.stack.kafka import Kafka  # noqa: E402

_SPANS = 100_000_000
_ROWS, _FIFTH = 10, 1
_PRODUCERS = 16
_LEAD = 8_000_000 // BATCH_ROWS
_LOOK_S = 0.5
_STUCK_S = 120.0
_PREFIX = "flat"


def drive(kafka: Kafka, job: MetricsJob, spans: int) -> tuple[Sent, list[dict[str, Figure]]]:
    """Sends while the job reads, until so many spans have been sent and read; a row for each tenth."""
    messages: Iterator[Message] = repeated(cut(whole_run(), BATCH_ROWS), count(), _PRODUCERS)
    sent = Sent()
    rows: list[dict[str, Figure]] = []
    least_heap, step = job.heap(), spans / _ROWS
    clock, done = SystemClock(), False
    while not done:
        sample = job.look()
        recent = [one for one in job.samples if one.at_s > sample.at_s - _STUCK_S]
        assert len(recent) == len(job.samples) or sample.records > recent[0].records, (
            f"nothing was read for {_STUCK_S:g} s after {sample.records} of {sent.batches} batches"
        )
        lead = _LEAD - (sent.batches - sample.records)
        if sent.rows < spans and lead >= _LEAD // 4:
            more = min(lead, -(-(spans - sent.rows) // BATCH_ROWS))
            sent = send(kafka.bootstrap, f"{_PREFIX}.spans", islice(messages, more), sent)
        least_heap = min(least_heap, job.heap())
        read = sample.records * sent.rows / sent.batches
        done = sent.rows >= spans and sample.records >= sent.batches
        if done or read >= step * (1 + len(rows)):
            rows.append(_row(job, read, least_heap))
            least_heap = job.heap()
        clock.sleep_s(_LOOK_S)
    return sent, rows


def _row(job: MetricsJob, spans: float, heap: int) -> dict[str, Figure]:
    held, now = memory(job.pid), job.samples[-1]
    row: dict[str, Figure] = {
        "M_spans": spans / 1e6,
        "at_s": now.at_s - next(sample.at_s for sample in job.samples if sample.records),
        "cpu_s": now.cpu_s,
        "rss": held.now,
        "peak_rss": held.peak,
        "heap_least": heap,
        "state_bytes": job.state_size(job.checkpoint()),
    }
    print(row, file=sys.stderr, flush=True)
    return row


def growth(rows: list[dict[str, Figure]], column: str) -> float:
    """Share by which a column is greater at the end than at a fifth."""
    return float(rows[-1][column]) / float(rows[_FIFTH][column]) - 1


def main() -> None:
    """One job, and a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--spans", type=int, default=_SPANS, metavar="N", help=f"to send (default {_SPANS:,})")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name,
        Kafka(Path(name) / "kafka") as kafka,
        Flink(Path(name) / "flink", venv=VENV, slots=2, settings=SETTINGS) as flink,
    ):
        make_topics(kafka, _PREFIX)
        job = MetricsJob(kafka, flink, _PREFIX)
        sent, rows = drive(kafka, job, options.spans)
        left = job.drain()
        told = job.check(sent.work)
    title = f"Metrics job over {sent.rows:,} spans: {told.series} series, {told.points:,} points, each span counted"
    show(title, rows)
    figures = {f"{name}_growth": growth(rows, name) for name in ("rss", "state_bytes")}
    for name, share in figures.items():
        print(f"{name}: {share:+.1%} from {rows[_FIFTH]['M_spans']:.0f} M to {rows[-1]['M_spans']:.0f} M spans")
    print(f"state left when all windows are closed: {left:,} B")
    if options.json:
        figures |= {
            "spans": sent.rows,
            "series": told.series,
            "points": told.points,
            "late": told.late,
            "state_bytes_left": left,
        }
        options.json.write_text(json.dumps({"title": title, "rows": rows, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()

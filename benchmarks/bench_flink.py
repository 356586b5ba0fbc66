"""Spans a second through the jobs on a real Flink, from a topic that is full, with broker and Flink on this machine.

    python benchmarks/bench_flink.py [--json FILE]

Fills a topic of 4 partitions with a recorded serving run, again and again, by 16 processes with a GPU each (118 M;
it needs `make flink-venv`). Each job reads it from the beginning with two subtasks and ends at its end: in thread mode
in two TaskManagers of one slot, since all Python in a process shares one interpreter lock, in process mode in one of
two slots. `spans_per_s` is the slope between a tenth and nine tenths of the batches as the first operator reads them,
which in process mode is ahead of what Python has worked off; `to_the_end_per_s` is all spans over the time from the
first batch read to the job's end, all results written; `first_result_s` the time from submission, JVM and Python
starting included, to the first point or file. `peer` is a job that reads one span a record and does no more than count
it by kernel and bucket; `minimal` reads the same spans as bare columns and does no more than that (_minimal_job.py).
`control` is decoding and folding alone, in this process and on one core, just before: what the machine could do at that
moment. Every result is checked: no figure comes of a run that lost a span.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

import zstandard  # noqa: E402
from confluent_kafka import Producer  # noqa: E402

from benchmarks._flink import (  # noqa: E402 - run as a script, its folder is the path
    FOLD,
    JOBS,
    SETTINGS,
    SUBTASKS,
    Sample,
    records_read,
    steady,
)
from benchmarks._loads import Sent, cut, repeated, send, whole_run  # noqa: E402
from benchmarks._table import Figure, best_s, json_path, show  # noqa: E402
from spanlite.agent.batcher import BATCH_ROWS  # noqa: E402
from spanlite.contract.codec import decode_batch  # noqa: E402
from spanlite.pipeline.fold import fold_batch  # noqa: E402
from spanlite.pipeline.series import SeriesRegistry  # noqa: E402
from tests.stack import load  # noqa: E402
from tests.stack.checker import archived_rows, ends, newest_points  # noqa: E402
from tests.stack.cluster import VENV, spanlite  # noqa: E402
from tests.stack.flink import Flink  # noqa: E402
from tests.stack.kafka import Kafka  # noqa: E402

_PRODUCERS, _COPIES = 16, 120
_PEER_SPANS = 500_000
_EVERY_S = 1.0


class Cluster(NamedTuple):
    """Where jobs run, the execution mode, and a folder for what they write."""

    flink: Flink
    kafka: Kafka
    mode: str
    folder: Path


def fill_minimal(kafka: Kafka) -> int:
    """As many spans as `fill` sends, as bare columns of 8,192; how many values."""
    compressor = zstandard.ZstdCompressor(level=3)
    values = [
        compressor.compress(batch.columns.duration_ns.tobytes() + batch.columns.config.astype("<u2").tobytes())
        for batch in load.recorded(8192)
    ]
    pairs = [(b"%d" % number, value) for number in range(_PRODUCERS) for value in values]
    for _ in range(_COPIES):
        load.send(kafka.bootstrap, "minimal.spans", pairs)
    return _COPIES * len(pairs)


def fill_peer(kafka: Kafka) -> None:
    """The same spans, one a record, in a topic of their own."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    done = 0
    while done < _PEER_SPANS:
        for batch in load.recorded():
            columns = batch.columns
            columns_of = (columns.config.tolist(), columns.start_ns.tolist(), columns.duration_ns.tolist())
            for config, start, duration in zip(*columns_of, strict=True):
                value = config.to_bytes(4, "little") + start.to_bytes(8, "little") + duration.to_bytes(8, "little")
                producer.produce("peer.spans", value, partition=done % 4)
                done += 1
                if done % 10_000 == 0:
                    producer.poll(0)
                    while len(producer) > 400_000:
                        producer.poll(0.05)
                if done == _PEER_SPANS:
                    break
            if done == _PEER_SPANS:
                break
    assert producer.flush(120) == 0


def run(flink: Flink, job: Path, vertex: str, records: int, first: Callable[[], bool], *words: str) -> dict[str, float]:
    """Runs a bounded job to its end: the rates of the columns `spans_per_s` and `to_the_end_per_s`, and seconds."""
    began = time.perf_counter()
    job_id = flink.submit(job, *words, parallelism=SUBTASKS)
    samples: list[Sample] = []
    first_s = 0.0
    while (state := flink.job_state(job_id)) != "FINISHED":
        assert state not in {"FAILED", "CANCELED", "RESTARTING", "FAILING"}, flink.rest.exceptions(job_id)
        done = records_read(flink.rest.ask("GET", f"/jobs/{job_id}"), vertex)
        samples.append(Sample(time.perf_counter(), done))
        if not first_s and first():
            first_s = time.perf_counter() - began
        time.sleep(_EVERY_S)
    end = time.perf_counter()
    read_from = next(before for before, after in pairwise(samples) if after.records)
    return {
        "records_per_s": steady(samples, records)[0],
        "to_the_end_per_s": records / (end - read_from.at_s),
        "first_result_s": first_s or end - began,
        "total_s": end - began,
    }


def main(path: Path | None) -> None:
    """All jobs in both modes."""
    rows: list[dict[str, Figure]] = []
    with tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name:
        folder = Path(name)
        with Kafka(folder / "kafka") as kafka:
            spanlite("topics", "create", "--bootstrap", kafka.bootstrap)
            spanlite("topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", "peer")
            spanlite("topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", "minimal")
            spans = cut(whole_run(), BATCH_ROWS)
            sent = send(kafka.bootstrap, "spanlite.spans", repeated(spans, range(_COPIES), _PRODUCERS))
            print(f"{sent.batches:,} batches, {sent.rows:,} spans", file=sys.stderr)
            minimal = fill_minimal(kafka)
            fill_peer(kafka)
            for mode in ("thread", "process"):
                slots, taskmanagers = (1, 2) if mode == "thread" else (2, 1)
                settings = {
                    **SETTINGS,
                    # Asking for metrics often, and compiling what answers, took a third of the machine.
                    "metrics.fetcher.update-interval": "1000",
                    "env.java.opts.jobmanager": "-XX:TieredStopAtLevel=1",
                    "taskmanager.memory.process.size": "2g" if mode == "thread" else "3g",
                    # What Java does here is to pass bytes on: compiling it well takes longer than the whole run.
                    "env.java.opts.taskmanager": "-XX:TieredStopAtLevel=1",
                }
                started = Flink(
                    folder / mode, venv=VENV, mode=mode, settings=settings, slots=slots, taskmanagers=taskmanagers
                )
                with started as flink:
                    rows += _mode(Cluster(flink, kafka, mode, folder), sent, minimal)
                    show("so far", rows)
    title = "Jobs on Flink: 2 subtasks, broker and Flink on the same 2 cores"
    show(title, rows)
    if path:
        path.write_text(json.dumps({"title": title, "rows": rows, **_figures(rows)}, indent=1) + "\n")


def _figures(rows: list[dict[str, Figure]]) -> dict[str, Figure]:
    """What `spanlite pipeline size --figures` reads."""
    by_job = {(row["job"], row["mode"]): row["spans_per_core_second"] for row in rows}
    return {
        "metrics_thread_spans_per_core_second": by_job["metrics", "thread"],
        "metrics_process_spans_per_core_second": by_job["metrics", "process"],
        "archive_spans_per_core_second": by_job["archive", "thread"],
    }


def _mode(cluster: Cluster, sent: Sent, minimal: int) -> list[dict[str, Figure]]:
    flink, kafka, mode, folder = cluster
    batches, all_rows, work = sent
    rows = [_control(mode)]
    common = ("--bootstrap", kafka.bootstrap, "--bounded")
    points = f"points-{mode}"
    spanlite("topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", points)
    made = run(
        flink,
        JOBS / "metrics.py",
        FOLD,
        batches,
        lambda: any(ends(kafka.bootstrap, f"{points}.points")),
        *(*common, "--group", f"bench-{mode}", "--points", f"{points}.points", "--epoch", "1"),
    )
    told = sum(point.spans for point in newest_points(kafka.bootstrap, f"{points}.points").values())
    assert told == work, f"the points tell of {told} of {work} spans"
    rows += [_row("metrics", mode, made, all_rows / batches)]
    archive = folder / f"archive-{mode}"
    made = run(
        flink,
        JOBS / "archive.py",
        "archive by producer",
        batches,
        lambda: archived_rows(archive) > 0,
        *(*common, "--group", f"bench-{mode}-archive", "--archive", str(archive)),
    )
    assert archived_rows(archive) == all_rows, f"{archived_rows(archive)} of {all_rows} rows are archived"
    rows.append(_row("archive", mode, made, all_rows / batches))
    made = run(
        flink,
        _ROOT / "benchmarks/_minimal_job.py",
        "fold",
        minimal,
        lambda: False,
        *(kafka.bootstrap, "minimal.spans", f"bench-{mode}-minimal"),
    )
    rows.append(_row("minimal", mode, made, all_rows / minimal))
    made = run(
        flink,
        _ROOT / "benchmarks/_peer_job.py",
        "",
        _PEER_SPANS,
        lambda: False,
        *(kafka.bootstrap, "peer.spans", f"bench-{mode}-peer"),
    )
    rows.append(_row("peer, one span a record", mode, made, 1))
    return rows


def _control(mode: str) -> dict[str, Figure]:
    """Decode and fold of the same batches without Flink."""
    values = [message.value for message in load.messages(1, 1, rows=BATCH_ROWS)]
    registry = SeriesRegistry()

    def once() -> None:
        for value in values:
            fold_batch(decode_batch(value), 10**10, registry)

    seconds = best_s(once)
    spans = sum(len(batch.columns) for batch in load.recorded(BATCH_ROWS))
    rate = len(values) / seconds
    made = {"records_per_s": rate, "to_the_end_per_s": rate, "first_result_s": 0.0, "total_s": seconds}
    row = _row("control, one core", mode, made, spans / len(values))
    return {**row, "spans_per_core_second": row["spans_per_s"]}


def _row(job: str, mode: str, made: dict[str, float], spans: float) -> dict[str, Figure]:
    row: dict[str, Figure] = {
        "job": job,
        "mode": mode,
        "spans_per_s": made["records_per_s"] * spans,
        "to_the_end_per_s": made["to_the_end_per_s"] * spans,
        "spans_per_core_second": made["to_the_end_per_s"] * spans / SUBTASKS,
        "records_per_s": made["records_per_s"],
        "first_result_s": made["first_result_s"],
        "total_s": made["total_s"],
    }
    print(row, file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    main(json_path(__doc__ or ""))

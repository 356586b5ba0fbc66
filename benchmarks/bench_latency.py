"""Kernel end to visible in a scrape, at 200,000 spans a second through broker, metrics job and exporter.

    python benchmarks/bench_latency.py [--json FILE]

Eight processes send a recorded serving run's batches as they would happen now, their starts drawn together so that each
makes 25,000 spans a second; a batch is sent when its last kernel has ended. The exporter is scraped every second. A
kernel is visible at the end of the first scrape whose launch counts add up to it and all that ended before it. The
windows are ten seconds wide, so the least that the newest kernel of a window must wait is its lateness, and the oldest
ten seconds more. Sending goes on for 15 s after the last kernel that is judged, so that its window closes as all do.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

import numpy as np  # noqa: E402
from confluent_kafka import Producer  # noqa: E402

from benchmarks._table import json_path, show  # noqa: E402 - run as a script, its folder is the path
from spanlite.contract.batch import Batch  # noqa: E402
from spanlite.contract.codec import encode_batch  # noqa: E402
from spanlite.contract.columns import Kind  # noqa: E402
from tests.stack import load  # noqa: E402
from tests.stack.cluster import VENV, Exporter, spanlite  # noqa: E402
from tests.stack.flink import Flink  # noqa: E402
from tests.stack.kafka import Kafka  # noqa: E402
from tests.stack.process import wait_until  # noqa: E402

_JOB = _ROOT / "pipeline/spanlite/pipeline/jobs/metrics.py"
_PROCESSES, _RATE, _SECONDS, _AFTER_S = 8, 25_000, 90, 15
_SEEN_S = 60.0


class Sender(threading.Thread):
    """One process: makes batches as time passes, and notes when its kernels have ended."""

    def __init__(self, number: int, bootstrap: str, begin_ns: int) -> None:
        super().__init__(daemon=True)
        self._number = number
        self._begin_ns = begin_ns
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "partitioner": "murmur2_random"})
        self.ended_ns: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
        self.sent = 0

    def run(self) -> None:
        at_ns, sequence = self._begin_ns, 0
        while at_ns < self._begin_ns + (_SECONDS + _AFTER_S) * 10**9:
            base = load.recorded()[sequence % len(load.recorded())]
            length_ns = len(base.columns) * 10**9 // _RATE
            batch = self._at(base, at_ns, length_ns, sequence)
            at_ns += length_ns
            last_ns = int(batch.end_ns.max())
            time.sleep(max(0.0, (last_ns - time.time_ns()) / 1e9))
            self._producer.produce("spanlite.spans", encode_batch(batch), key=str(self._number).encode())
            self._producer.poll(0)
            self.ended_ns.append(batch.end_ns[batch.columns.kind == Kind.KERNEL])
            self.sent += len(batch.columns)
            sequence += 1
        self._producer.flush(30)

    def _at(self, base: Batch, at_ns: int, length_ns: int, sequence: int) -> Batch:
        starts = base.columns.start_ns
        span_ns = max(int(starts.max() - starts.min()), 1)
        moved = at_ns + (starts - starts.min()) * length_ns // span_ns
        return replace(
            base,
            producer=self._number.to_bytes(16, "big"),
            session=self._number,
            sequence=sequence,
            gpus=tuple(replace(gpu, uuid=f"GPU-{self._number}") for gpu in base.gpus),
            columns=replace(base.columns, start_ns=moved),
        )


def launches(exporter: Exporter) -> float:
    """Kernel executions that a scrape tells of."""
    samples = exporter.scrape() or {}
    return sum(value for name, value in samples.items() if name.startswith("spanlite_kernel_launches_total"))


def main(path: Path | None) -> None:
    """One run."""
    with tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name:
        folder = Path(name)
        with Kafka(folder / "kafka") as kafka, Flink(folder / "flink", venv=VENV, slots=1) as flink:
            spanlite("topics", "create", "--bootstrap", kafka.bootstrap)
            job = flink.submit(_JOB, "--bootstrap", kafka.bootstrap, "--epoch", "1")
            assert wait_until(lambda: flink.checkpoints(job)["counts"]["completed"] > 0, 120)
            exporter = Exporter(kafka.bootstrap, "spanlite.points", folder / "exporter.log")
            exporter.start()
            begin_ns = time.time_ns() + 10**9
            senders = [Sender(number, kafka.bootstrap, begin_ns) for number in range(1, _PROCESSES + 1)]
            for sender in senders:
                sender.start()
            seen = _watch(exporter, senders)
            exporter.kill()
    ended = np.sort(np.concatenate([part for sender in senders for part in sender.ended_ns]))
    scraped_ns, counts = (np.array(column) for column in zip(*seen, strict=True))
    first = np.searchsorted(counts, np.arange(1, len(ended) + 1))
    assert first.max() < len(counts), f"{len(ended) - counts.max():.0f} kernels were never visible"
    delay_s = ((scraped_ns[first] - ended) / 1e9)[ended <= begin_ns + _SECONDS * 10**9]
    sent = sum(sender.sent for sender in senders)
    row = {
        "spans_per_s": sent / (_SECONDS + _AFTER_S),
        "p50_s": float(np.quantile(delay_s, 0.5)),
        "p99_s": float(np.quantile(delay_s, 0.99)),
        "max_s": float(delay_s.max()),
        "kernels": len(delay_s),
    }
    show("Kernel end to visible in a scrape; 10 s windows, 2 s lateness, scraped every second", [row], path)


def _watch(exporter: Exporter, senders: list[Sender]) -> list[tuple[int, float]]:
    """Scrapes once a second until all is visible: time and count of each scrape."""
    seen: list[tuple[int, float]] = []
    quiet_at = None
    while True:
        count = launches(exporter)
        if not seen or count > seen[-1][1]:
            seen.append((time.time_ns(), count))
        if not any(sender.is_alive() for sender in senders):
            quiet_at = quiet_at or time.monotonic()
            total = sum(len(part) for sender in senders for part in sender.ended_ns)
            if count >= total or time.monotonic() - quiet_at > _SEEN_S:
                return seen
        time.sleep(1)


if __name__ == "__main__":
    main(json_path(__doc__ or ""))

"""Jobs on a Flink cluster of the tests, measured from outside: what was read, kept in state, held in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._process import process_cpu_s
from tests.stack.checker import ends, newest_points
from tests.stack.cluster import spanlite
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka
from tests.stack.process import wait_until

JOBS = Path(__file__).parents[1] / "pipeline/spanlite/pipeline/jobs"
FOLD = "fold by producer"
"""Name of the metrics job's operator that reads each batch once."""
SETTINGS = {
    "metrics.fetcher.update-interval": "200",
    "execution.checkpointing.interval": "10 s",
    "taskmanager.memory.process.size": "3g",
    "env.java.opts.taskmanager": "-XX:+AlwaysPreTouch",
}
"""Java's heap is in memory from the start: what grows is something else."""
SUBTASKS = 2
_EVERY_S = 0.2
_READ_S, _CHECKPOINT_S, _METRIC_S = 900.0, 120.0, 30.0


class Sample(NamedTuple):
    """How far a job was at a moment.

    Attributes:
        at_s: of time.perf_counter.
        records: that its first operator had read.
        cpu_s: processor time that the TaskManager had taken.
    """

    at_s: float
    records: int
    cpu_s: float = 0.0


class Told(NamedTuple):
    """What a job has written: its series, all points of them, points of windows that had been closed before."""

    series: int
    points: int
    late: int


def records_read(job: Any, vertex: str) -> int:
    """Records that the first operator of this name has read; a source reads none by Flink's count."""
    fitting = [each for each in job["vertices"] if each["name"].startswith(vertex) and "Source" not in each["name"]]
    return max((int(each["metrics"]["read-records"]) for each in fitting), default=0)


def steady(samples: Sequence[Sample], records: int) -> tuple[float, float]:
    """Records a second, and records a second of processor time, between a tenth and nine tenths of all."""
    inner = [sample for sample in samples if records * 0.1 <= sample.records <= records * 0.9]
    assert len(inner) > 1, f"{records} records were read too fast to see their rate: take more"
    begin, end = inner[0], inner[-1]
    done, wall_s, used_s = end.records - begin.records, end.at_s - begin.at_s, end.cpu_s - begin.cpu_s
    return done / wall_s, done / used_s if used_s else 0.0


class MetricsJob:
    """An unbounded metrics job on the only TaskManager of a cluster, reading topics with a prefix of their own."""

    def __init__(self, kafka: Kafka, flink: Flink, prefix: str, *words: str) -> None:
        """Submits it."""
        self._kafka, self._flink = kafka, flink
        self._prefix = prefix
        self.pid = flink.taskmanagers[-1].pid
        self.samples: list[Sample] = []
        topics = [word for what in ("spans", "points", "late", "dead") for word in (f"--{what}", f"{prefix}.{what}")]
        words = ("--bootstrap", kafka.bootstrap, "--group", prefix, "--epoch", "1", *topics, *words)
        self._id = flink.submit(JOBS / "metrics.py", *words, parallelism=SUBTASKS)

    def look(self) -> Sample:
        """How far it is, kept in `samples`; fails when the job does."""
        job = self._flink.rest.ask("GET", f"/jobs/{self._id}")
        assert job["state"] not in {"FAILING", "FAILED", "RESTARTING"}, self._flink.rest.exceptions(self._id)
        self.samples.append(Sample(time.perf_counter(), records_read(job, FOLD), process_cpu_s(self.pid)))
        return self.samples[-1]

    def await_read(self, records: int) -> None:
        """Returns when all have been read."""
        assert wait_until(lambda: self.look().records >= records, _READ_S, every_s=_EVERY_S), (
            f"{self.samples[-1].records} of {records} records were read in {_READ_S:g} s"
        )

    def checkpoint(self) -> int:
        """Takes one now, of what has been read until now; its number."""
        rest, path = self._flink.rest, f"/jobs/{self._id}/checkpoints"
        trigger = rest.ask("POST", path, {"checkpointType": "FULL"})["request-id"]
        assert wait_until(lambda: rest.ask("GET", f"{path}/{trigger}")["status"]["id"] == "COMPLETED", _CHECKPOINT_S)
        operation = rest.ask("GET", f"{path}/{trigger}")["operation"]
        assert "checkpointId" in operation, operation
        return int(operation["checkpointId"])

    def state_size(self, checkpoint: int) -> int:
        """Bytes of state in one of the last checkpoints; Flink tells of them some seconds later."""
        sizes: dict[int, int] = {}

        def told() -> bool:
            history = self._flink.rest.checkpoints(self._id)["history"]
            sizes.update({one["id"]: one["state_size"] for one in history if one["status"] == "COMPLETED"})
            return checkpoint in sizes

        assert wait_until(told, _METRIC_S, every_s=_EVERY_S), f"Flink tells of no checkpoint {checkpoint}: {sizes}"
        return sizes[checkpoint]

    def heap(self) -> int:
        """Bytes in use in the TaskManager's Java heap, garbage included."""
        path = f"/taskmanagers/{self._flink.taskmanagers[-1].log.stem}/metrics?get=Status.JVM.Memory.Heap.Used"
        assert wait_until(lambda: self._flink.rest.ask("GET", path), _METRIC_S), "the TaskManager tells of no heap"
        return int(self._flink.rest.ask("GET", path)[0]["value"])

    def drain(self) -> int:
        """Ends it with all windows closed and told; bytes of the savepoint that it leaves behind."""
        savepoint = self._flink.stop(self._id, drain=True)
        return sum(file.stat().st_size for file in savepoint.rglob("*") if file.is_file())

    def check(self, work: int) -> Told:
        """Fails unless the newest points tell of all GPU work."""
        newest = newest_points(self._kafka.bootstrap, f"{self._prefix}.points")
        found = sum(point.spans for point in newest.values())
        assert found == work, f"the points tell of {found} of {work} spans"
        points, late, dead = (self._written(what) for what in ("points", "late", "dead"))
        assert dead == 0, f"{dead} batches were told to be none"
        return Told(len(newest), points, late)

    def _written(self, what: str) -> int:
        return sum(ends(self._kafka.bootstrap, f"{self._prefix}.{what}"))


def make_topics(kafka: Kafka, prefix: str, partitions: int = 4) -> None:
    """Topics of spans, points, late and dead."""
    spanlite("topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", prefix, "--partitions", str(partitions))

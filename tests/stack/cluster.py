"""spanlite on a real cluster: topics, both jobs and an exporter, each started by its own command."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from spanlite.runtime.clock import SystemClock
from tests.stack.checker import archived_rows, newest_points, read_topic
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka
from tests.stack.process import Process, free_port, wait_until

VENV = Path(__file__).parents[2] / "build/venv-flink"
QUICK = ("--window", "1s", "--lateness", "500ms", "--idle", "3s", "--emit", "500ms", "--flush", "4s")
"""Windows that close soon after the load ends."""
_DONE_S = 600.0


def spanlite(*words: str) -> str:
    """Runs a command of spanlite; its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "spanlite", *words], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"spanlite {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


class Cluster:
    """Topics with a prefix of their own on a broker, and jobs on a Flink cluster."""

    def __init__(self, kafka: Kafka, flink: Flink, folder: Path, prefix: str) -> None:
        self.kafka = kafka
        self.flink = flink
        self.prefix = prefix
        self.archive = folder / prefix / "archive"
        self._folder = folder / prefix
        self._folder.mkdir(parents=True)
        spanlite("topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", prefix)

    def topic(self, what: str) -> str:
        """Name of the topic of spans, points, late or dead."""
        return f"{self.prefix}.{what}"

    def submit(self, job: str, *more: str) -> str:
        """Starts a job; its id."""
        words = ["pipeline", "submit", "--job", job, "--bootstrap", self.kafka.bootstrap, "--prefix", self.prefix]
        words += ["--flink-python", str(VENV / "bin/python"), "--flink-conf", str(self.flink.folder / "conf"), *QUICK]
        words += ["--archive", str(self.archive)] if job == "archive" else []
        return spanlite(*words, "--job-name", f"{self.prefix} {job}", *more).strip()

    def job_arguments(self) -> list[str]:
        """What the metrics job is told by `spanlite pipeline submit`, for a job file of a test's own."""
        words = ["--bootstrap", self.kafka.bootstrap, "--epoch", str(2**62), "--group", f"{self.prefix}-metrics"]
        for what in ("spans", "points", "late", "dead"):
            words += [f"--{what}", self.topic(what)]
        return [*words, *QUICK[: QUICK.index("--flush")]]

    def exporter(self) -> Exporter:
        """Starts an exporter of the points."""
        return Exporter(self.kafka.bootstrap, self.topic("points"), self._folder / "exporter.log")

    def await_points(self, spans: int) -> None:
        """Returns when the points tell of so many spans; fails when they do not in time."""

        def told() -> int:
            return sum(point.spans for point in newest_points(self.kafka.bootstrap, self.topic("points")).values())

        assert wait_until(lambda: told() >= spans, _DONE_S, every_s=1), f"{told()} of {spans} spans are told"

    def await_archive(self, rows: int) -> None:
        """Returns when the archive holds so many rows; fails when it does not in time."""
        assert wait_until(lambda: archived_rows(self.archive) >= rows, _DONE_S, every_s=1), (
            f"{archived_rows(self.archive)} of {rows} rows are archived"
        )

    def dead(self) -> set[bytes]:
        """Messages that were told to be no batch."""
        return {value or b"" for _, value in read_topic(self.kafka.bootstrap, self.topic("dead"))}


class Exporter:
    """An exporter process, and a watch that scrapes it: counters must never fall, over its restarts too."""

    def __init__(self, bootstrap: str, topic: str, log: Path) -> None:
        self._words = [sys.executable, "-m", "spanlite", "exporter", "--bootstrap", bootstrap]
        self._words += ["--topic", topic, "--port"]
        self.port = free_port()
        self._log = log
        self.fallen: list[str] = []
        self.scrapes = 0
        self._newest: dict[str, float] = {}
        self._ended = threading.Event()
        self._process: Process | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Exporter:
        self.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._process:
            self._process.stop()

    def start(self) -> None:
        """Starts the process; returns at once."""
        self._process = Process("exporter", [*self._words, str(self.port)], self._log)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process
        self._process.kill()

    def scrape(self) -> dict[str, float] | None:
        """Samples of the metrics about GPU work by name and labels; None while it does not serve."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if answer.status != 200:
            return None
        return {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in text_string_to_metric_families(text)
            if family.type in ("counter", "histogram") and not re.match("spanlite_(exporter|agent)", family.name)
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    def _watch(self) -> None:
        while not self._ended.is_set():
            for name, value in (self.scrape() or {}).items():
                if value < self._newest.get(name, 0):
                    self.fallen.append(f"{name}: {self._newest[name]} -> {value}")
                self._newest[name] = value
                self.scrapes += 1
            self._ended.wait(0.3)


def wait_s(seconds: float) -> None:
    """Lets a load run on; what is waited for cannot be seen from here."""
    SystemClock().sleep_s(seconds)


def pairs(messages: Sequence[object]) -> list[tuple[bytes, bytes]]:
    """Keys and values of messages, to send."""
    return [(message.key, message.value) for message in messages]  # type: ignore[attr-defined]

"""The recorded serving run through the local cluster: `python -m tests.stack.demo`, for `make demo-cluster`.

Every step is a command of spanlite, printed as it is run: topics, two Flink jobs, exporter, agent, and the recording
played into the agent as fast as it was. Then Prometheus and the archive are asked the same question.
"""

# ruff: noqa: T201  # a command prints

from __future__ import annotations

import argparse
import http.client
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

from spanlite.cli.commands.demo import RECORDING
from spanlite.contract.errors import SpanliteError
from spanlite.runtime.clock import SystemClock
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.kafka_settings import KafkaSettings
from spanlite.transport.topics import Difference
from tests.stack import daemons
from tests.stack.answers import archive_answer, archived_kernels, archived_spans, counted_kernels, prometheus_answer
from tests.stack.flink_rest import FlinkRest
from tests.stack.jars import ROOT, STACK
from tests.stack.process import Process, StackError, free_port, wait_until

_RUN = STACK / "run"
_PYTHON = ROOT / "build/venv-flink/bin/python"
_EXPORTER_PORT = 9464
"""Where the stack's Prometheus looks."""
_WINDOWS = ("--window", "1s", "--lateness", "500ms", "--idle", "3s", "--emit", "500ms")
_FLUSH = ("--flush", "4s")
_JOBS = 2
_START_S = 120.0
_DONE_S = 180.0
_STEPS = 7


class _Stack(NamedTuple):
    """Where the servers of `make stack` are."""

    kafka: str
    flink: FlinkRest
    flink_url: str
    prometheus: str


class Demo:
    """One run, with topics and a folder of its own; what it has started ends with it."""

    def __init__(self, stack: _Stack, scope: ExitStack, recording: Path) -> None:
        self._stack = stack
        self._scope = scope
        self._recording = recording
        self._name = f"demo-{SystemClock().unix_ns() // 10**9}"
        self._folder = _RUN / self._name
        self._jobs: dict[str, str] = {}
        self._step = 0
        self.archive = self._folder / "archive"
        # A socket's path has room for 107 bytes, which a deep checkout would use up.
        self._socket = Path(scope.enter_context(tempfile.TemporaryDirectory(prefix="spanlite-"))) / "agent.sock"
        self._agent_port = free_port()

    def play(self) -> int:
        """From topics to the end of the recording; the number of spans that the agent has delivered."""
        kafka = ("--bootstrap", self._stack.kafka)
        self._command("topics", "create", *kafka, "--prefix", self._name)
        self._keep_for_ever("spans", "late")
        flink = ("--flink-python", str(_PYTHON), "--flink-conf", str(_RUN / "flink/conf"))
        self._submit("metrics", *kafka, "--prefix", self._name, *flink, *_WINDOWS)
        self._submit("archive", *kafka, "--prefix", self._name, *flink, *_FLUSH, "--archive", str(self.archive))
        exporter = self._server("exporter", *kafka, "--topic", f"{self._name}.points", "--port", str(_EXPORTER_PORT))
        exporter.await_ready(lambda: _get(_EXPORTER_PORT, "/-/ready") is not None, _START_S)
        spool = ("--spool", str(self._folder / "spool"))
        words = ("--socket", str(self._socket), *spool, *kafka, "--topic", f"{self._name}.spans")
        agent = self._server("agent", *words, "--metrics-port", str(self._agent_port))
        agent.await_ready(self._socket.exists, _START_S)
        self._command("feed", str(self._recording), "--socket", str(self._socket), "--speed", "1")
        self._until(lambda: self._agent("spool_spans") == 0, "the agent to deliver what it has taken")
        return self._agent("spans_sent_total")

    def await_results(self, spans: int) -> None:
        """Returns when every span is in the archive and every kernel in Prometheus.

        Raises:
            StackError: a job has failed, or it takes too long.
        """
        self._tell(f"waiting until all {spans:,} spans are in the archive and their kernels in Prometheus")
        self._until(lambda: archived_spans(self.archive) >= spans, f"the archive to hold {spans:,} spans")
        kernels = archived_kernels(self.archive)
        told = f"Prometheus to count {kernels:,} kernels"
        self._until(lambda: counted_kernels(self._stack.prometheus) >= kernels, told)

    def show(self, spans: int) -> None:
        """Tables and addresses, on standard output."""
        kernels, dropped = archived_kernels(self.archive), self._agent("spans_dropped_total")
        print(f"\n{spans:,} spans delivered by the agent, {dropped} dropped; {archived_spans(self.archive):,} archived")
        print(f"{kernels:,} kernels in the archive, {counted_kernels(self._stack.prometheus):,} in Prometheus\n")
        print(prometheus_answer(self._stack.prometheus))
        print(archive_answer(self.archive))
        print(f"archive     {self.archive}")
        print(f"exporter    http://127.0.0.1:{_EXPORTER_PORT}/metrics")
        print(f"agent       http://127.0.0.1:{self._agent_port}/metrics")
        print(f"Prometheus  {self._stack.prometheus}")
        for name, job in self._jobs.items():
            print(f"Flink       {self._stack.flink_url}/#/job/running/{job}/overview   ({name})")
        print(f"Kafka       {self._stack.kafka}, topics {self._name}.*", flush=True)

    def _submit(self, job: str, *words: str) -> None:
        named = ("--job-name", f"{self._name} {job}")
        self._jobs[job] = found = self._command("pipeline", "submit", "--job", job, *words, *named).strip()
        self._scope.callback(self._cancel, found)

    def _cancel(self, job: str) -> None:
        with suppress(OSError, http.client.HTTPException):  # the stack was stopped before
            if self._stack.flink.job_state(job) == "RUNNING":
                self._stack.flink.cancel(job, 60)

    def _server(self, command: str, *words: str) -> Process:
        """A command that runs on until the demo ends."""
        self._tell(shlex.join(["spanlite", command, *words]))
        process = Process(command, [sys.executable, "-m", "spanlite", command, *words], self._folder / f"{command}.log")
        self._scope.callback(process.stop)
        return process

    def _command(self, *words: str) -> str:
        """A command that ends; its standard output."""
        self._tell(shlex.join(["spanlite", *words]))
        command = [sys.executable, "-m", "spanlite", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"spanlite {words[0]} has failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _keep_for_ever(self, *topics: str) -> None:
        """Kafka deletes by the records' times, and a recording's may be older than the topics keep."""
        admin = KafkaAdmin(KafkaSettings(self._stack.kafka))
        for topic in topics:
            admin.alter(Difference(f"{self._name}.{topic}", "retention.ms", "", "-1"))

    def _agent(self, metric: str) -> int:
        """The agent's own count, over all labels."""
        text = _get(self._agent_port, "/metrics")
        if text is None:
            raise StackError(f"the agent does not answer; its log is {self._folder / 'agent.log'}")
        values = re.findall(rf"^spanlite_agent_{metric}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(round(float(value)) for value in values)

    def _until(self, condition: Callable[[], bool], told: str) -> None:
        if wait_until(condition, _DONE_S):
            return
        why = "".join(f"\n{name}: {self._stack.flink.exceptions(job)}" for name, job in self._jobs.items())
        raise StackError(
            f"waited {_DONE_S:g} s for {told}; the logs are in {self._folder} and {_RUN / 'flink/log'}{why}"
        )

    def _tell(self, text: str) -> None:
        self._step += 1
        print(f"[{self._step}/{_STEPS}] {text}", file=sys.stderr, flush=True)


@contextmanager
def playing(recording: Path = RECORDING) -> Iterator[Demo]:
    """A demo on the running stack; at the end its processes and jobs are stopped.

    Raises:
        StackError: the stack does not run, or has no room for two jobs.
    """
    stack = _found()
    with ExitStack() as scope:
        yield Demo(stack, scope, recording)


def main() -> None:
    """Exit code 1 with the reason on stderr, when a step has failed."""
    parser = argparse.ArgumentParser(prog="make demo-cluster", description=__doc__)
    parser.add_argument("--recording", type=Path, default=RECORDING, help="another one (X.bin.xz)")
    parser.add_argument("--once", action="store_true", help="end after the tables instead of at Ctrl-C")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell's background job ignores Ctrl-C
        signal.signal(number, signal.default_int_handler)
    try:
        with playing(args.recording) as demo:
            spans = demo.play()
            demo.await_results(spans)
            demo.show(spans)
            if not args.once:
                print("\nCtrl-C ends agent, exporter and jobs; make stack-down ends the rest", file=sys.stderr)
                Event().wait()
    except (StackError, SpanliteError) as failure:
        sys.exit(f"demo: {failure}")
    except KeyboardInterrupt:
        print("\ndemo: agent, exporter and jobs are stopped; make stack-down ends the rest", file=sys.stderr)


def _found() -> _Stack:
    ports = {daemon.part: daemon.port for daemon in daemons.load(_RUN / "daemons.json")}
    missing = [part for part in ("kafka", "flink", "prometheus") if part not in ports]
    if missing:
        raise StackError(f"{', '.join(missing)} does not run; start the stack first: make stack")
    url = f"http://127.0.0.1:{ports['flink']}"
    flink = FlinkRest(ports["flink"])
    free = flink.ask("GET", "/overview")["slots-available"]
    if free < _JOBS:
        raise StackError(f"flink has {free} free slots and the demo needs {_JOBS}; cancel jobs at {url}")
    return _Stack(f"127.0.0.1:{ports['kafka']}", flink, url, f"http://127.0.0.1:{ports['prometheus']}")


def _get(port: int, path: str) -> str | None:
    """What a server on loopback answers with 200; None otherwise."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return text if answer.status == 200 else None


if __name__ == "__main__":
    main()

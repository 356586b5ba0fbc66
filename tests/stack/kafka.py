"""A real Kafka broker: one node in KRaft mode on loopback, from the jars of pipeline/pom.xml."""

from __future__ import annotations

import base64
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.stack.jars import jars
from tests.stack.process import Process, StackError, free_port, require_port, require_program

_START_S = 90.0
_STARTED = "Kafka Server started"
_LOGGER = "-Dorg.slf4j.simpleLogger."
_JAVA = (
    f"{_LOGGER}showDateTime=true",
    f"{_LOGGER}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    f"{_LOGGER}showThreadName=false",
    f"{_LOGGER}log.org.apache.kafka.common.config.AbstractConfig=warn",
)
# Everything single, small and prompt; durations are Kafka's own where nothing is said.
_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:{controller_port}",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    ),
    "log.dirs": "{folder}/data",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",  # a broker that died may come back only after it
    "log.cleaner.dedupe.buffer.size": "16777216",
    # Retention goes by the records' own time: a recorded run, older than that by now, must not vanish under a test.
    "log.initial.task.delay.ms": "3600000",
    "log.retention.check.interval.ms": "86400000",
}


class Kafka:
    """A broker whose data, log and settings lie in `folder`.

    `port` 0 takes a free one at the first start and keeps it. `properties` win over the defaults; in their values
    `{port}`, `{controller_port}` and `{folder}` stand for this broker's. Who gives other `listeners` keeps a listener
    on `{port}`: `bootstrap` names that one. `format_arguments` are added where the empty data folder is made, for
    instance `--add-scram …`. `java` are further options of its JVM; `heap` stands before them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        lives_on: bool = False,
        format_arguments: Sequence[str] = (),
        java: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.log = folder / "kafka.log"
        self._port = port
        self._controller_port = 0
        self._properties = {**_DEFAULTS, **(properties or {})}
        self._heap = heap
        self._lives_on = lives_on
        self._format_arguments = tuple(format_arguments)
        self._java = tuple(java)
        self._process: Process | None = None

    @property
    def bootstrap(self) -> str:
        """`127.0.0.1:PORT`, the same over all restarts."""
        if self._port == 0:
            self._port = free_port()
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Starts it, on the data that are there, and returns when it answers; StackError says why it did not."""
        if self._process is not None and self._process.exit_code is None:
            raise StackError(f"kafka at {self.bootstrap} runs already")
        java = require_program("kafka", "java", "openjdk-17-jre-headless")
        require_port("kafka", int(self.bootstrap.rpartition(":")[2]), "stop what listens there or choose another port")
        if self._controller_port == 0:
            self._controller_port = free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "server.properties"
        settings.write_text(self._settings(), encoding="utf-8")
        class_path = ":".join(map(str, jars("kafka")))
        if not (self.folder / "data/meta.properties").exists():
            self._format(java, class_path, settings)
        options = [f"-Xmx{self._heap}", *_JAVA, *self._java]
        command = [java, *options, "-cp", class_path, "kafka.Kafka", str(settings)]
        process = Process(f"kafka at {self.bootstrap}", command, self.log, lives_on=self._lives_on)
        self._process = process
        process.await_ready(lambda: _STARTED in process.said() and self._answers(), _START_S)

    def kill(self) -> None:
        """As a crash: SIGKILL; returns when it is gone."""
        self._running().kill()

    def pause(self) -> None:
        """Stalls it: connections stay open and nobody answers."""
        self._running().pause()

    def resume(self) -> None:
        """Lets a stalled broker go on."""
        self._running().resume()

    def stop(self) -> None:
        """An orderly end, SIGKILL after 20 s; nothing when it does not run."""
        if self._process is not None and self._process.exit_code is None:
            self._process.stop()

    def __enter__(self) -> Kafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Process:
        if self._process is None or self._process.exit_code is not None:
            raise StackError(f"kafka at {self.bootstrap} does not run")
        return self._process

    def _settings(self) -> str:
        """The text of server.properties."""
        own = {"{port}": str(self._port), "{controller_port}": str(self._controller_port), "{folder}": str(self.folder)}
        lines = []
        for key, value in self._properties.items():
            text = value
            for name, meaning in own.items():
                text = text.replace(name, meaning)
            lines.append(f"{key}={text}".replace("\\", "\\\\").replace("\n", "\\n") + "\n")
        return "".join(lines)

    def _format(self, java: str, class_path: str, settings: Path) -> None:
        """Gives the empty data folder its identity."""
        # The A keeps it from beginning with a hyphen, which the tool would take for an option.
        identity = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        done = subprocess.run(
            [
                *(java, "-XX:TieredStopAtLevel=1", "-cp", class_path, "kafka.tools.StorageTool"),
                *("format", "--cluster-id", identity, "--config", str(settings)),
                *self._format_arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = "".join(f"\n  {line}" for line in done.stdout.splitlines()[-15:])
            raise StackError(f"kafka's storage in {self.folder} could not be formatted:{said}")

    def _answers(self) -> bool:
        """Whether the broker takes connections."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return True
        except OSError:
            return False

"""Agents and feeders as processes, and what arrived in the topic, read without spanlite's transport."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spanlite.agent.recording import Recording, read_recording
from spanlite.agent.server import SPANS_TOPIC
from spanlite.contract.batch import Batch, ClockAnchor
from spanlite.contract.codec import decode_batch, encode_batch
from tests.agent.playing import play

RECORDING = Path(__file__).parents[1] / "data" / "h200" / "serve-cupti130500.bin.xz"
WAIT_S = 60.0
"""Longest wait for what must come; reached only when a test fails."""
Key = tuple[bytes, int]


def until(met: Callable[[], bool], what: str) -> None:
    """Waits for a condition."""
    pause = threading.Event()
    for _ in range(round(WAIT_S / 0.05)):
        if met():
            return
        pause.wait(0.05)
    raise AssertionError(f"{what} did not happen within {WAIT_S:.0f} s")


class Agent:
    """`spanlite agent` as a process that listens."""

    def __init__(self, folder: Path, bootstrap: str, *words: str) -> None:
        self.socket = folder / "agent.sock"
        command = [sys.executable, "-m", "spanlite", "agent", "--socket", str(self.socket), "--bootstrap", bootstrap]
        command += ["--spool", str(folder / "spool"), "--metrics-port", "0", "-X", "message.timeout.ms=3000", *words]
        self._path = folder / "agent.log"
        self._log = self._path.open("ab")
        self._begin = self._log.tell()
        self.process = subprocess.Popen(command, stderr=self._log)
        until(lambda: "metrics: http" in self._said() or self.process.poll() is not None, "the agent's start")
        assert self.process.poll() is None, self._said()
        found = re.search(r"metrics: (http://127\.0\.0\.1:\S+)", self._said())
        assert found is not None
        self.url = found[1]

    def _said(self) -> str:
        return self._path.read_bytes()[self._begin :].decode()

    def metrics(self) -> Mapping[str, float]:
        """Samples by name, summed over their labels."""
        with urllib.request.urlopen(self.url, timeout=10) as answer:  # noqa: S310  # the address of this machine
            lines = answer.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            if not line.startswith("#"):
                name = re.split(r"[{ ]", line)[0].removeprefix("spanlite_agent_")
                found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        return found

    def adds_up(self) -> bool:
        """received + recovered = sent + dropped + spooled."""
        now = self.metrics()
        told = [now.get(f"spans_{name}_total", 0.0) for name in ("received", "recovered", "sent", "dropped")]
        return told[0] + told[1] == told[2] + told[3] + now["spool_spans"]

    def most_rss_mib(self) -> float:
        """The most memory it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    def end(self) -> tuple[int, str]:
        """SIGTERM: exit code and its last line."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        self._log.close()
        return code, self._said().splitlines()[-1]


def feeder(agent: Agent, repeat: int) -> subprocess.Popen[bytes]:
    """`spanlite feed` as a process."""
    words = ["feed", str(RECORDING), "--socket", str(agent.socket), "--repeat", str(repeat)]
    return subprocess.Popen([sys.executable, "-m", "spanlite", *words], stderr=subprocess.DEVNULL)


def feed(agent: Agent, repeat: int) -> None:
    """Feeds to the end."""
    with feeder(agent, repeat) as process:
        assert process.wait(WAIT_S) == 0


def content(batch: Batch) -> bytes:
    """What a batch says, without what differs from run to run: when it was sent, and who the feeder was."""
    identity = ("process.", "container.", "k8s.", "slurm.", "spanlite.identity")
    resource = {key: value for key, value in batch.resource.items() if not key.startswith(identity)}
    return encode_batch(replace(batch, emit_ns=0, resource=resource, clock=ClockAnchor()))


def played(folder: Path, repeat: int) -> Iterator[Batch]:
    """Batches of a run in one process, with no spool and no broker."""
    recording: Recording = read_recording(RECORDING)
    before, after = recording.unix_ns
    for turn in range(repeat):
        (folder / str(turn)).mkdir(parents=True)
        yield from play(replace(recording, unix_ns=(before + turn, after + turn)), folder / str(turn)).batches


def without_faults(folder: Path, repeat: int) -> dict[Key, bytes]:
    """What each of them says."""
    return {(one.producer, one.sequence): content(one) for one in played(folder, repeat)}


class Topic:
    """The agents' topic, from where it ends now."""

    def __init__(self, bootstrap: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        if SPANS_TOPIC not in admin.list_topics(timeout=WAIT_S).topics:
            admin.create_topics([NewTopic(SPANS_TOPIC, num_partitions=2)])[SPANS_TOPIC].result(WAIT_S)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "faults",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        consumer = Consumer(self._settings)
        self._begin = self._ends(consumer)
        consumer.close()

    @staticmethod
    def _ends(consumer: Consumer) -> list[TopicPartition]:
        found: list[TopicPartition] = []

        def answered() -> bool:
            """False while a partition that is new, or a broker that has come back, has no leader yet."""
            found.clear()
            try:
                for at in (0, 1):
                    _, end = consumer.get_watermark_offsets(TopicPartition(SPANS_TOPIC, at), timeout=5)
                    found.append(TopicPartition(SPANS_TOPIC, at, end))
            except KafkaException:
                return False
            return True

        until(answered, "an answer about the topic's end")
        return found

    def read(self) -> list[Batch]:
        """Everything since it was opened, duplicates too, in order within a partition."""
        consumer = Consumer(self._settings)
        ends = self._ends(consumer)
        consumer.assign(self._begin)
        missing = sum(end.offset - begin.offset for begin, end in zip(self._begin, ends, strict=True))
        values: list[bytes] = []
        while len(values) < missing:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            values.append(message.value() or b"")
        consumer.close()
        return [decode_batch(value) for value in values]


def check(found: list[Batch], expected: Mapping[Key, bytes]) -> int:
    """Each expected batch is there, none is another, none was altered; how many came more than once."""
    came = [((one.producer, one.sequence), content(one)) for one in found]
    assert set(dict(came)) == set(expected)
    assert [key for key, said in came if said != expected[key]] == []
    return len(came) - len(expected)

"""The broker that other tests rely on: it keeps its data over a crash, stalls when told, says why it cannot start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.stack.kafka import Kafka
from tests.stack.process import StackError, free_port, wait_until

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]


def running(pid: int) -> bool:
    """Whether the process is there and more than an unreaped entry."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def deliver(producer: Producer, topic: str, value: bytes) -> str | None:
    """Sends one value to its end: None, or the name of the error."""
    names: list[str | None] = []

    def reported(error: KafkaError | None, _: Message) -> None:
        names.append(None if error is None else error.name())

    producer.produce(topic, value, on_delivery=reported)
    assert producer.flush(20) == 0
    (name,) = names
    return name


def create(broker: Kafka, topic: str) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(20)


def produce(broker: Kafka, topic: str, *values: bytes) -> None:
    """Sends them and waits until the broker has all."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def consume(broker: Kafka, topic: str, count: int) -> list[bytes | None]:
    """The first `count` values of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest"}
    )
    taken: list[Message] = []

    def complete() -> bool:
        taken.extend(consumer.consume(count - len(taken), 0.2))
        return len(taken) == count

    try:
        consumer.subscribe([topic])
        assert wait_until(complete, 30)
    finally:
        consumer.close()
    assert [message.error() for message in taken] == [None] * count
    return [message.value() for message in taken]


def test_a_killed_broker_comes_back_with_its_data_on_its_port(tmp_path: Path) -> None:
    """SIGKILL would lose what was acknowledged, or the restart would be another broker."""
    with Kafka(tmp_path) as broker:
        bootstrap, pid = broker.bootstrap, broker.pid
        create(broker, "kept")
        produce(broker, "kept", b"before", b"the crash")
        broker.kill()
        with pytest.raises(StackError, match="does not run"):
            broker.kill()
        broker.start()
        assert (broker.bootstrap, broker.pid != pid) == (bootstrap, True)
        produce(broker, "kept", b"after")
        assert consume(broker, "kept", 3) == [b"before", b"the crash", b"after"]


def test_topics_are_made_on_purpose_only(kafka: Kafka) -> None:
    """A misspelt topic would come into being and swallow what is sent to it."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 2000})
    assert deliver(producer, "never-made", b"lost") in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_MSG_TIMED_OUT")
    assert "never-made" not in AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=20).topics


def test_a_stalled_broker_is_silent_and_then_goes_on(kafka: Kafka) -> None:
    """A test of a hanging broker would test a healthy one, or one that never recovers."""
    create(kafka, "stalled")
    kafka.pause()
    try:
        with pytest.raises(KafkaException, match="Failed to get metadata"):
            AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=1)
    finally:
        kafka.resume()
    produce(kafka, "stalled", b"afterwards")
    assert consume(kafka, "stalled", 1) == [b"afterwards"]


def test_properties_win_and_may_add_a_listener(tmp_path: Path) -> None:
    """A test with limits or listeners of its own would get the defaults."""
    second = free_port()
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{{port}},SECOND://127.0.0.1:{second},CONTROLLER://127.0.0.1:{{controller_port}}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        "message.max.bytes": "1000",
    }
    with Kafka(tmp_path, properties=properties) as broker:
        create(broker, "small")
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{second}"})
        results = [deliver(producer, "small", b"x" * size) for size in (500, 2000)]
    assert results == [None, "MSG_SIZE_TOO_LARGE"]


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    """The reason would have to be searched in the broker's log."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StackError) as failure:
            Kafka(tmp_path, port=port).start()
    said = f"kafka: port {port} on 127.0.0.1 is taken; stop what listens there or choose another port"
    assert str(failure.value) == said


def test_missing_java_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java would answer with a traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match=r"^kafka: java is not installed; on Debian: apt-get install .*openjdk"):
        Kafka(tmp_path).start()


def test_a_broker_that_ends_early_tells_why(tmp_path: Path) -> None:
    """A wrong setting would be a timeout without a reason."""
    broker = Kafka(tmp_path)
    broker.start()
    broker.stop()
    with pytest.raises(StackError, match=r"(?s)ended at its start with code 1.*num\.io\.threads"):
        Kafka(tmp_path, properties={"num.io.threads": "-1"}).start()


def test_it_dies_with_its_test_session(tmp_path: Path) -> None:
    """Brokers of interrupted test runs would pile up."""
    script = (
        "import sys; from pathlib import Path; from tests.stack.kafka import Kafka\n"
        "broker = Kafka(Path(sys.argv[1])); broker.start(); print(broker.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as session:
        assert session.stdout is not None
        pid = int(session.stdout.readline())
        os.kill(pid, 0)
        session.kill()
    assert wait_until(lambda: not running(pid), 10)

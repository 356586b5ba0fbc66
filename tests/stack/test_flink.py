"""The cluster that other tests rely on: jobs run on it, and survive the death of TaskManager and JobManager."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.stack.flink import Flink
from tests.stack.kafka import Kafka
from tests.stack.process import StackError, wait_until

pytestmark = [pytest.mark.flink, pytest.mark.soak]
VENV = Path(__file__).parents[2] / "build/venv-flink"
JOB = Path(__file__).with_name("copy_job.py")


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A cluster of one slot that remembers its jobs."""
    if not VENV.exists():
        pytest.skip("PyFlink is not installed: make flink-venv")
    settings = {"execution.checkpointing.interval": "1 s"}
    with Flink(tmp_path_factory.mktemp("flink"), venv=VENV, ha=True, settings=settings) as cluster:
        yield cluster


class Copied:
    """What the job has written, in the order it came: records of keys and values."""

    def __init__(self, broker: Kafka, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])
        self.records: list[tuple[bytes | None, bytes | None]] = []

    def has(self, record: tuple[bytes, bytes]) -> bool:
        """Waits until the record is there."""

        def there() -> bool:
            taken = self._consumer.consume(100, 0.2)
            assert [message.error() for message in taken if message.error() is not None] == []
            self.records += [(message.key(), message.value()) for message in taken]
            return record in self.records

        return wait_until(there, 120)

    def close(self) -> None:
        self._consumer.close()


def send(broker: Kafka, value: bytes) -> None:
    """One value for the job to copy."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("copy-in", value)
    assert producer.flush(30) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_survives_killed_servers_and_goes_on_from_its_savepoint(flink: Flink, kafka: Kafka) -> None:
    """Restart, recovery and upgrade, which the real jobs' tests rest on, would not work at all."""
    topics = [NewTopic("copy-in", num_partitions=1), NewTopic("copy-out", num_partitions=1)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for created in admin.create_topics(topics).values():
        created.result(30)
    arguments = (kafka.bootstrap, "copy-in", "copy-out")
    copied = Copied(kafka, "copy-out")
    try:
        send(kafka, b"1")
        job = flink.submit(JOB, *arguments)
        assert copied.has((b"1", b"spanlite.pipeline:1"))
        assert wait_until(lambda: flink.checkpoints(job)["counts"]["completed"] > 0, 60)

        flink.taskmanagers[0].kill()
        flink.add_taskmanager()
        send(kafka, b"2")
        assert copied.has((b"2", b"spanlite.pipeline:2"))

        flink.kill_jobmanager()
        flink.start_jobmanager()
        send(kafka, b"3")
        assert copied.has((b"3", b"spanlite.pipeline:3"))
        assert flink.job_state(job) == "RUNNING"
        assert (flink.newest_checkpoint(job) / "_metadata").is_file()

        savepoint = flink.stop(job)
        assert flink.job_state(job) == "FINISHED"
        before = len(copied.records)
        job = flink.submit(JOB, *arguments, savepoint=savepoint, parallelism=1)
        send(kafka, b"4")
        assert copied.has((b"4", b"spanlite.pipeline:4"))
        assert copied.records[before:] == [(b"4", b"spanlite.pipeline:4")]
        flink.cancel(job)
    finally:
        copied.close()


@pytest.mark.slow
def test_a_job_that_is_not_accepted_says_why(flink: Flink, tmp_path: Path) -> None:
    """The reason would have to be searched in the logs of client and JobManager."""
    job = tmp_path / "broken.py"
    job.write_text("import spanlite.no_such_module\n")
    with pytest.raises(StackError, match=r"(?s)^flink: broken.py was not accepted.*No module named 'spanlite.no_such"):
        flink.submit(job)


def test_a_missing_venv_says_how_to_make_it(tmp_path: Path) -> None:
    """A fresh clone would answer with a traceback."""
    with pytest.raises(StackError, match=r"no PyFlink in .*; run: make flink-venv"):
        Flink(tmp_path / "cluster", venv=tmp_path / "absent").start()

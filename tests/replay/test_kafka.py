"""Replays to a real broker: every batch stored, killed runs gone on with, topics of agents kept clear of."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from spanlite.contract.codec import decode_batch
from spanlite.runtime.clock import SystemClock
from spanlite.transport.kafka import KafkaSettings
from spanlite.transport.kafka_consumer import KafkaConsumer
from spanlite.transport.ports import Record
from tests.cli.process import refused, spanlite
from tests.replay.archives import edges, unstamped
from tests.replay.test_kills import kill_in_the_middle
from tests.stack.kafka import Kafka

pytestmark = pytest.mark.kafka
CLOCK = SystemClock()


def read_topic(kafka: Kafka, topic: str, least: int) -> list[Record]:
    """All records of a topic, at least so many."""
    records: list[Record] = []
    deadline_ns = CLOCK.monotonic_ns() + 60 * 10**9
    with KafkaConsumer(KafkaSettings(kafka.bootstrap), topic) as consumer:
        while CLOCK.monotonic_ns() < deadline_ns:
            came = consumer.poll(10_000, 1.0)
            records += came
            if not came and len(records) >= least:
                break
    return records


def test_every_batch_is_stored_once_under_the_key_of_its_agent(
    kafka: Kafka, small_archive: Path, small: list[object], tmp_path: Path
) -> None:
    """The topic holds each batch once, stamped with the run; batches of one host and GPU share a key."""
    manifest = tmp_path / "m.json"
    words: list[str | Path] = ["replay", "run", small_archive, "--to", "kafka", "--bootstrap", kafka.bootstrap]
    missing = spanlite(*words, "--run", "once")
    refused(missing, "spanlite.replay.once", "--create-topic")
    done = spanlite(*words, "--run", "once", "--create-topic", "--manifest", manifest)
    assert done.returncode == 0, done.stderr
    facts = json.loads(manifest.read_text())
    records = read_topic(kafka, "spanlite.replay.once", facts["emitted"]["batches"])
    batches = [decode_batch(record.value) for record in records]
    assert len(batches) == facts["emitted"]["batches"]
    assert {batch.resource["spanlite.replay.run"] for batch in batches} == {"once"}
    assert edges([unstamped(batch) for batch in batches]) == edges(small)  # type: ignore[arg-type]  # batches
    keys = {
        (record.key, batch.resource["host.name"], batch.gpus[0].uuid)
        for record, batch in zip(records, batches, strict=True)
    }
    assert [key.decode() for key, *_ in keys] == [f"{host}/{gpu}" for _, host, gpu in keys]


def test_a_killed_replay_loses_nothing(kafka: Kafka, small_archive: Path, tmp_path: Path) -> None:
    """Killed and gone on with, each batch is there, and twice at most those that were on their way."""
    in_flight, kept = 4, tmp_path / "kept.json"
    words = ["replay", "run", str(small_archive), "--to", "kafka", "--bootstrap", kafka.bootstrap, "--create-topic"]
    words += ["--run", "killed", "--checkpoint", str(kept), "--checkpoint-every", "1ms", "--resume"]
    words += ["--in-flight", str(in_flight), "--manifest", str(tmp_path / "m.json")]
    for after_s in (1.6, 1.9, 2.2):
        kill_in_the_middle([*words, "--qps", "20"], after_s)
    done = spanlite(*words)
    assert done.returncode == 0, done.stderr
    emitted = json.loads((tmp_path / "m.json").read_text())["emitted"]
    straight = spanlite("replay", "run", small_archive, "--to", "file", "-o", tmp_path / "f", "--run", "killed")
    assert straight.returncode == 0
    assert json.loads((tmp_path / "f.json").read_text())["emitted"] == emitted
    records = read_topic(kafka, "spanlite.replay.killed", emitted["batches"])
    times = Counter(record.value for record in records)
    assert len(times) == emitted["batches"]
    assert times.total() - len(times) <= 3 * in_flight


def test_a_broker_that_is_away_is_told_in_one_line(small_archive: Path) -> None:
    """No broker: exit code 1, one line that says so, nothing sent."""
    done = spanlite("replay", "run", small_archive, "--to", "kafka", "--bootstrap", "127.0.0.1:1")
    refused(done, "127.0.0.1:1")
    assert done.returncode == 1

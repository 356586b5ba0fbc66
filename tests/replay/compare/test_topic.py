"""Comparisons with what is in a topic of a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spanlite.transport.kafka import KafkaSettings
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.kafka_producer import KafkaProducer
from spanlite.transport.topics import SPANS, Topic
from tests.cli.process import refused, spanlite
from tests.stack.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_a_topic_is_compared_with_its_original(kafka: Kafka, small_archive: Path, tmp_path: Path) -> None:
    """Every span of the topic is matched, arrivals are the broker's and emissions the run's; no batch is counted."""
    settings = KafkaSettings(kafka.bootstrap)
    config = {**SPANS.config, "retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
    KafkaAdmin(settings).create(Topic("compared", "a replay", 2, config))
    manifest = tmp_path / "m.json"
    to: list[str | Path] = ["--bootstrap", kafka.bootstrap, "--manifest", manifest]
    words: list[str | Path] = ["replay", "run", small_archive, "--to", "kafka", "--topic", "compared", *to]
    done = spanlite(*words, "--ids", "remap", "--speed", "max", "--qps", "100", "--partition", "producer", "-q")
    assert done.returncode == 0, done.stderr
    with KafkaProducer(settings) as producer:
        producer.send("compared", b"", b"no batch", 0, lambda _: None)
        assert producer.flush(10) == 0
    done = spanlite("replay", "compare", small_archive, "kafka:compared", *to, "--json", "-", "--require", "missing=0")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    figures = facts["figures"]
    assert figures["missing"] == figures["changed"] == figures["foreign"] == figures["out_of_order"] == 0
    assert (figures["topology"], figures["unreadable_messages"]) == (100, 1)
    assert figures["bytes_per_span"] == pytest.approx(
        json.loads(manifest.read_text())["emitted"]["bytes"] / figures["spans_replay"]
    )
    assert facts["arrivals"] == {"by": "broker", "resolution_ns": 1_000_000}
    assert figures["gap_p50_original_ns"] == 10_000_000
    assert 0 <= figures["ks"] <= 1
    assert facts["emissions"] == {"by": "headers", "messages": figures["batches_replay"]}
    assert (figures["emitted_gap_p50_original_ns"], figures["emitted_due_spread_ns"]) == (10_000_000, 0)
    lateness = json.loads(manifest.read_text())["pacing"]["lateness_ns"]
    assert figures["emitted_late_max_ns"] == lateness["max"]
    assert figures["emitted_late_mean_ns"] == pytest.approx(lateness["mean"])
    assert figures["stored_late_max_ns"] >= 0
    refused(spanlite("replay", "compare", small_archive, "kafka:none", *to), "no such topic")

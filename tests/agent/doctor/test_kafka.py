"""Kafka as the agent would meet it: recorded brokers, and a real one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spanlite.agent.doctor import kafka as checks
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.probe import real_probe
from spanlite.contract.errors import TransportError, UsageError
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.kafka_settings import KafkaSettings
from spanlite.transport.topics import Found, topics
from tests.agent.doctor.worlds import found, texts, world

if TYPE_CHECKING:
    from tests.stack.kafka import Kafka

HOSTS = {"kafka:9092": "10.0.0.7"}
ASKED = Asked(kafka=KafkaSettings("kafka:9092"))


class Brokers:
    """Topics as they should be, but for some."""

    def __init__(self, *, without: Sequence[str] = (), config: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._found = {
            topic.name: Found(topic.name, 6, 3, {**topic.config, **(config or {}).get(topic.name, {})})
            for topic in topics()
            if topic.name not in without
        }

    def found(self, names: Sequence[str]) -> Mapping[str, Any]:
        return {name: self._found[name] for name in names if name in self._found}


def levels(root: Path, broker: Any, asked: Asked = ASKED) -> dict[str, Level]:
    return found(checks.check, world(root, hosts=HOSTS, kafka=broker), asked)


def test_a_cluster_as_it_should_be_is_fine(tmp_path: Path) -> None:
    """More partitions and copies than the default are no difference."""
    assert levels(tmp_path, Brokers()) == {"kafka.reached": Level.OK, "kafka.topics": Level.OK}
    assert found(checks.check, world(tmp_path)) == {}


@pytest.mark.parametrize(
    ("broker", "finding", "level"),
    [
        (Brokers(without=["spanlite.spans"]), "kafka.topic_missing", Level.FAILURE),
        (Brokers(without=["spanlite.alerts"]), "kafka.topic_missing", Level.WARNING),
        (Brokers(config={"spanlite.spans": {"max.message.bytes": "1048588"}}), "kafka.message_size", Level.FAILURE),
        (Brokers(config={"spanlite.spans": {"max.message.bytes": "9000000"}}), "kafka.topic_differs", Level.NOTE),
        (Brokers(config={"spanlite.points": {"cleanup.policy": "delete"}}), "kafka.topic_differs", Level.WARNING),
        (ModuleNotFoundError("No module", name="confluent_kafka"), "kafka.client_missing", Level.FAILURE),
        (UsageError("no such property"), "kafka.settings", Level.FAILURE),
        (TransportError("login failed; check sasl.username"), "kafka.refused", Level.FAILURE),
    ],
)
def test_what_the_agent_would_stumble_over_is_told(tmp_path: Path, broker: Any, finding: str, level: Level) -> None:
    """Topics that lack or differ, a client that lacks or refuses, brokers that refuse."""
    assert levels(tmp_path, broker)[finding] == level


def test_each_server_is_tried_and_one_is_enough(tmp_path: Path) -> None:
    """With none to talk to, the client is not waited for."""
    two = dataclasses.replace(ASKED, kafka=KafkaSettings("other:9092, kafka:9092"))
    assert levels(tmp_path, Brokers(), two) == {
        "kafka.unreachable": Level.FAILURE,
        "kafka.reached": Level.OK,
        "kafka.topics": Level.OK,
    }
    none = dataclasses.replace(ASKED, kafka=KafkaSettings("other:9092,kafka"))
    assert levels(tmp_path, None, none) == {"kafka.unreachable": Level.FAILURE, "kafka.address": Level.FAILURE}


@pytest.mark.kafka
def test_a_real_broker_is_asked_as_the_agent_would(kafka: Kafka) -> None:
    """Topics that are not there, then those that `spanlite topics create` makes."""
    settings = KafkaSettings(kafka.bootstrap)
    asked = Asked(kafka=settings, prefix="doctor")
    probe = real_probe({})
    assert found(checks.check, probe, asked) == {"kafka.reached": Level.OK, "kafka.topic_missing": Level.FAILURE}
    for topic in topics(prefix="doctor", partitions=1):
        KafkaAdmin(settings).create(topic)
    assert found(checks.check, probe, asked) == {"kafka.reached": Level.OK, "kafka.topics": Level.OK}
    assert "doctor.spans 1 × 1" in texts(checks.check, probe, asked)

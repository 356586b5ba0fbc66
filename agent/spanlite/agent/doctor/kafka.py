"""Kafka as the agent would use it: addresses, the broker's answer, topics and their settings."""

from __future__ import annotations

from collections.abc import Iterator

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, Level, failure, note, ok, warning
from spanlite.agent.doctor.probe import Probe
from spanlite.contract.errors import TransportError, UsageError
from spanlite.transport.kafka_settings import KafkaSettings
from spanlite.transport.topics import PREFIX, SPANS, Found, Topic, differences, topics

_SIZE = "max.message.bytes"


def check(probe: Probe, asked: Asked) -> Iterator[Finding]:
    """Findings kafka.*; none without --bootstrap."""
    if asked.kafka is None:
        return
    reached = False
    for server in asked.kafka.bootstrap.split(","):
        finding = _reach(probe, server.strip())
        reached = reached or finding.level == Level.OK
        yield finding
    if not reached:
        return
    wanted = topics(prefix=asked.prefix)
    try:
        found = probe.outside.broker(asked.kafka).found([topic.name for topic in wanted])
    except ModuleNotFoundError as error:
        yield failure("kafka.client_missing", f"{error.name} is not installed", "pip install 'spanlite[kafka]'")
    except UsageError as error:
        yield failure("kafka.settings", str(error), "correct -X, --security-file or --bootstrap")
    except TransportError as error:
        yield failure("kafka.refused", str(error), _login(asked.kafka))
    else:
        yield from _topics(wanted, dict(found), asked.prefix)


def _reach(probe: Probe, server: str) -> Finding:
    host, colon, port = server.rpartition(":")
    if not colon or not port.isdigit():
        return failure("kafka.address", f"{server!r} is no HOST:PORT", "write --bootstrap as HOST:PORT[,HOST:PORT…]")
    try:
        address = probe.outside.reach(host.strip("[]"), int(port))
    except OSError as error:
        return failure(
            "kafka.unreachable",
            f"{server}: {error}",
            "check the name, the port, and what lies between (firewall, network policy, the pod's DNS)",
        )
    return ok("kafka.reached", f"{server} answers at {address}")


def _login(settings: KafkaSettings) -> str:
    protocol = settings.properties.get("security.protocol", "PLAINTEXT")
    return f"security.protocol is {protocol}: give what the listener wants in --security-file (docs/kafka.md)"


def _topics(wanted: tuple[Topic, ...], found: dict[str, Found], prefix: str) -> Iterator[Finding]:
    spans = SPANS.name.replace(PREFIX, prefix, 1)
    make = f"spanlite topics create --prefix {prefix} --bootstrap …"
    for topic in wanted:
        there = found.get(topic.name)
        if there is None:
            missing = f"the topic {topic.name} is not there ({topic.meaning})"
            yield (
                failure("kafka.topic_missing", missing, make)
                if topic.name == spans
                else warning("kafka.topic_missing", missing, make)
            )
            continue
        yield from _settings(topic, there, vital=topic.name == spans)
    if found:
        told = ", ".join(f"{one.name} {one.partitions} × {one.replication}" for one in found.values())
        yield ok("kafka.topics", f"partitions × copies: {told}")


def _settings(topic: Topic, found: Found, *, vital: bool) -> Iterator[Finding]:
    """How a topic differs from what the rest counts on, whatever its partitions and copies are."""
    fix = "spanlite topics create --alter"
    for one in differences(topic, found):
        told = f"{topic.name}: {one.setting} is {one.actual or 'not set'}, should be {one.wanted}"
        lower = one.setting == _SIZE and one.actual.isdigit() and int(one.actual) < int(one.wanted)
        if one.setting in ("partitions", "replication", "min.insync.replicas"):
            continue
        if lower and vital:
            yield failure("kafka.message_size", f"{told}: larger batches are dropped as too_large", fix)
        elif lower or one.setting != _SIZE:
            yield warning("kafka.topic_differs", told, fix)
        else:
            yield note("kafka.topic_differs", told)

"""The topics of spanlite as data: names, settings, and how a topic that is there differs from what it should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

PREFIX = "spanlite"
PARTITIONS = 4
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it should be.

    Attributes:
        name: with prefix.
        meaning: half a sentence for people.
        partitions: how many at least.
        config: Kafka's topic settings.
        spread: whether `--partitions` concerns it; the others carry little.
        grows: whether partitions may be added later. A key moves then, which a compacted topic never forgives: the
            old partition keeps the key's old value for ever.
        replication: copies of each partition.
    """

    name: str
    meaning: str
    partitions: int
    config: Mapping[str, str]
    spread: bool = True
    grows: bool = True
    replication: int = 1


def _any(most_bytes: int) -> dict[str, str]:
    return {
        "max.message.bytes": str(most_bytes),
        "message.timestamp.type": "CreateTime",
        # Kafka's own bound, one hour, would refuse all that a node sends whose clock is ahead.
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "compression.type": "producer",
    }


def _deleted(days: int, most_bytes: int, segment_ms: int) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(days * _DAY_MS),
        "segment.ms": str(segment_ms),
        **_any(most_bytes),
    }


SPANS = Topic(
    "spanlite.spans", "batches of spans, as agents send them", PARTITIONS, _deleted(7, 2 * _MIB, 6 * _HOUR_MS)
)
POINTS = Topic(
    "spanlite.points",
    "the newest metric point of each series",
    PARTITIONS,
    {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        # A job that has failed goes back to its checkpoint, and until it has caught up its newest points tell of less
        # than those before. An exporter that starts meanwhile must find these too, or counters would fall.
        "min.compaction.lag.ms": str(_HOUR_MS),
        "max.compaction.lag.ms": str(6 * _HOUR_MS),
        "delete.retention.ms": str(_DAY_MS),
        "segment.ms": str(_HOUR_MS),
        **_any(2 * _MIB),
    },
    grows=False,
)
LATE = Topic("spanlite.late", "spans that came after their window", PARTITIONS, _deleted(7, 2 * _MIB, 6 * _HOUR_MS))
# A value that a topic took must fit here together with the note that says what was wrong with it.
DEAD = Topic("spanlite.dead", "what could not be read, and why", 1, _deleted(14, 4 * _MIB, _DAY_MS), spread=False)
ALERTS = Topic("spanlite.alerts", "kernels that became slower", 1, _deleted(30, 1 * _MIB, _DAY_MS), spread=False)
TOPICS = (SPANS, POINTS, LATE, DEAD, ALERTS)


def topic_names(prefix: str = PREFIX) -> dict[str, str]:
    """Name of each topic by what it holds: spans, points, late, dead, alerts."""
    return {topic.name.removeprefix(f"{PREFIX}."): topic.name.replace(PREFIX, prefix, 1) for topic in TOPICS}


def topics(*, prefix: str = PREFIX, partitions: int | None = None, replication: int = 1) -> tuple[Topic, ...]:
    """All topics for one cluster.

    Args:
        prefix: instead of `spanlite` in the names.
        partitions: of the topics that carry much.
        replication: copies; from three on, two of them must have a value before it counts as stored.
    """
    in_sync = {"min.insync.replicas": "2" if replication >= 3 else "1"}
    return tuple(
        replace(
            topic,
            name=f"{prefix}{topic.name.removeprefix(PREFIX)}",
            partitions=partitions if partitions is not None and topic.spread else topic.partitions,
            config={**topic.config, **in_sync},
            replication=replication,
        )
        for topic in TOPICS
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as it is."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting of a topic that is not as it should be; `obstacle` says why it cannot be altered, or is empty."""

    topic: str
    setting: str
    actual: str
    wanted: str
    obstacle: str = ""


def differences(topic: Topic, found: Found) -> Iterator[Difference]:
    """Where a topic that is there is not as it should be. More partitions than asked for are no difference."""
    if found.partitions < topic.partitions:
        obstacle = "" if topic.grows else "keys would move, and compaction never joins their old values with the new"
        yield Difference(topic.name, "partitions", str(found.partitions), str(topic.partitions), obstacle)
    if found.replication != topic.replication:
        obstacle = "the brokers move copies: kafka-reassign-partitions.sh, or pass --replication"
        yield Difference(topic.name, "replication", str(found.replication), str(topic.replication), obstacle)
    for setting, wanted in topic.config.items():
        actual = found.config.get(setting, "")
        if actual != wanted:
            yield Difference(topic.name, setting, actual, wanted)

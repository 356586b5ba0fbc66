"""The topics as data, and how a cluster's differ from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spanlite.transport.topics import (
    ALERTS,
    DEAD,
    LATE,
    POINTS,
    SPANS,
    TOPICS,
    Difference,
    Found,
    differences,
    topics,
)


def as_it_should_be() -> Found:
    """SPANS as `spanlite topics create` makes it."""
    return Found(SPANS.name, SPANS.partitions, 1, dict(SPANS.config))


def test_names_and_lifetimes() -> None:
    """What producers, jobs and the documents agree on."""
    days = {topic.name: int(topic.config.get("retention.ms", 0)) / 86_400_000 for topic in TOPICS}
    assert days == {
        "spanlite.spans": 7,
        "spanlite.points": 0,
        "spanlite.late": 7,
        "spanlite.dead": 14,
        "spanlite.alerts": 30,
    }
    hours = {name: int(value) / 3_600_000 for name, value in POINTS.config.items() if "compaction.lag" in name}
    assert hours == {"min.compaction.lag.ms": 1, "max.compaction.lag.ms": 6}
    assert [topic.name for topic in TOPICS if topic.config["cleanup.policy"] == "compact"] == [POINTS.name]


def test_a_dead_value_has_room_for_its_note() -> None:
    """Whatever a topic took fits the dead-letter topic with what was wrong with it."""
    largest = max(int(topic.config["max.message.bytes"]) for topic in (SPANS, POINTS, LATE, ALERTS))
    assert int(DEAD.config["max.message.bytes"]) >= 2 * largest


@pytest.mark.parametrize(("replication", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_copies_that_must_be_there(replication: int, in_sync: str) -> None:
    """From three on, a value counts as stored when two have it; below, one broker's loss must not stop writers."""
    made = topics(replication=replication)
    assert {topic.replication for topic in made} == {replication}
    assert {topic.config["min.insync.replicas"] for topic in made} == {in_sync}


def test_prefix_and_partitions() -> None:
    """Two installations share a cluster; small topics stay small."""
    shapes = {topic.name: topic.partitions for topic in topics(prefix="team-a", partitions=12)}
    assert shapes == {
        "team-a.spans": 12,
        "team-a.points": 12,
        "team-a.late": 12,
        "team-a.dead": 1,
        "team-a.alerts": 1,
    }


def test_a_topic_as_it_should_be_has_no_differences() -> None:
    """More partitions than asked for, and settings that nobody asked for, are none."""
    found = as_it_should_be()
    assert list(differences(SPANS, found)) == []
    assert list(differences(SPANS, replace(found, partitions=99, config={**found.config, "x": "y"}))) == []


def test_each_difference_is_told_with_what_stands_in_its_way() -> None:
    """Settings can be altered, partitions only added, copies not at all from here."""
    found = replace(
        as_it_should_be(), partitions=2, replication=3, config={**SPANS.config, "retention.ms": "1", "segment.ms": ""}
    )
    told = {one.setting: one for one in differences(SPANS, found)}
    assert told["partitions"] == Difference("spanlite.spans", "partitions", "2", "4")
    assert told["retention.ms"] == Difference("spanlite.spans", "retention.ms", "1", "604800000")
    assert told["segment.ms"].actual == ""
    assert "kafka-reassign-partitions" in told["replication"].obstacle
    assert len(told) == 4


def test_a_compacted_topic_does_not_grow() -> None:
    """A key that moved would keep its old value in the old partition for ever."""
    (told,) = differences(POINTS, Found(POINTS.name, 2, 1, dict(POINTS.config)))
    assert "compaction" in told.obstacle
    (told,) = differences(LATE, Found(LATE.name, 2, 1, dict(LATE.config)))
    assert told.obstacle == ""

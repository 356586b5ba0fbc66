"""Sending and reading against a real broker: topics of one test, and what a sender was told."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping

from spanlite.transport.kafka import KafkaConsumer, KafkaProducer, KafkaSettings
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.ports import Record
from spanlite.transport.topics import Topic

WAIT_S = 60.0
"""Longest wait for what must come; reached only when a test fails."""


def new_topic(bootstrap: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Makes a topic that no other test knows; it keeps its values however old their times say that they are."""
    name = f"test-{uuid.uuid4()}"
    config = {"retention.ms": "-1", **(config or {})}
    KafkaAdmin(KafkaSettings(bootstrap), timeout_s=WAIT_S).create(Topic(name, "", partitions, config))
    return name


class Told:
    """What `on_delivery` has said of each value, and a way to wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.by_value: dict[bytes, list[str | None]] = {}

    def of(self, value: bytes) -> Callable[[str | None], None]:
        """The `on_delivery` of a value; values must differ."""

        def deliver(reason: str | None) -> None:
            with self._changed:
                self.by_value.setdefault(value, []).append(reason)
                self._changed.notify_all()

        return deliver

    def wait(self, count: int, timeout_s: float = WAIT_S) -> bool:
        """Whether that many values have been told of in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.by_value) >= count, timeout_s)

    def reasons(self) -> set[str | None]:
        """All reasons, None among them."""
        with self._changed:
            return {reason for all_of_one in self.by_value.values() for reason in all_of_one}

    def once(self) -> bool:
        """Whether no value was told of twice."""
        with self._changed:
            return all(len(all_of_one) == 1 for all_of_one in self.by_value.values())

    def stored(self) -> set[bytes]:
        """Values that were told to be stored."""
        with self._changed:
            return {value for value, all_of_one in self.by_value.items() if all_of_one == [None]}


def send(
    producer: KafkaProducer, topic: str, told: Told, *values: bytes, key: bytes = b"k", time_ms: int = 1_000
) -> None:
    """Sends values under one key, by default of 1970; a time of 0 is now."""
    for value in values:
        producer.send(topic, key, value, time_ms, told.of(value))


def read_all(settings: KafkaSettings, topic: str) -> list[Record]:
    """Everything that is in a topic now."""
    records: list[Record] = []
    with KafkaConsumer(settings, topic) as consumer:
        for _ in range(int(WAIT_S * 4)):
            records += consumer.poll(10_000, 0.25)
            if consumer.caught_up:
                return records
    raise AssertionError(f"{topic} was not read to its end")

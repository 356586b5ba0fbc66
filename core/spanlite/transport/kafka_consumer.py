"""Values from Kafka: one topic, either as a member of a group that commits, or all of it from the beginning."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from spanlite.contract.errors import TransportError
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.transport.kafka_connection import Connection
from spanlite.transport.kafka_reasons import needs_a_person, reason_of, remedy
from spanlite.transport.kafka_settings import KafkaSettings, settings_error
from spanlite.transport.ports import Record

DEFAULTS = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "isolation.level": "read_committed",
    "check.crcs": "true",
    "enable.partition.eof": "true",
    "queued.max.messages.kbytes": "32768",
}
_SLICE_S = 0.25
"""librdkafka blocks Ctrl-C, and does not return for an error of the connection: it is asked in slices."""
_METADATA_S = 5.0


class KafkaConsumer:
    """Consumer over Kafka; not for use by two threads at once.

    With a group, the topic's partitions are shared among its members, and `commit` says how far this one is. Without,
    every partition is read from its beginning, partitions that are added later too: what a view of a compacted topic
    needs. Nothing is asked of a broker before the first `poll`.

    Args:
        settings: where from, and how.
        topic: the topic.
        group: the consumer group, or None to read everything.
        clock: for waiting times.
        refresh_s: without a group: how often to look for new partitions.
        offsets: without a group: where to begin in each partition, instead of its beginning.

    Raises:
        UsageError: librdkafka refuses the settings.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        group: str | None = None,
        *,
        clock: Clock | None = None,
        refresh_s: float = 30.0,
        offsets: Mapping[int, int] | None = None,
    ) -> None:
        self._topic = topic
        self._group = group
        self._clock = clock or SystemClock()
        self._connection = Connection(settings, self._clock)
        self._settings = settings
        self._refresh_ns = round(refresh_s * 1e9)
        self._begin = dict(offsets or {})
        self._looked_ns: int | None = None
        self._failure: TransportError | None = None
        self._returned: dict[int, int] = {}
        self._owned: set[int] = set()
        self._behind: dict[int, int] | None = None
        configuration = {
            **settings.configuration(DEFAULTS),
            # Without a group the name is only a form that must be filled in: nothing is joined or committed.
            "group.id": f"{settings.client_id}-reads-all" if group is None else group,
            "error_cb": self._failed,
            "stats_cb": self._connection.statistics,
        }
        try:
            self._client = Consumer(configuration, logger=self._connection)
        except (KafkaException, ValueError, TypeError) as error:
            raise settings_error(settings, error) from None
        if group is not None:
            self._client.subscribe([topic], on_assign=self._gained, on_revoke=self._lost, on_lost=self._lost)

    @property
    def healthy(self) -> bool:
        """Whether a broker could be reached when last heard of."""
        return self._connection.healthy

    @property
    def last_error(self) -> str:
        """The newest error of the connection, without secrets; empty while all is well."""
        return self._connection.last_error

    @property
    def caught_up(self) -> bool:
        """Without a group: whether all is read that was there at the first `poll`; true at once for an empty topic."""
        return self._behind is not None and not self._behind

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """See `Consumer`. An outage of the brokers gives empty lists, and a line in the log.

        Raises:
            TransportError: the topic is missing, or the login failed or lacks a right: waiting will not help. Records
                that came before it have been returned.
        """
        deadline_ns = self._clock.monotonic_ns() + round(timeout_s * 1e9)
        records: list[Record] = []
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            left_s = max((deadline_ns - self._clock.monotonic_ns()) / 1e9, 0.0)
            if self._group is None:
                self._look_for_partitions(left_s)
            # One call for all would wait until the whole list is full.
            messages = self._client.consume(1, min(left_s, _SLICE_S))
            if messages and most > 1:
                messages += self._client.consume(most - 1, 0)
            for message in messages:
                self._take(message, records)
            if records or (left_s <= 0 and self._failure is None):
                return records

    def commit(self) -> None:
        """Commits what `poll` has returned, and waits for the broker's word.

        Partitions that went to another member meanwhile are left out: it reads them again from the last commit. When
        no broker answers (which is told after session.timeout.ms at the latest) it is logged, and the next call
        commits these records too.

        Raises:
            TransportError: the principal may not commit for this group.
        """
        if self._group is None or not self._returned:
            return
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self._returned.items()]
        try:
            self._client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if needs_a_person(reason_of(failure.name())):
                raise self._permanent(failure) from None
            self._connection.say(logging.WARNING, "COMMIT", f"not committed, to be repeated: {failure.str()}")
        else:
            self._returned.clear()

    def close(self) -> None:
        """Leaves the group; commits nothing."""
        self._client.close()

    def _take(self, message: Message, records: list[Record]) -> None:
        error = message.error()
        partition = message.partition() or 0
        offset = message.offset() or 0
        if error is None:
            _, timestamp_ms = message.timestamp()
            key, value = message.key() or b"", message.value() or b""
            found: Any = message.headers() or ()  # a list of pairs, which its stubs do not say
            headers = tuple((name, data or b"") for name, data in found)
            records.append(Record(self._topic, offset, timestamp_ms, key, value, partition, headers))
            if partition in self._owned:
                self._returned[partition] = offset + 1
            self._read_to(partition, offset + 1)
            if not self._connection.healthy:
                self._connection.works()
        elif error.name() == "_PARTITION_EOF":
            # The end is the last stable offset, which a marker or an open transaction may set apart from the log's.
            self._read_to(partition, None)
        else:
            self._failed(error)
            if self._failure is None:
                self._connection.say(logging.WARNING, error.name(), f"{self._topic}: {error.str()}")

    def _read_to(self, partition: int, offset: int | None) -> None:
        """Everything before the offset is read; None: all there is."""
        if self._behind and partition in self._behind and (offset is None or offset >= self._behind[partition]):
            del self._behind[partition]

    def _failed(self, error: KafkaError) -> None:
        """An error of the connection or of the topic: kept for the next `poll` if it stays, logged if it may pass."""
        name = error.name()
        if self._group is None and name == "GROUP_AUTHORIZATION_FAILED":
            return  # librdkafka looks for the coordinator of a group that is not used
        self._connection.failed(name, error.str())
        reason = reason_of(name, error.str())
        if needs_a_person(reason) or (reason == "tls" and self._looked_ns is None and not self._owned):
            self._failure = self._permanent(error)

    def _permanent(self, error: KafkaError) -> TransportError:
        reason = reason_of(error.name(), error.str())
        said = self._connection.last_error if reason == "tls" else self._settings.clean(error.str())
        return TransportError(f"{self._topic} at {self._settings.bootstrap}: {said}; {remedy(reason)}")

    def _gained(self, _client: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned.update(one.partition for one in partitions)
        self._connection.works()

    def _lost(self, _client: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._owned.discard(one.partition)
            self._returned.pop(one.partition, None)

    def _look_for_partitions(self, left_s: float) -> None:
        """Assigns the partitions that are not assigned yet; at the first time also notes where each of them ends."""
        now_ns = self._clock.monotonic_ns()
        if self._looked_ns is not None and now_ns - self._looked_ns < self._refresh_ns:
            return
        timeout_s = min(max(left_s, _SLICE_S), _METADATA_S)
        try:
            new = [partition for partition in self._partitions(timeout_s) if partition not in self._owned]
            if self._behind is None:
                self._behind = self._ends(new, timeout_s)
        except KafkaException as error:
            self._failed(error.args[0])
            return  # librdkafka has logged why, and the next poll asks again
        if new:
            self._client.incremental_assign(
                [TopicPartition(self._topic, one, self._begin.get(one, OFFSET_BEGINNING)) for one in new]
            )
            self._owned.update(new)
        self._looked_ns = now_ns

    def _partitions(self, timeout_s: float) -> list[int]:
        """Numbers of the topic's partitions."""
        found = self._client.list_topics(self._topic, timeout=timeout_s).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def _ends(self, partitions: list[int], timeout_s: float) -> dict[int, int]:
        """Offset of the end of each partition that holds anything."""
        ends: dict[int, int] = {}
        for partition in partitions:
            low, high = self._client.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=timeout_s)
            if high > max(low, self._begin.get(partition, low)):
                ends[partition] = high
        return ends

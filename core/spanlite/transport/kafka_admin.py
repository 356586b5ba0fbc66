"""Topics of a cluster: which are there, made, corrected."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports these without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from spanlite.contract.errors import TransportError
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.transport.kafka_connection import Connection
from spanlite.transport.kafka_reasons import reason_of, remedy
from spanlite.transport.kafka_settings import KafkaSettings, settings_error
from spanlite.transport.topics import Difference, Found, Topic

_Result = TypeVar("_Result")
_PAUSE_S = 0.1
_REMEDIES = {
    "INVALID_REPLICATION_FACTOR": "pass a --replication that the cluster has brokers for",
    "POLICY_VIOLATION": "the cluster has a policy for topics; make this one as its operators want it",
    "INVALID_CONFIG": "this broker does not know the setting; Kafka 3.6 or newer is needed",
}


class KafkaAdmin:
    """Asks and alters; every call waits for the brokers' answer, `timeout_s` at most.

    Raises, in every call:
        TransportError: no broker answers, or the principal lacks a right; the text says what to do.
    """

    def __init__(self, settings: KafkaSettings, *, timeout_s: float = 10.0, clock: Clock | None = None) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._connection = Connection(settings, self._clock, level=logging.DEBUG)
        configuration: dict[str, Any] = {**settings.configuration({}), "error_cb": self._failed}
        try:
            self._client = AdminClient(configuration, logger=self._connection)
        except (KafkaException, ValueError, TypeError) as error:
            raise settings_error(settings, error) from None

    def found(self, names: Iterable[str]) -> dict[str, Found]:
        """Those of the topics that are there."""
        try:
            there = self._client.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise self._error("the topics", error) from None
        shapes = {name: there[name].partitions for name in names if name in there and there[name].partitions}
        configs = self._configs(shapes)
        return {
            name: Found(name, len(partitions), min(len(one.replicas) for one in partitions.values()), configs[name])
            for name, partitions in shapes.items()
        }

    def create(self, topic: Topic) -> None:
        """Makes a topic that is not there, and returns when brokers tell of it; leaves one that is there."""
        made = NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication,
            config=dict(topic.config),
        )
        try:
            self._client.create_topics([made], request_timeout=self._timeout_s)[topic.name].result()
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":  # else somebody else was quicker
                raise self._error(topic.name, error) from None
        deadline_ns = self._clock.monotonic_ns() + round(self._timeout_s * 1e9)
        while topic.name not in self.found([topic.name]):
            if self._clock.monotonic_ns() > deadline_ns:
                raise TransportError(f"{topic.name} was made but no broker tells of it yet; check again in a minute")
            self._clock.sleep_s(_PAUSE_S)

    def alter(self, difference: Difference) -> None:
        """Corrects one setting, or adds partitions."""
        name = difference.topic
        if difference.setting == "partitions":
            grown = [NewPartitions(name, int(difference.wanted))]
            self._await(name, self._client.create_partitions(grown, request_timeout=self._timeout_s)[name])
            return
        entry = ConfigEntry(difference.setting, difference.wanted, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        altered = self._client.incremental_alter_configs([resource], request_timeout=self._timeout_s)
        self._await(name, altered[resource])

    def _configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Settings in force of each topic, defaults too."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        told = self._client.describe_configs(resources, request_timeout=self._timeout_s)
        return {
            resource.name: {entry.name: entry.value or "" for entry in self._await(resource.name, answer).values()}
            for resource, answer in told.items()
        }

    def _await(self, what: str, answer: Future[_Result]) -> _Result:
        try:
            return answer.result()
        except KafkaException as error:
            raise self._error(what, error) from None

    def _failed(self, error: KafkaError) -> None:
        self._connection.failed(error.name(), error.str())

    def _error(self, what: str, error: KafkaException) -> TransportError:
        failure: KafkaError = error.args[0]
        name, said = failure.name(), self._settings.clean(failure.str())
        self._client.poll(0)  # callbacks that say more
        where = f"{what} at {self._settings.bootstrap}"
        reason = reason_of(name, said)
        if name in _REMEDIES or reason in ("auth", "unknown_topic"):
            return TransportError(f"{where}: {said}; {_REMEDIES.get(name) or remedy(reason)}")
        why, barred = self._connection.last_error or said, self._connection.barred
        if barred:
            return TransportError(f"{where}: {why}; {remedy(barred)}")
        return TransportError(f"{where}: no answer ({why}); check --bootstrap, and --security-file for TLS and SASL")

"""One librdkafka producer with the values that it holds: what `KafkaProducer` replaces when it is beyond repair."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from spanlite.transport.kafka_connection import Connection
from spanlite.transport.kafka_settings import KafkaSettings, settings_error
from spanlite.transport.ports import Headers

Delivery = Callable[[str | None], None]

DEFAULTS = {
    "enable.idempotence": "true",
    "acks": "all",
    "message.timeout.ms": "60000",  # short: whoever keeps the values decides how often they are tried
    "queue.buffering.max.kbytes": "32768",
    "queue.buffering.max.messages": "10000",
    "linger.ms": "25",
    "compression.type": "none",  # a SpanBatch is zstd already: a second pass costs time and saves nothing
    "message.max.bytes": "2097152",
    "partitioner": "murmur2_random",  # that of Kafka's own clients, so that a key has one partition for all of them
}


class Client:
    """A librdkafka producer.

    Args:
        settings: where to, and how.
        connection: hears of errors and log lines.
        report: called by `serve` for each value with its `on_delivery` and the error, None when it is stored.

    Attributes:
        fatal: why the client can send no more; empty while it can.

    Raises:
        UsageError: librdkafka refuses the settings.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        connection: Connection,
        report: Callable[[Delivery, KafkaError | None], None],
    ) -> None:
        self.fatal = ""
        self._connection = connection
        self._report = report
        self._numbers = itertools.count()
        self._open: dict[int, Delivery] = {}
        configuration = {
            **settings.configuration(DEFAULTS),
            "error_cb": self._failed,
            "stats_cb": connection.statistics,
        }
        try:
            self._producer = Producer(configuration, logger=connection)
        except (KafkaException, ValueError, TypeError) as error:
            raise settings_error(settings, error) from None

    def offer(
        self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: Delivery, *, headers: Headers = ()
    ) -> None:
        """Takes a value.

        Raises:
            BufferError: there is no room now.
            KafkaException: it is not taken, and never will be as it is.
        """
        number = next(self._numbers)
        self._open[number] = on_delivery
        try:
            self._producer.produce(
                topic,
                value,
                key,
                timestamp=timestamp_ms,
                on_delivery=partial(self._reported, number),
                headers=[*headers] if headers else None,
            )
        except (BufferError, KafkaException) as error:
            del self._open[number]
            if isinstance(error, KafkaException):
                self._note_fatal(error.args[0])
            raise

    def serve(self, timeout_s: float) -> int:
        """Waits for events and calls back for each; returns how many there were."""
        return self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Sends what lingers, and serves until all is delivered or the time is over."""
        self._producer.flush(timeout_s)

    def answers(self, topic: str, timeout_s: float) -> str:
        """Why no broker says anything about `topic`; empty when one does."""
        try:
            self._producer.list_topics(topic, timeout=timeout_s)
        except KafkaException as error:
            said: str = error.args[0].str()
            return said
        return ""

    def abandon(self) -> list[Delivery]:
        """Ends it; returns the `on_delivery` of each value that it held and has not reported."""
        while self._producer.poll(0):  # reports that are there already are the truth
            pass
        left = [self._open.pop(number) for number in list(self._open)]
        self._producer.purge()
        return left

    def _reported(self, number: int, error: KafkaError | None, _message: Message) -> None:
        on_delivery = self._open.pop(number, None)
        if on_delivery is not None:  # else it was abandoned
            self._report(on_delivery, error)

    def _failed(self, error: KafkaError) -> None:
        self._connection.failed(error.name(), error.str())
        self._note_fatal(error)

    def _note_fatal(self, error: KafkaError) -> None:
        if error.fatal() or error.name() == "_FATAL":
            self.fatal = self.fatal or error.str()
            self._connection.failed("_FATAL", error.str())

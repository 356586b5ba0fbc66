"""Values to Kafka: idempotent, each told of exactly once, and the client made anew when it is beyond repair."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException

from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.transport.kafka_client import DEFAULTS, Client, Delivery
from spanlite.transport.kafka_connection import Connection, log
from spanlite.transport.kafka_reasons import reason_of
from spanlite.transport.kafka_settings import KafkaSettings
from spanlite.transport.ports import Headers

_POLL_S = 0.1
_PROBE_S = 2.0
_MANY_TIMEOUTS = 10
_PAUSES_NS = tuple(int(seconds * 1e9) for seconds in (0, 1, 2, 4, 8, 16, 30))


class KafkaProducer:
    """Producer over Kafka.

    A thread of its own serves librdkafka, so values are told of although nobody sends or flushes; `on_delivery` runs on
    that thread, or on one that sends, flushes or closes. `send` waits while the local queue is full, up to `wait_s`.

    Args:
        settings: where to, and how.
        clock: for waiting times.
        wait_s: longest wait for room; by default a little more than message.timeout.ms, after which there is room.

    Raises:
        UsageError: librdkafka refuses the settings.
    """

    def __init__(self, settings: KafkaSettings, *, clock: Clock | None = None, wait_s: float | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._connection = Connection(settings, self._clock)
        timeout_ms = settings.configuration(DEFAULTS)["message.timeout.ms"]
        self._changed = threading.Condition()
        self._unfinished = 0
        self._abandoned = 0
        self._timeouts = 0
        self._probed_timeouts = 0
        self._failures = 0
        self._retry_ns = 0
        self._made_anew = 0
        self._topic = ""
        self._closed = False
        self._ended = False
        self._client: Client | None = Client(settings, self._connection, self._delivered)
        self._wait_s = float(timeout_ms) / 1000 + 5.0 if wait_s is None else wait_s
        self._server = threading.Thread(target=self._serve, name="spanlite-kafka-producer", daemon=True)
        self._server.start()

    @property
    def healthy(self) -> bool:
        """Whether a broker could be reached when last heard of."""
        return self._client is not None and self._connection.healthy

    @property
    def last_error(self) -> str:
        """The newest error of the connection, without secrets; empty while all is well."""
        return self._connection.last_error

    @property
    def made_anew(self) -> int:
        """How many times the client was given up and replaced."""
        return self._made_anew

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: Delivery, *, headers: Headers = ()
    ) -> None:
        """Hands a value to librdkafka; see `Producer`. A time of 0 means now: librdkafka cannot say 1970."""
        deadline_ns = self._clock.monotonic_ns() + round(self._wait_s * 1e9)
        with self._changed:
            self._topic = topic
            self._unfinished += 1
            while (reason := self._try(topic, key, value, timestamp_ms, on_delivery, headers=headers)) == "full":
                left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, _POLL_S))
        if reason is not None:
            self._tell(on_delivery, reason)

    def flush(self, timeout_s: float) -> int:
        """Sends what lingers, waits for deliveries; returns how many values are not told of yet."""
        deadline_ns = self._clock.monotonic_ns() + round(timeout_s * 1e9)
        client = self._client
        if client is not None:
            client.flush(timeout_s)
        left_s = max((deadline_ns - self._clock.monotonic_ns()) / 1e9, 0.0)
        with self._changed:
            self._changed.wait_for(lambda: self._unfinished == 0, left_s)
            return self._unfinished

    def close(self, timeout_s: float = 10.0) -> int:
        """Takes no more values, waits for those on their way, and tells the rest `closed`; returns how many those were.

        Each is told of before this returns. Closing again does nothing.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.flush(timeout_s)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._server.join()
        return self._abandoned

    def _try(
        self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: Delivery, *, headers: Headers
    ) -> str | None:
        """The reason why librdkafka has not taken the value; the lock is held."""
        if self._closed:
            return "closed"
        if self._client is None:
            return self._connection.barred or "fatal"
        try:
            self._client.offer(topic, key, value, timestamp_ms, on_delivery, headers=headers)
        except BufferError:
            return "full"
        except KafkaException as error:
            return self._reason(error.args[0])
        return None

    def _reason(self, error: KafkaError) -> str:
        reason = reason_of(error.name())
        if reason in ("timeout", "fatal") and self._connection.barred:
            return self._connection.barred  # it never got that far
        if reason == "other":
            self._connection.say(logging.WARNING, error.name(), f"a value was not stored: {error.str()}")
        return reason

    def _delivered(self, on_delivery: Delivery, error: KafkaError | None) -> None:
        reason = None if error is None else self._reason(error)
        with self._changed:
            if reason is None:
                self._timeouts = self._probed_timeouts = self._failures = 0
            self._timeouts += reason == "timeout"
        if reason is None and not self._connection.healthy:
            self._connection.works()
        self._tell(on_delivery, reason)

    def _tell(self, on_delivery: Delivery, reason: str | None) -> None:
        try:
            on_delivery(reason)
        except Exception:  # noqa: BLE001  # whatever its owner did wrong, the other values must be told of too
            log.exception("on_delivery failed for a value that was told %s", reason or "that it is stored")
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()

    def _serve(self) -> None:
        """Runs until closed: delivers reports, and replaces a client that has failed for good."""
        while not self._ended:
            client = self._client
            if client is None:
                self._make_anew()
                continue
            client.serve(_POLL_S)
            if client.fatal:
                why = self._settings.clean(client.fatal)
                self._connection.say(logging.WARNING, "FATAL", f"the client failed for good ({why}); a new one comes")
                self._give_up(client, "fatal")
                self._pause()
            elif self._timeouts >= _MANY_TIMEOUTS and self._timeouts > self._probed_timeouts:
                self._probe(client)
        if self._client is not None:
            self._abandoned = self._give_up(self._client, "closed")

    def _make_anew(self) -> None:
        with self._changed:
            pause_s = (self._retry_ns - self._clock.monotonic_ns()) / 1e9
            if pause_s > 0:
                self._changed.wait(pause_s)
                return
        client = self._candidate()
        if client is not None:
            self._take_over(client)

    def _candidate(self) -> Client | None:
        """A new client; None, and a longer pause, where a certificate that was there at the start is there no more."""
        try:
            return Client(self._settings, self._connection, self._delivered)
        except UsageError as error:
            self._connection.failed("_FATAL", str(error))
            self._connection.say(logging.ERROR, "SETTINGS", str(error))
            self._pause()
            return None

    def _take_over(self, client: Client) -> None:
        with self._changed:
            self._client = client
            self._made_anew += 1
            self._timeouts = self._probed_timeouts = 0
            self._changed.notify_all()

    def _pause(self) -> None:
        """Sets when to try again: at once after the first failure, then ever later until a value is stored."""
        with self._changed:
            pause_ns = _PAUSES_NS[min(self._failures, len(_PAUSES_NS) - 1)]
            self._failures += 1
            self._retry_ns = self._clock.monotonic_ns() + pause_ns

    def _give_up(self, client: Client, reason: str) -> int:
        """Ends a client and tells each value that it still holds; returns how many."""
        with self._changed:
            self._client = None
            self._changed.notify_all()
        left = client.abandon()
        if reason == "fatal":
            reason = self._connection.barred or reason
        for on_delivery in left:
            self._tell(on_delivery, reason)
        return len(left)

    def _probe(self, client: Client) -> None:
        """Nothing gets through this client any more: where a new one reaches a broker, it takes over.

        A broker that has lost its log, for instance after its disk was replaced, leaves an idempotent producer stuck.
        """
        self._probed_timeouts = self._timeouts
        candidate = self._candidate()
        if candidate is None:
            return
        silence = candidate.answers(self._topic, _PROBE_S)
        if silence:
            said = f"{self._timeouts} values in a row timed out, and a new client reaches no broker: {silence}"
            self._connection.say(logging.INFO, "PROBE", said)
            return
        log.warning("%d values in a row timed out though a broker answers; a new client takes over", self._timeouts)
        self._give_up(client, "fatal")
        self._take_over(candidate)

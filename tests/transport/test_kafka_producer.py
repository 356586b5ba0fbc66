"""The producer's replacement of its client, on a librdkafka that fails on demand."""

# ruff: noqa: ARG002  # a double has the arguments of its original
from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from spanlite.contract.errors import UsageError
from spanlite.transport.kafka import KafkaProducer, KafkaSettings
from tests.transport.values import Told, send

FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence desynchronized", fatal=True)
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT, "timed out")
Report = Callable[[KafkaError | None, Any], None]


class FakeProducer:
    """Stands for confluent_kafka.Producer; tests say what becomes of the values that it holds."""

    made: ClassVar[list[FakeProducer]] = []
    reachable = True
    refused = False

    def __init__(self, configuration: dict[str, Any], logger: object) -> None:
        if FakeProducer.refused:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed"))
        self.error_cb: Callable[[KafkaError], None] = configuration["error_cb"]
        self.held: list[Report] = []
        self.events: deque[Callable[[], None]] = deque()
        self.broken = False
        FakeProducer.made.append(self)

    def produce(
        self, topic: str, value: bytes, key: bytes, *, timestamp: int, headers: object, on_delivery: Report
    ) -> None:
        if self.broken:
            raise KafkaException(KafkaError(KafkaError._FATAL, "the producer is broken", fatal=True))
        self.held.append(on_delivery)

    def report(self, error: KafkaError | None, count: int) -> None:
        """Lets the next polls tell of the oldest values."""
        for _ in range(count):
            on_delivery = self.held.pop(0)
            self.events.append(lambda told=on_delivery: told(error, None))  # type: ignore[misc]

    def fail(self) -> None:
        """A fatal error: told at the next poll, and every produce fails from now on."""
        self.broken = True
        self.events.append(lambda: self.error_cb(FATAL))

    def poll(self, timeout: float) -> int:
        if not self.events:
            return 0
        self.events.popleft()()
        return 1

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)

    def purge(self) -> None:
        self.held.clear()

    def list_topics(self, topic: str, *, timeout: float) -> None:
        if not FakeProducer.reachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeProducer]:
    """The double in librdkafka's place."""
    monkeypatch.setattr("spanlite.transport.kafka_client.Producer", FakeProducer)
    monkeypatch.setattr(FakeProducer, "made", [])
    monkeypatch.setattr(FakeProducer, "reachable", True)
    monkeypatch.setattr(FakeProducer, "refused", False)
    return FakeProducer


def test_after_a_fatal_error_a_new_client_takes_over(fake: type[FakeProducer]) -> None:
    """What the old one held is told `fatal`, once, reports that had come before count, and sending goes on."""
    told = Told()
    with KafkaProducer(KafkaSettings()) as producer:
        send(producer, "t", told, b"stored", b"held")
        fake.made[0].report(None, 1)
        fake.made[0].fail()
        assert told.wait(2)
        while producer.made_anew == 0:
            told.wait(3, 0.01)
        send(producer, "t", told, b"afterwards")
        fake.made[1].report(None, 1)
        assert told.wait(3)
        assert producer.healthy
        assert producer.last_error == ""
    assert told.by_value == {b"stored": [None], b"held": ["fatal"], b"afterwards": [None]}
    assert len(fake.made) == 2


def test_a_late_report_of_a_client_that_was_given_up_changes_nothing(fake: type[FakeProducer]) -> None:
    """Its value was told `fatal` already; exactly once holds."""
    told = Told()
    with KafkaProducer(KafkaSettings()) as producer:
        send(producer, "t", told, b"held")
        late = fake.made[0].held[0]
        fake.made[0].fail()
        assert told.wait(1)
        late(None, None)
        assert producer.flush(1) == 0
    assert told.by_value == {b"held": ["fatal"]}


def test_a_send_that_meets_the_fatal_error_first_is_told_so(fake: type[FakeProducer]) -> None:
    """produce raises before the error callback has run: the value is told, and the client is replaced all the same."""
    told = Told()
    with KafkaProducer(KafkaSettings()) as producer:
        fake.made[0].broken = True
        send(producer, "t", told, b"unlucky")
        assert told.by_value == {b"unlucky": ["fatal"]}
        while producer.made_anew == 0:
            told.wait(2, 0.01)
        send(producer, "t", told, b"lucky")
        fake.made[1].report(None, 1)
        assert told.wait(2)
    assert told.stored() == {b"lucky"}


def test_clients_that_fail_again_and_again_are_not_made_in_a_loop(fake: type[FakeProducer]) -> None:
    """The second replacement waits; meanwhile values are told at once instead of piling up."""
    told = Told()
    with KafkaProducer(KafkaSettings()) as producer:
        fake.made[0].fail()
        while producer.made_anew == 0:
            told.wait(1, 0.01)
        fake.made[1].fail()
        while producer.healthy:
            told.wait(1, 0.01)
        send(producer, "t", told, b"too early")
        assert told.wait(1)
        assert len(fake.made) == 2
    assert told.by_value == {b"too early": ["fatal"]}


def test_many_timeouts_while_a_broker_answers_bring_a_new_client(fake: type[FakeProducer]) -> None:
    """A stuck client is replaced, and the rest of what it held is told `fatal`."""
    told = Told()
    with KafkaProducer(KafkaSettings()) as producer:
        send(producer, "t", told, *(b"%d" % number for number in range(11)))
        fake.made[0].report(TIMED_OUT, 10)
        assert told.wait(11)
        while producer.made_anew == 0:
            told.wait(12, 0.01)
    assert [told.by_value[b"%d" % number] for number in range(11)] == [["timeout"]] * 10 + [["fatal"]]


def test_timeouts_of_an_outage_keep_the_client(fake: type[FakeProducer], caplog: pytest.LogCaptureFixture) -> None:
    """Where a new client reaches nobody either, replacing would help nothing."""
    fake.reachable = False
    told = Told()
    with caplog.at_level(logging.INFO), KafkaProducer(KafkaSettings()) as producer:
        send(producer, "t", told, *(b"%d" % number for number in range(12)))
        fake.made[0].report(TIMED_OUT, 11)
        while "reaches no broker" not in caplog.text:
            told.wait(13, 0.01)
        fake.made[0].report(None, 1)
        assert told.wait(12)
        assert producer.made_anew == 0
    assert told.by_value[b"11"] == [None]


def test_a_certificate_that_is_gone_is_waited_for(fake: type[FakeProducer], caplog: pytest.LogCaptureFixture) -> None:
    """The replacement cannot be made: said once, tried again later, and close still ends."""
    told = Told()
    with KafkaProducer(KafkaSettings()) as producer:
        fake.refused = True
        fake.made[0].fail()
        while "ssl.ca.location failed" not in caplog.text:
            told.wait(1, 0.01)
        assert not producer.healthy
        assert "ssl.ca.location failed" in producer.last_error
        fake.refused = False
        while producer.made_anew == 0:
            told.wait(1, 0.01)


def test_settings_that_librdkafka_refuses_are_a_usage_error() -> None:
    """The property is named, its neighbours' secrets are not told."""
    settings = KafkaSettings(properties={"sasl.passwrod": "hunter2", "sasl.password": "hunter3"})
    with pytest.raises(UsageError, match=r"sasl\.passwrod") as caught:
        KafkaProducer(settings)
    assert "hunter" not in str(caught.value)

"""What every transport must do, whichever it is."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from spanlite.transport.ports import Consumer, HeaderProducer, Record

_LIMIT_BYTES = 1_000
_WAIT_S = 30.0
"""Longest wait for what must come; reached only when a test fails."""


@dataclass(frozen=True)
class Transport:
    """One transport under test; consumers are of topics that senders name alike."""

    producer: HeaderProducer
    consumer: Callable[[str], Consumer]
    close: Callable[[], None]
    topic: Callable[[str], str]


def _memory(_request: pytest.FixtureRequest) -> Iterator[Transport]:
    """Bounded: it holds at most _LIMIT_BYTES plus one value unread. Its end is the end of its readers too."""
    broker = MemoryBroker(most_bytes=_LIMIT_BYTES)
    yield Transport(MemoryProducer(broker), lambda topic: MemoryConsumer(broker, topic), broker.close, str)
    broker.close()


def _kafka(request: pytest.FixtureRequest, group: str | None) -> Iterator[Transport]:
    """A real broker, which keeps what nobody reads and lives on when a producer ends; topics of its own each time."""
    pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")
    from spanlite.transport.kafka import KafkaConsumer, KafkaProducer, KafkaSettings
    from spanlite.transport.kafka_admin import KafkaAdmin
    from spanlite.transport.topics import Topic

    settings = KafkaSettings(request.getfixturevalue("kafka").bootstrap)
    admin = KafkaAdmin(settings, timeout_s=_WAIT_S)
    names: dict[str, str] = {}
    consumers: list[KafkaConsumer] = []

    def topic(word: str) -> str:
        if word not in names:
            names[word] = f"contract-{word}-{uuid.uuid4()}"
            admin.create(Topic(names[word], "", 3, {"retention.ms": "-1"}))  # these values are of 1970
        return names[word]

    def consumer(word: str) -> KafkaConsumer:
        made = KafkaConsumer(settings, topic(word), group and f"{group}-{uuid.uuid4()}")
        consumers.append(made)
        return made

    producer = KafkaProducer(settings)
    yield Transport(producer, consumer, lambda: None if producer.close() == 0 else pytest.fail("not empty"), topic)
    producer.close()
    for one in consumers:
        one.close()


def _kafka_group(request: pytest.FixtureRequest) -> Iterator[Transport]:
    return _kafka(request, "contract")


def _kafka_all(request: pytest.FixtureRequest) -> Iterator[Transport]:
    return _kafka(request, None)


@pytest.fixture(
    params=[
        pytest.param(_memory, id="memory"),
        pytest.param(_kafka_group, id="kafka-group", marks=pytest.mark.kafka),
        pytest.param(_kafka_all, id="kafka-all", marks=pytest.mark.kafka),
    ]
)
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """Each transport that there is."""
    yield from request.param(request)


@pytest.fixture(params=[pytest.param(_memory, id="memory")])
def inside(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """Transports within one process: they make senders wait for readers, and end together with both.

    What a broker does instead when it is full or gone is in tests/transport/test_kafka_faults.py.
    """
    yield from request.param(request)


def _send(transport: Transport, values: list[bytes], *, topic: str = "t", key: bytes = b"k") -> list[str | None]:
    told: list[str | None] = []
    for at, value in enumerate(values):
        transport.producer.send(transport.topic(topic), key, value, 1_000 + at, told.append)
    assert transport.producer.flush(_WAIT_S) == 0
    return told


def _read(consumer: Consumer, count: int, most: int = 100) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        got = consumer.poll(most, _WAIT_S)
        assert got, "a value is missing"
        records += got
    consumer.commit()
    return records


def test_a_value_arrives_as_it_was_sent(transport: Transport) -> None:
    """Topic, key, time and bytes, NUL and all."""
    assert _send(transport, [b"\x00\xffvalue"], key=b"\x00key") == [None]
    record = _read(transport.consumer("t"), 1)[0]
    assert (record.topic, record.key, record.value) == (transport.topic("t"), b"\x00key", b"\x00\xffvalue")
    assert record.timestamp_ms == 1_000


def test_headers_come_back_with_their_value(transport: Transport) -> None:
    """Names and bytes, NUL and all, in order, a name twice; a value that was sent without them has none."""
    headers = [("b", b"\x00\xff"), ("a", b""), ("b", (2**63 - 1).to_bytes(8, "big"))]
    told: list[str | None] = []
    transport.producer.send(transport.topic("t"), b"k", b"with", 1_000, told.append, headers=headers)
    transport.producer.send(transport.topic("t"), b"k", b"without", 1_000, told.append)
    assert transport.producer.flush(_WAIT_S) == 0
    assert told == [None, None]
    records = _read(transport.consumer("t"), 2)
    assert [(record.value, list(record.headers)) for record in records] == [(b"with", headers), (b"without", [])]


def test_an_empty_value_is_a_value(transport: Transport) -> None:
    """Nothing is taken for nothing sent."""
    assert _send(transport, [b""]) == [None]
    assert _read(transport.consumer("t"), 1)[0].value == b""


def test_values_of_one_key_keep_their_order(transport: Transport) -> None:
    """Two keys in turn: each key's values come in the order sent, whatever the other does."""
    for number in range(50):
        _send(transport, [bytes([number])], key=b"a" if number % 2 else b"b")
    records = _read(transport.consumer("t"), 50, most=7)
    for key, first in ((b"b", 0), (b"a", 1)):
        assert [record.value[0] for record in records if record.key == key] == list(range(first, 50, 2))


def test_offsets_rise_within_a_partition(transport: Transport) -> None:
    """A record's coordinates name it: each offset of a partition once, in rising order."""
    for key in (b"a", b"b", b"c", b"d", b"e"):
        _send(transport, [b"1", b"2", b"3"], key=key)
    _send(transport, [b"x"], topic="other")
    records = sorted(_read(transport.consumer("t"), 15), key=lambda record: record.partition)
    for _, part in itertools.groupby(records, key=lambda record: record.partition):
        assert all(earlier.offset < later.offset for earlier, later in pairwise(part))
    assert _read(transport.consumer("other"), 1)[0].value == b"x"


def test_poll_gives_at_most_what_was_asked_for(transport: Transport) -> None:
    """A reader decides how much it holds."""
    _send(transport, [bytes([at]) for at in range(10)])
    consumer = transport.consumer("t")
    first = consumer.poll(4, _WAIT_S)
    assert 1 <= len(first) <= 4
    rest = _read(consumer, 10 - len(first), most=4)
    assert [record.value[0] for record in first + rest] == list(range(10))


def test_poll_returns_empty_when_nothing_comes_in_time(transport: Transport) -> None:
    """No error, and no waiting for ever."""
    assert transport.consumer("t").poll(5, 0.0) == []


def test_every_value_is_told_of_exactly_once(transport: Transport) -> None:
    """on_delivery comes once a value, with None when it is stored."""
    assert _send(transport, [b"v"] * 100) == [None] * 100


def test_a_full_transport_makes_the_sender_wait_until_a_reader_takes(inside: Transport) -> None:
    """Memory stays within the limit, nothing is dropped, and the sender goes on as soon as there is room."""
    values, told, progress = 20, [], threading.Semaphore(0)

    def deliver(reason: str | None) -> None:
        told.append(reason)
        progress.release()

    def send_all() -> None:
        for at in range(values):
            inside.producer.send("t", b"k", bytes([at]) * 400, at, deliver)

    sender = threading.Thread(target=send_all)
    sender.start()
    for _ in range(3):  # 400, 800, and the one that passes the limit of 1,000
        assert progress.acquire(timeout=_WAIT_S)
    assert not progress.acquire(timeout=0.05), "the fourth is sent although three fill the transport"
    assert sender.is_alive()
    records = _read(inside.consumer("t"), values, most=1)
    sender.join(_WAIT_S)
    assert not sender.is_alive()
    assert told == [None] * values
    assert [record.value[0] for record in records] == list(range(values))


def test_a_value_larger_than_the_limit_still_passes(transport: Transport) -> None:
    """The limit makes senders wait; it does not make a value undeliverable."""
    assert _send(transport, [b"x" * (3 * _LIMIT_BYTES)]) == [None]
    assert len(_read(transport.consumer("t"), 1)[0].value) == 3 * _LIMIT_BYTES


def test_close_lets_readers_drain_what_is_there(transport: Transport) -> None:
    """What was stored before the producer's end is read after it."""
    _send(transport, [b"1", b"2"])
    transport.close()
    assert [record.value for record in _read(transport.consumer("t"), 2)] == [b"1", b"2"]


def test_polls_after_the_end_come_back_at_once(inside: Transport) -> None:
    """A reader that has drained a closed transport does not wait for what cannot come."""
    _send(inside, [b"1"])
    inside.close()
    consumer = inside.consumer("t")
    assert len(_read(consumer, 1)) == 1
    assert consumer.poll(5, _WAIT_S) == []


def test_a_send_after_close_is_told_that_it_failed(transport: Transport) -> None:
    """Never silently: the sender keeps the value and knows why."""
    transport.close()
    told = _send(transport, [b"late"])
    assert len(told) == 1
    assert told[0]


def test_close_wakes_a_sender_that_waits(inside: Transport) -> None:
    """The value that found no room is reported, once, and the thread ends."""
    told: list[str | None] = []
    first_three = threading.Semaphore(0)

    def deliver(reason: str | None) -> None:
        told.append(reason)
        first_three.release()

    def send_four() -> None:
        for at in range(4):
            inside.producer.send("t", b"k", b"x" * 400, at, deliver)

    sender = threading.Thread(target=send_four)
    sender.start()
    for _ in range(3):
        assert first_three.acquire(timeout=_WAIT_S)
    inside.close()
    sender.join(_WAIT_S)
    assert not sender.is_alive()
    assert told[:3] == [None] * 3
    assert len(told) == 4
    assert told[3]


def test_close_wakes_a_reader_that_waits(inside: Transport) -> None:
    """A reader of an empty topic ends with an empty list instead of its whole timeout."""
    got: list[list[Record]] = []
    reader = threading.Thread(target=lambda: got.append(inside.consumer("t").poll(1, 10 * _WAIT_S)))
    reader.start()
    inside.close()
    reader.join(_WAIT_S)
    assert got == [[]]

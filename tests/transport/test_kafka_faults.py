"""What the producer tells its owner when the broker dies, stalls, forgets, or refuses."""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import murmur2

from spanlite.transport.kafka import KafkaProducer, KafkaSettings
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.topics import Topic
from tests.stack.kafka import Kafka
from tests.transport.values import WAIT_S, Told, new_topic, read_all, send

pytestmark = pytest.mark.kafka


def impatient(settings: KafkaSettings) -> KafkaSettings:
    """A value times out after two seconds instead of a minute."""
    return replace(settings, properties={"message.timeout.ms": "2000"})


@pytest.mark.slow
def test_a_killed_broker_costs_no_value_and_doubles_none(broker: Kafka, settings: KafkaSettings) -> None:
    """Killed in mid-send and started again: each value is told of once, and lies in the topic once and in order.

    Values of now: a broker that comes back forgets producers whose newest record is a day old by its own time.
    """
    topic, told = new_topic(broker.bootstrap), Told()
    values = [b"%06d" % number + b"x" * 5_000 for number in range(3_000)]
    with KafkaProducer(settings) as producer:
        sender = threading.Thread(target=send, args=(producer, topic, told, *values), kwargs={"time_ms": 0})
        sender.start()
        assert told.wait(300)
        broker.kill()
        assert len(told.by_value) < len(values), "all was sent before the broker died"
        broker.start()
        sender.join(WAIT_S)
        assert producer.flush(WAIT_S) == 0
        assert producer.healthy
    assert told.once()
    untold = [number for number, value in enumerate(values) if value not in told.stored()]
    assert not untold
    numbers = [int(record.value[:6]) for record in read_all(settings, topic)]
    jumps = [(at, *pair) for at, pair in enumerate(itertools.pairwise(numbers)) if pair[1] != pair[0] + 1]
    assert (numbers[:1], jumps, len(numbers)) == ([0], [], len(values))


def test_values_of_a_stalled_broker_time_out_and_later_ones_pass(broker: Kafka, settings: KafkaSettings) -> None:
    """Past message.timeout.ms the owner is told, although nobody flushes; the same producer goes on afterwards."""
    topic, told = new_topic(broker.bootstrap), Told()
    with KafkaProducer(impatient(settings)) as producer:
        send(producer, topic, told, b"before")
        assert told.wait(1)
        broker.pause()
        try:
            send(producer, topic, told, *(b"stalled %d" % number for number in range(5)))
            assert told.wait(6)
        finally:
            broker.resume()
        assert told.stored() == {b"before"}
        assert told.reasons() == {None, "timeout"}
        for number in itertools.count():
            after = b"after %d" % number
            send(producer, topic, told, after)
            assert told.wait(7 + number)
            if after in told.stored():
                break
            assert number < 20, "nothing passes although the broker answers again"
    assert told.once()
    assert told.stored() <= {record.value for record in read_all(settings, topic)}


def test_a_full_local_queue_makes_the_sender_wait(broker: Kafka, settings: KafkaSettings) -> None:
    """A stalled broker holds the sender up when the queue is full; nothing is lost, and the order stays."""
    topic, told = new_topic(broker.bootstrap), Told()
    values = [b"%d" % number for number in range(300)]
    offered = threading.Semaphore(0)
    with KafkaProducer(replace(settings, properties={"queue.buffering.max.messages": "100"})) as producer:
        send(producer, topic, told, b"first")
        assert told.wait(1)

        def send_all() -> None:
            for value in values:
                send(producer, topic, told, value)
                offered.release()

        broker.pause()
        sender = threading.Thread(target=send_all)
        try:
            sender.start()
            for _ in range(100):
                assert offered.acquire(timeout=WAIT_S)
            assert not offered.acquire(timeout=0.5), "more values are taken than the queue may hold"
        finally:
            broker.resume()
        sender.join(WAIT_S)
        assert producer.flush(WAIT_S) == 0
    assert told.once()
    assert [record.value for record in read_all(settings, topic)] == [b"first", *values]


def test_a_sender_waits_for_room_no_longer_than_it_is_told_to(broker: Kafka, settings: KafkaSettings) -> None:
    """After wait_s the value is told `full`, and stays its owner's."""
    topic, told = new_topic(broker.bootstrap), Told()
    small = replace(settings, properties={"queue.buffering.max.messages": "1"})
    with KafkaProducer(small, wait_s=0.2) as producer:
        broker.pause()
        try:
            send(producer, topic, told, b"taken", b"too many")
            assert told.by_value == {b"too many": ["full"]}
        finally:
            broker.resume()
        assert producer.flush(WAIT_S) == 0
    assert told.stored() == {b"taken"}


def test_closing_tells_of_what_is_still_there(broker: Kafka, settings: KafkaSettings) -> None:
    """With a broker that stalls, close returns after its time, wakes a sender, and every value is told of once."""
    topic, told = new_topic(broker.bootstrap), Told()
    producer = KafkaProducer(replace(settings, properties={"queue.buffering.max.messages": "1"}))
    broker.pause()
    try:
        send(producer, topic, told, b"queued")
        sender = threading.Thread(target=send, args=(producer, topic, told, b"waits"))
        sender.start()
        assert producer.close(0.2) == 1
        sender.join(WAIT_S)
        send(producer, topic, told, b"afterwards")
    finally:
        broker.resume()
    assert told.by_value == {value: ["closed"] for value in (b"queued", b"waits", b"afterwards")}
    assert producer.close(0.2) == 1


def test_a_missing_topic_is_named_and_not_made(broker: Kafka, settings: KafkaSettings) -> None:
    """Its values are told `unknown_topic`; those of other topics pass meanwhile."""
    topic, told = new_topic(broker.bootstrap), Told()
    hasty = replace(settings, properties={"topic.metadata.propagation.max.ms": "1000"})
    with KafkaProducer(hasty) as producer:
        send(producer, "no-such-topic", told, b"lost")
        send(producer, topic, told, b"found")
        assert producer.flush(WAIT_S) == 0
    assert told.by_value == {b"lost": ["unknown_topic"], b"found": [None]}


def test_an_oversized_value_is_told_at_once_and_harms_no_other(broker: Kafka, settings: KafkaSettings) -> None:
    """By the producer's own limit before it is queued, by the topic's when the broker has said so."""
    wide = new_topic(broker.bootstrap, config={"max.message.bytes": str(2 << 20)})
    narrow = new_topic(broker.bootstrap, config={"max.message.bytes": "1000"})
    told = Told()
    with KafkaProducer(settings) as producer:
        send(producer, wide, told, bytes(2 << 20))
        assert told.by_value == {bytes(2 << 20): ["too_large"]}
        send(producer, narrow, told, bytes(2_000))
        assert producer.flush(WAIT_S) == 0
        assert told.by_value[bytes(2_000)] == ["too_large"]
        send(producer, wide, told, bytes((2 << 20) - 1_000))
        send(producer, narrow, told, b"fits")
        assert producer.flush(WAIT_S) == 0
    assert told.stored() == {bytes((2 << 20) - 1_000), b"fits"}


def test_any_bytes_are_a_key_and_each_has_its_partition(broker: Kafka, settings: KafkaSettings) -> None:
    """Empty, NUL, no text, a megabyte: stored as they are, in the partition that Kafka's own clients choose."""
    topic, told = new_topic(broker.bootstrap, partitions=7, config={"max.message.bytes": str(2 << 20)}), Told()
    keys = [b"", b"\x00", b"\xff\xfe", b"a/b,c", b"k" * 1_000_000, *(b"key %d" % number for number in range(20))]
    with KafkaProducer(settings) as producer:
        for turn in range(2):
            for number, key in enumerate(keys):
                send(producer, topic, told, b"%d/%d" % (turn, number), key=key)
        assert producer.flush(WAIT_S) == 0
    assert told.reasons() == {None}
    records = read_all(settings, topic)
    assert {record.value: record.key for record in records} == {
        b"%d/%d" % (turn, number): key for turn in range(2) for number, key in enumerate(keys)
    }
    assert {(record.key, record.partition) for record in records} == {(key, murmur2(key, 7)) for key in keys}


def test_a_value_that_the_broker_refuses_does_not_stop_the_next(broker: Kafka, settings: KafkaSettings) -> None:
    """A time beyond what the topic allows is told `rejected`; the producer lives on."""
    topic, told = new_topic(broker.bootstrap, config={"message.timestamp.after.max.ms": "1000"}), Told()
    with KafkaProducer(settings) as producer:
        producer.send(topic, b"k", b"year 5138", 10**14, told.of(b"year 5138"))
        assert producer.flush(WAIT_S) == 0
        send(producer, topic, told, b"now")
        assert producer.flush(WAIT_S) == 0
        assert producer.made_anew == 0
    assert told.by_value == {b"year 5138": ["rejected"], b"now": [None]}


def test_an_owner_that_fails_harms_no_other_value(
    broker: Kafka, settings: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception from on_delivery is logged; the values after it are told of."""
    topic, told = new_topic(broker.bootstrap), Told()

    def fail(_reason: str | None) -> None:
        raise RuntimeError("owner")

    with KafkaProducer(settings) as producer:
        producer.send(topic, b"k", b"first", 1_000, fail)
        send(producer, topic, told, b"second")
        assert producer.flush(WAIT_S) == 0
    assert told.stored() == {b"second"}
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.exc_info is not None


@pytest.mark.slow
def test_a_broker_that_forgot_everything_is_written_to_again(tmp_path: Path) -> None:
    """New disk, same address, topic made again: the same producer goes on, each value told of once."""
    told = Told()
    with Kafka(tmp_path / "broker") as broker:
        settings = KafkaSettings(broker.bootstrap)
        topic = new_topic(broker.bootstrap)
        with KafkaProducer(impatient(settings)) as producer:
            send(producer, topic, told, b"old")
            assert told.wait(1)
            broker.kill()
            shutil.rmtree(broker.folder / "data")
            broker.start()
            KafkaAdmin(settings, timeout_s=WAIT_S).create(Topic(topic, "", 1, {"retention.ms": "-1"}))
            for number in range(30):
                value = b"new %d" % number
                send(producer, topic, told, value)
                assert told.wait(2 + number)
                if value in told.stored():
                    break
        assert told.once()
        assert value in told.stored(), told.by_value
        assert value in {record.value for record in read_all(settings, topic)}

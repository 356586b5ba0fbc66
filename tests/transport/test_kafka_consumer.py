"""What a reader of Kafka may count on: commits, groups, whole topics, outages."""

from __future__ import annotations

import threading
import uuid

import pytest
from confluent_kafka import Producer

from spanlite.contract.errors import TransportError, UsageError
from spanlite.transport.kafka import KafkaConsumer, KafkaProducer, KafkaSettings
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.ports import Record
from spanlite.transport.topics import Difference
from tests.stack.kafka import Kafka
from tests.transport.values import WAIT_S, Told, new_topic, send

pytestmark = pytest.mark.kafka


def fill(settings: KafkaSettings, topic: str, *values: bytes, keys: int = 1) -> None:
    """Stores values, spread over so many keys."""
    told = Told()
    with KafkaProducer(settings) as producer:
        for number, value in enumerate(values):
            send(producer, topic, told, value, key=b"key %d" % (number % keys))
        assert producer.flush(WAIT_S) == 0
    assert told.stored() == set(values)


def read(consumer: KafkaConsumer, count: int) -> list[Record]:
    """That many records or more."""
    records: list[Record] = []
    for _ in range(int(WAIT_S)):
        records += consumer.poll(1_000, 1.0)
        if len(records) >= count:
            return records
    raise AssertionError(f"{len(records)} of {count} records came")


def group() -> str:
    """A group that no other test knows."""
    return f"group-{uuid.uuid4()}"


def test_a_group_goes_on_where_it_has_committed(broker: Kafka, settings: KafkaSettings) -> None:
    """What was returned but not committed comes again; what was committed does not."""
    topic, name = new_topic(broker.bootstrap), group()
    fill(settings, topic, *(b"%d" % number for number in range(6)))
    with KafkaConsumer(settings, topic, name) as consumer:
        first: list[Record] = []
        while len(first) < 4:
            first += consumer.poll(4 - len(first), 1.0)
        consumer.commit()
        assert [record.value for record in read(consumer, 2)] == [b"4", b"5"]
    with KafkaConsumer(settings, topic, name) as consumer:
        assert [record.value for record in read(consumer, 2)] == [b"4", b"5"]


def test_nothing_that_poll_has_not_returned_is_committed(broker: Kafka, settings: KafkaSettings) -> None:
    """librdkafka fetches ahead: a commit covers what the caller has seen, not what lies in a queue."""
    topic, name = new_topic(broker.bootstrap), group()
    fill(settings, topic, *(b"%d" % number for number in range(100)))
    with KafkaConsumer(settings, topic, name) as consumer:
        got = consumer.poll(1, WAIT_S)
        consumer.commit()
    with KafkaConsumer(settings, topic, name) as consumer:
        assert read(consumer, 99)[0].value == b"%d" % len(got)


def test_members_share_a_topic_and_lose_nothing(broker: Kafka, settings: KafkaSettings) -> None:
    """A second member takes partitions over while values come: together they see each, and commits do no harm."""
    topic, name, told = new_topic(broker.bootstrap, partitions=4), group(), Told()
    sent: set[bytes] = set()
    seen: set[bytes] = set()
    took: set[bytes] = set()
    with (
        KafkaProducer(settings) as producer,
        KafkaConsumer(settings, topic, name) as one,
        KafkaConsumer(settings, topic, name) as other,
    ):
        for number in range(300 + int(25 * WAIT_S)):
            # On a busy machine sharing out the partitions takes a while; a partition that moves must have values left.
            if number < 300 or not took:
                sent.add(value := b"%d" % number)
                send(producer, topic, told, value, key=b"key of %d" % number)
            elif seen | took == sent:
                break
            seen |= {record.value for record in one.poll(20, 0.02)}
            if number > 50:  # so that the first member owns everything and has committed before
                took |= {record.value for record in other.poll(20, 0.02)}
            if number % 10 == 0:
                one.commit()
                other.commit()
        assert producer.flush(WAIT_S) == 0
    assert took, "the second member was given nothing"
    assert seen, "the first member was left nothing"
    assert seen | took == sent == told.stored()


def test_a_whole_topic_is_read_from_its_beginning_by_each_reader(broker: Kafka, settings: KafkaSettings) -> None:
    """Without a group: all partitions, committed or not, twice over; caught up exactly when all is read."""
    topic = new_topic(broker.bootstrap, partitions=3)
    values = [b"%d" % number for number in range(30)]
    fill(settings, topic, *values, keys=10)
    for _ in range(2):
        with KafkaConsumer(settings, topic) as consumer:
            assert not consumer.caught_up
            got: list[Record] = []
            while not consumer.caught_up:
                got += consumer.poll(4, WAIT_S)
                consumer.commit()
            assert sorted(record.value for record in got) == sorted(values)


def test_an_empty_topic_is_caught_up_with_at_once(broker: Kafka, settings: KafkaSettings) -> None:
    """A view of nothing is ready after its first poll."""
    with KafkaConsumer(settings, new_topic(broker.bootstrap, partitions=2)) as consumer:
        assert not consumer.caught_up
        assert consumer.poll(1, 0.5) == []
        assert consumer.caught_up


def test_partitions_that_are_added_later_are_read_too(broker: Kafka, settings: KafkaSettings) -> None:
    """A view does not stay blind to the keys that moved."""
    topic = new_topic(broker.bootstrap)
    fill(settings, topic, b"before")
    with KafkaConsumer(settings, topic, refresh_s=0.2) as consumer:
        assert [record.value for record in read(consumer, 1)] == [b"before"]
        KafkaAdmin(settings).alter(Difference(topic, "partitions", "1", "5"))
        values = [b"%d" % number for number in range(50)]
        fill(settings, topic, *values, keys=50)
        records = read(consumer, 50)
    assert sorted(record.value for record in records) == sorted(values)
    assert len({record.partition for record in records}) > 1


def test_values_of_an_aborted_transaction_are_not_seen(broker: Kafka, settings: KafkaSettings) -> None:
    """Others may write with transactions: what they took back is left out, and the marker at the end is no obstacle."""
    topic = new_topic(broker.bootstrap)
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": str(uuid.uuid4())})
    writer.init_transactions(WAIT_S)
    for value, end in ((b"kept", writer.commit_transaction), (b"taken back", writer.abort_transaction)):
        writer.begin_transaction()
        writer.produce(topic, value, b"k")
        writer.flush(WAIT_S)
        end(WAIT_S)
    with KafkaConsumer(settings, topic) as consumer:
        got: list[Record] = []
        while not consumer.caught_up:
            got += consumer.poll(10, 1.0)
    assert [record.value for record in got] == [b"kept"]


@pytest.mark.parametrize("name", [None, "some-group"])
def test_a_missing_topic_is_an_error_that_names_the_remedy(settings: KafkaSettings, name: str | None) -> None:
    """Nobody waits for ever for a topic that is not there."""
    with (
        KafkaConsumer(settings, "no-such-topic", name) as consumer,
        pytest.raises(TransportError, match=r"no-such-topic.*Unknown topic.*spanlite topics create"),
    ):
        consumer.poll(1, WAIT_S)


def test_settings_of_nonsense_are_a_usage_error() -> None:
    """Before anything is asked of a broker."""
    with pytest.raises(UsageError, match="isolation"):
        KafkaConsumer(KafkaSettings(properties={"isolation.level": "none of your business"}), "t")


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True], ids=["all", "group"])
def test_an_outage_gives_empty_lists_and_is_over_by_itself(
    broker: Kafka, settings: KafkaSettings, caplog: pytest.LogCaptureFixture, named: bool
) -> None:
    """Broker killed and started again: no exception, few lines in the log, no value left out."""
    topic = new_topic(broker.bootstrap)
    fill(settings, topic, b"before")
    # The broker lets a member join again when its old self has expired.
    hasty = KafkaSettings(broker.bootstrap, {"session.timeout.ms": "6000"})
    with KafkaConsumer(hasty, topic, group() if named else None) as consumer:
        assert [record.value for record in read(consumer, 1)] == [b"before"]
        consumer.commit()
        broker.kill()
        for _ in range(20):
            assert consumer.poll(10, 0.25) == []
        assert not consumer.healthy
        assert "refused" in consumer.last_error or "disconnect" in consumer.last_error.lower()
        assert len(caplog.records) <= 5, caplog.text
        broker.start()
        fill(settings, topic, b"after")
        assert [record.value for record in read(consumer, 1)] == [b"after"]
        assert consumer.healthy


@pytest.mark.slow
def test_a_commit_that_fails_is_repeated_by_the_next(broker: Kafka, settings: KafkaSettings) -> None:
    """The broker dies between poll and commit: no exception, and the next commit covers it."""
    topic, name = new_topic(broker.bootstrap), group()
    fill(settings, topic, b"1", b"2")
    properties = {"session.timeout.ms": "6000", "socket.timeout.ms": "4000"}
    with KafkaConsumer(KafkaSettings(broker.bootstrap, properties), topic, name) as consumer:
        assert len(read(consumer, 2)) == 2
        broker.kill()
        consumer.commit()
        broker.start()
        fill(settings, topic, b"3")
        while not (got := consumer.poll(10, 1.0)):
            pass
        consumer.commit()
    seen = {record.value for record in got}
    assert b"3" in seen
    with KafkaConsumer(settings, topic, name) as consumer:
        fill(settings, topic, b"4")
        assert [record.value for record in read(consumer, 1)] == [b"4"]


def test_poll_returns_the_first_value_without_waiting_for_a_full_list(broker: Kafka, settings: KafkaSettings) -> None:
    """A reader that asks for many is not held up by few."""
    topic = new_topic(broker.bootstrap)
    fill(settings, topic, b"only")
    got: list[list[Record]] = []
    with KafkaConsumer(settings, topic) as consumer:
        reader = threading.Thread(target=lambda: got.append(consumer.poll(1_000, 10 * WAIT_S)))
        reader.start()
        reader.join(WAIT_S)
        assert not reader.is_alive()
    assert [record.value for record in got[0]] == [b"only"]

"""`spanlite exporter` as processes before a real broker: what it shows survives its own death, and poison."""

from __future__ import annotations

import http.client
import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from spanlite.contract.columns import Kind
from spanlite.contract.point_codec import encode_point, series_key
from spanlite.contract.points import Launch, Point, Series
from tests.stack.kafka import Kafka
from tests.stack.process import Process, wait_until

pytestmark = pytest.mark.kafka
PARTITIONS = 3
SERIES = [
    Series("GPU-1", Kind.KERNEL, f"k{n % 8}", f"void k{n % 8}()", Launch((n + 1, 1, 1), limiter=1), stage=f"s{n % 3}")
    for n in range(24)
]
_NAMES = itertools.count()


def point_of(series: Series, count: int, *, epoch: int = 0) -> Point:
    """`count` executions of 1 us, in the `count`-th second."""
    index, counted = np.array([-637], dtype=np.int32), np.array([count], dtype=np.int64)
    sums = (count, count, 1000 * count, 1000, 1000, 0, 0)
    return Point(series, 0, count * 10**9, *sums, index, counted, cumulative=True, epoch=epoch)


class Topic:
    """A compacted topic of its own on the broker, and a way to fill it."""

    def __init__(self, broker: Kafka, **config: str) -> None:
        self.bootstrap = broker.bootstrap
        self.name = f"points-{next(_NAMES)}"
        new = NewTopic(self.name, num_partitions=PARTITIONS, config={"cleanup.policy": "compact", **config})
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([new])[self.name].result(20)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})

    def send(self, *points: Point) -> None:
        """Returns when the broker has them."""
        for point in points:
            self._producer.produce(self.name, encode_point(point), series_key(point.series))
        assert self._producer.flush(20) == 0

    def send_raw(self, key: bytes, value: bytes | None) -> None:
        """Any record."""
        self._producer.produce(self.name, value, key)
        assert self._producer.flush(20) == 0

    def records(self) -> int:
        """How many there still are, read from the beginning."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "count", "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.name, partition, 0) for partition in range(PARTITIONS)])
        found = ends = 0
        while ends < PARTITIONS:
            message = consumer.poll(10)
            assert message is not None
            ends += message.error() is not None
            found += message.error() is None
        consumer.close()
        return found


class Exporter:
    """A running `spanlite exporter`."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @property
    def port(self) -> int:
        """The port it said, 0 before."""
        said = re.search(r"^metrics: http://127\.0\.0\.1:(\d+)/metrics$", self.process.said(), re.MULTILINE)
        return int(said[1]) if said else 0

    def ask(self, path: str = "/metrics") -> tuple[int, str]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def ready(self) -> bool:
        """Whether it shows metrics."""
        return bool(self.port) and self.ask()[0] == 200

    def counters(self) -> dict[tuple[str, ...], float]:
        """Every sample of counters and histograms by name and labels, without the exporter's own."""
        status, page = self.ask()
        assert status == 200, page
        return {
            (sample.name, *itertools.chain(*sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page)
            if family.type in ("counter", "histogram") and not family.name.startswith("spanlite_exporter_")
            for sample in family.samples
        }

    def launches(self) -> float:
        """Executions of all kernels; nan before it is ready."""
        if not self.ready():
            return float("nan")
        return sum(value for key, value in self.counters().items() if key[0] == "spanlite_kernel_launches_total")

    def own(self, name: str) -> dict[str, float]:
        """One of its own metrics by label value."""
        return {
            "".join(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(self.ask()[1])
            for sample in family.samples
            if sample.name == name
        }


Start = Callable[..., Exporter]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts exporters, and ends what is left of them."""
    running: list[Process] = []

    def one(bootstrap: str, topic: str, *flags: str) -> Exporter:
        name = f"exporter-{len(running)}"
        words = ["exporter", "--bootstrap", bootstrap, "--topic", topic, "--port", "0", *flags]
        process = Process(name, [sys.executable, "-m", "spanlite", *words], tmp_path / f"{name}.log")
        running.append(process)
        return Exporter(process)

    yield one
    for process in running:
        process.stop()


def shows(exporter: Exporter, launches: float) -> None:
    """Waits until it shows so many executions."""
    assert wait_until(lambda: exporter.launches() == launches, 60), exporter.process.tail()


@contextmanager
def flowing(topic: Topic) -> Iterator[list[int]]:
    """Points of all series, each counting one more than the last, for as long as the block runs; yields the counts."""
    stop = threading.Event()
    sent = [0]

    def flow() -> None:
        while not stop.wait(0.005):
            topic.send(*(point_of(series, sent[0] + 1) for series in SERIES))
            sent[0] += 1

    thread = threading.Thread(target=flow)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
def test_before_the_end_is_read_nothing_is_shown(tmp_path: Path, start: Start) -> None:
    """A scrape of half a topic would see every counter fall: 503 while the broker stalls, 200 with all of it later."""
    with Kafka(tmp_path / "kafka") as broker:
        topic = Topic(broker)
        topic.send(*(point_of(series, 5) for series in SERIES))
        broker.pause()
        exporter = start(broker.bootstrap, topic.name)
        assert wait_until(lambda: exporter.port > 0, 60)
        assert exporter.ask() == (503, "no metrics yet; /-/ready tells when\n")
        assert (exporter.ask("/-/ready")[0], exporter.ask("/-/healthy")[0]) == (503, 200)
        broker.resume()
        assert wait_until(exporter.ready, 60), exporter.process.tail()
        assert exporter.launches() == 5 * len(SERIES)
        exporter.process.stop()
        assert exporter.process.exit_code == 0


def test_no_counter_falls_when_it_is_killed_while_points_flow(kafka: Kafka, start: Start) -> None:
    """Prometheus would count a fall as a reset: each sample after SIGKILL and restart is at least what it was."""
    topic = Topic(kafka)
    seen: dict[tuple[str, ...], float] = {}
    with flowing(topic) as sent:
        for _ in range(4):
            exporter = start(kafka.bootstrap, topic.name)
            assert wait_until(exporter.ready, 60), exporter.process.tail()
            for _ in range(3):
                now = exporter.counters()
                assert {key: value for key, value in seen.items() if now.get(key, -1) < value} == {}
                seen = now
            exporter.process.kill()
    exporter = start(kafka.bootstrap, topic.name)
    shows(exporter, sent[0] * len(SERIES))
    assert len([key for key in seen if key[0] == "spanlite_kernel_launches_total"]) == 8
    assert all(exporter.counters()[key] >= value for key, value in seen.items())


def test_a_job_that_went_back_to_its_checkpoint_makes_nothing_fall(kafka: Kafka, start: Start) -> None:
    """After a failure the job sends points of fewer spans again; those who saw more must not show less."""
    topic = Topic(kafka)
    exporter = start(kafka.bootstrap, topic.name)
    topic.send(point_of(SERIES[0], 10))
    shows(exporter, 10)
    topic.send(point_of(SERIES[0], 4), point_of(SERIES[0], 9), point_of(SERIES[1], 1))
    shows(exporter, 11)
    topic.send(point_of(SERIES[0], 12))
    shows(exporter, 13)
    topic.send(point_of(SERIES[0], 2, epoch=1))
    shows(exporter, 15)
    assert exporter.own("spanlite_exporter_points_total") == {"newest": 3, "older": 2, "restarted": 1, "refused": 0}


def test_replicas_show_the_same(kafka: Kafka, start: Start) -> None:
    """Two exporters of one topic, one of them from its middle on, agree in every line but their own metrics."""
    topic = Topic(kafka)
    first = start(kafka.bootstrap, topic.name)
    with flowing(topic) as sent:
        assert wait_until(lambda: sent[0] > 20, 60)
        second = start(kafka.bootstrap, topic.name)
        assert wait_until(second.ready, 60)
    for exporter in (first, second):
        shows(exporter, sent[0] * len(SERIES))
    pages = [[line for line in each.ask()[1].splitlines() if "_exporter_" not in line] for each in (first, second)]
    assert pages[0] == pages[1]
    assert len(pages[0]) > 100


@pytest.mark.slow
def test_compaction_does_not_matter(tmp_path: Path, start: Start) -> None:
    """An exporter that starts after the broker has thrown the past away shows what one shows that saw it."""
    with Kafka(tmp_path / "kafka", properties={"log.cleaner.backoff.ms": "100"}) as broker:
        topic = Topic(broker, **{"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "200"})
        witness = start(broker.bootstrap, topic.name)
        rounds = 40
        for count in range(1, rounds + 1):
            topic.send(*(point_of(series, count) for series in SERIES))
        topic.send(*(point_of(series, rounds) for series in SERIES))
        whole = (rounds + 1) * len(SERIES)

        def compacted() -> bool:
            topic.send(*(point_of(series, rounds) for series in SERIES))
            return topic.records() < whole / 2

        assert wait_until(compacted, 60)
        late = start(broker.bootstrap, topic.name)
        for exporter in (witness, late):
            shows(exporter, rounds * len(SERIES))
        assert late.counters() == witness.counters()
        (read,) = late.own("spanlite_exporter_records_total").values()
        assert read < whole


def test_a_poison_record_is_counted_and_passed_over(kafka: Kafka, start: Start) -> None:
    """One broken record must not stop the view, nor go unnoticed; what was read adds up."""
    topic = Topic(kafka)
    topic.send(point_of(SERIES[0], 3))
    topic.send_raw(b"poison", b"\xff\xff no point")
    topic.send(point_of(SERIES[1], 4))
    topic.send_raw(series_key(SERIES[1]), None)
    exporter = start(kafka.bootstrap, topic.name)
    assert wait_until(exporter.ready, 60), exporter.process.tail()
    assert exporter.own("spanlite_exporter_points_rejected_total") == {"not_protobuf": 1}
    assert exporter.own("spanlite_exporter_tombstones_total") == {"": 1}
    assert exporter.own("spanlite_exporter_records_total") == {"": 4}
    assert exporter.own("spanlite_exporter_points_total") == {"newest": 2, "older": 0, "restarted": 0, "refused": 0}
    assert exporter.own("spanlite_exporter_last_event_timestamp_seconds") == {"": 4}
    assert exporter.launches() == 3
    assert "is passed over: not_protobuf" in exporter.process.said()
    exporter.process.stop()
    assert exporter.process.exit_code == 0


def test_a_missing_topic_is_one_clear_line(kafka: Kafka, start: Start) -> None:
    """A misspelt topic would look like a fleet without work."""
    exporter = start(kafka.bootstrap, "spanlite.pionts")
    assert wait_until(lambda: exporter.process.exit_code is not None, 60)
    assert exporter.process.exit_code == 1
    last = exporter.process.said().splitlines()[-1]
    assert last.startswith("spanlite: spanlite.pionts at 127.0.0.1:")
    assert "spanlite topics create" in last


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--series-cap", "0"], "--series-cap must be 1 or more, not 0"),
        (["--expire", "1 day"], "'1 day' is no duration"),
        (["-X", "no.such.property=1"], "no.such.property"),
    ],
)
def test_wrong_flags_are_refused_before_anything_is_served(start: Start, flags: list[str], complaint: str) -> None:
    """A flag that is off ends the command with code 2 and says which."""
    exporter = start("127.0.0.1:1", "points", *flags)
    assert wait_until(lambda: exporter.process.exit_code is not None, 60)
    assert exporter.process.exit_code == 2
    assert complaint in exporter.process.said().splitlines()[-1]

"""The pipeline on a real broker and a real Flink: the same results as in one process, whatever is killed on the way."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from spanlite.contract.point_codec import decode_point
from spanlite.contract.points import Point, Series
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.pipeline.windows import WindowPolicy
from spanlite.transport.memory import MemoryBroker, MemoryConsumer
from tests.stack import load
from tests.stack.checker import archived, newest_points, read_topic, verdict, work_of
from tests.stack.cluster import QUICK, VENV, Cluster, pairs, spanlite, wait_s
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka

pytestmark = [pytest.mark.flink, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
UPGRADED = Path(load.__file__).with_name("upgraded_job.py")
WHOLE = {"lost": 0, "duplicated": 0, "foreign": 0}


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """One TaskManager with room for both jobs, and a memory of them that outlives the JobManager."""
    if not VENV.exists():
        pytest.skip("PyFlink is not installed: make flink-venv")
    settings = {"execution.checkpointing.interval": "2 s"}
    with Flink(tmp_path_factory.mktemp("flink"), venv=VENV, slots=3, ha=True, settings=settings) as cluster:
        yield cluster


def in_one_process(messages: list[load.Message]) -> dict[Series, Point]:
    """Newest cumulative point of each series, by the embedded runner over the in-memory transport."""
    broker = MemoryBroker(most_bytes=1 << 40)
    for message in messages:
        broker.put("spans", message.key, message.value, 0)
    broker.close()
    newest: dict[Series, Point] = {}
    outputs = Outputs(total_points=lambda points: newest.update((point.series, point) for point in points))
    policy = WindowPolicy(width_ns=10**9, lateness_ns=5 * 10**8)
    pipeline = EmbeddedPipeline(MemoryConsumer(broker, "spans"), outputs, policy=policy)
    for _ in drain(pipeline):
        pass
    pipeline.finish()
    return newest


def assert_equal(told: dict[Series, Point], expected: dict[Series, Point]) -> None:
    """Every field of every point, buckets to the bit; only the generation differs from run to run."""
    assert told.keys() == expected.keys()
    for series, point in told.items():
        for field in fields(Point):
            one, other = getattr(point, field.name), getattr(expected[series], field.name)
            if field.name.startswith("bucket_"):
                assert one.tolist() == other.tolist(), (series, field.name)
            elif field.name != "epoch":
                assert one == other, (series, field.name)


def points_of(kafka: Kafka, topic: str) -> dict[Series, Point]:
    """Newest point of each series in a topic."""
    decoded = [decode_point(value or b"") for _, value in read_topic(kafka.bootstrap, topic)]
    return {point.series: point for point in decoded}


def kill_taskmanager(flink: Flink, _kafka: Kafka) -> None:
    """SIGKILL; a new one takes its place."""
    flink.taskmanagers[-1].kill()
    flink.add_taskmanager()


def kill_jobmanager(flink: Flink, _kafka: Kafka) -> None:
    """SIGKILL; a new one finds the jobs."""
    flink.kill_jobmanager()
    flink.start_jobmanager()


def kill_broker(_flink: Flink, kafka: Kafka) -> None:
    """SIGKILL, and started again on its data."""
    kafka.kill()
    kafka.start()


def stall_broker(_flink: Flink, kafka: Kafka) -> None:
    """Its connections stay open and nobody answers for a while."""
    kafka.pause()
    wait_s(10)
    kafka.resume()


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_both_runners_and_the_brute_force_agree(flink: Flink, kafka: Kafka, tmp_path: Path, mode: str) -> None:
    """A fleet's numbers would depend on the runner: points to the bit, archived spans to the row."""
    cluster = Cluster(kafka, flink, tmp_path, f"same-{mode}")
    sent = list(load.messages(3, 2))
    load.send(kafka.bootstrap, cluster.topic("spans"), pairs(sent))
    jobs = [cluster.submit(job, "--mode", mode) for job in ("metrics", "archive")]
    expected = load.expected_spans(sent)
    work = load.expected_work(sent)
    cluster.await_points(sum(each.count for each in work.values()))
    cluster.await_archive(len(expected))
    for job in jobs:
        flink.cancel(job)
    assert work_of(newest_points(kafka.bootstrap, cluster.topic("points"))) == work
    assert_equal(points_of(kafka, cluster.topic("points")), in_one_process(sent))
    assert verdict(archived(cluster.archive), expected) == WHOLE
    assert read_topic(kafka.bootstrap, cluster.topic("late")) == []

    if mode == "process":
        return
    durable = tmp_path / "durable"
    spanlite("topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", f"one-{mode}")
    load.send(kafka.bootstrap, f"one-{mode}.spans", pairs(sent))
    words = ["--bootstrap", kafka.bootstrap, "--prefix", f"one-{mode}", "--state", str(durable / "state.db")]
    spanlite("pipeline", "run", *words, "--archive", str(durable / "archive"), "--bounded", *QUICK)
    assert_equal(points_of(kafka, f"one-{mode}.points"), points_of(kafka, cluster.topic("points")))
    assert set(archived(durable / "archive")) == expected


def test_kills_redelivery_and_poison_change_nothing(flink: Flink, kafka: Kafka, tmp_path: Path) -> None:
    """Batches 1 to 3 times and shuffled, poison, a late producer, idle partitions; every server killed or stalled."""
    cluster = Cluster(kafka, flink, tmp_path, "kills")
    rng = random.Random(7)  # noqa: S311  # a schedule, no secret
    running = list(load.messages(2, 12))
    late = list(load.messages(1, 2, first_producer=2, shift_ns=-600 * 10**9))
    bad = load.poison()
    sent = [pair for pair in pairs(running) for _ in range(rng.choice((1, 1, 2, 3)))]
    for at in range(0, len(sent), 6):  # neighbours change places, as when two agents' retries overtake each other
        part = sent[at : at + 6]
        rng.shuffle(part)
        sent[at : at + 6] = part
    for value in bad:
        sent.insert(rng.randrange(len(sent)), (b"poison", value))
    jobs = [cluster.submit(job) for job in ("metrics", "archive")]

    def produce() -> None:
        for at in range(0, len(sent), 4):
            load.send(kafka.bootstrap, cluster.topic("spans"), sent[at : at + 4])
            wait_s(1.2)
        load.send(kafka.bootstrap, cluster.topic("spans"), pairs(late))

    with cluster.exporter() as exporter:
        producing = threading.Thread(target=produce)
        producing.start()
        for fault in (kill_taskmanager, kill_broker, kill_jobmanager, stall_broker, kill_taskmanager):
            wait_s(rng.uniform(2, 6))
            fault(flink, kafka)
            exporter.kill()
            exporter.start()
        producing.join()
        everything = running + late
        work, expected = load.expected_work(everything), load.expected_spans(everything)
        cluster.await_points(sum(each.count for each in work.values()))
        cluster.await_archive(len(expected))
        wait_s(2)
    for job in jobs:
        flink.cancel(job)
    assert work_of(newest_points(kafka.bootstrap, cluster.topic("points"))) == work
    assert verdict(archived(cluster.archive), expected) == WHOLE
    assert cluster.dead() == set(bad)
    assert exporter.scrapes > 0
    assert exporter.fallen == []


def test_a_later_version_goes_on_from_a_savepoint(flink: Flink, kafka: Kafka, tmp_path: Path) -> None:
    """An upgrade would lose or repeat what was counted: the second job has one operator more, and the first's state."""
    cluster = Cluster(kafka, flink, tmp_path, "upgrade")
    sent = list(load.messages(2, 4))
    half = len(sent) // 2
    load.send(kafka.bootstrap, cluster.topic("spans"), pairs(sent[:half]))
    first = cluster.submit("metrics")
    cluster.await_points(1)
    savepoint = flink.stop(first)
    load.send(kafka.bootstrap, cluster.topic("spans"), pairs(sent[half:]))
    second = flink.submit(UPGRADED, *cluster.job_arguments(), savepoint=savepoint)
    work = load.expected_work(sent)
    cluster.await_points(sum(each.count for each in work.values()))
    drained = flink.stop(second, drain=True)
    assert (drained / "_metadata").is_file()
    points = newest_points(kafka.bootstrap, cluster.topic("points"))
    assert work_of(points) == work
    assert len({point.epoch for point in points.values()}) == 1, "totals began anew"

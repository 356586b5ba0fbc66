"""Every server of a real cluster killed or stalled, and the job upgraded: the results are those of a quiet day."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.stack import load
from tests.stack.checker import WHOLE, archived, newest_points, verdict, work_of
from tests.stack.cluster import Cluster, pairs, wait_s
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka

pytestmark = [pytest.mark.flink, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1500)]
UPGRADED = Path(load.__file__).with_name("upgraded_job.py")


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

    faults = (kill_taskmanager, kill_broker, kill_jobmanager, stall_broker, kill_taskmanager)
    share = -(-len(sent) // len(faults))

    def produce(part: list[tuple[bytes, bytes]]) -> None:
        for at in range(0, len(part), 4):
            load.send(kafka.bootstrap, cluster.topic("spans"), part[at : at + 4])
            wait_s(1.2)

    with cluster.exporter() as exporter:
        for number, fault in enumerate(faults):
            producing = threading.Thread(target=produce, args=(sent[number * share : (number + 1) * share],))
            producing.start()
            wait_s(rng.uniform(2, 6))
            assert producing.is_alive(), "the load has ended before the fault"
            fault(flink, kafka)
            exporter.kill()
            exporter.start()
            producing.join()
        load.send(kafka.bootstrap, cluster.topic("spans"), pairs(late))
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

"""Every server of a real cluster killed or stalled, and the job upgraded: the results are those of a quiet day."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.stack import load
from tests.stack.checker import WHOLE, archived, newest_points, verdict, work_of
from tests.stack.cluster import Cluster, pairs, wait_s
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka
from tests.stack.strikes import (
    Producing,
    delivered_again,
    kill_broker,
    kill_jobmanager,
    kill_taskmanager,
    stall_broker,
    with_poison,
)

pytestmark = [pytest.mark.flink, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1500)]
UPGRADED = Path(load.__file__).with_name("upgraded_job.py")


def test_kills_redelivery_and_poison_change_nothing(flink: Flink, kafka: Kafka, tmp_path: Path) -> None:
    """Batches 1 to 3 times and shuffled, poison, a late producer, idle partitions; every server killed or stalled."""
    cluster = Cluster(kafka, flink, tmp_path, "kills")
    rng = random.Random(7)  # noqa: S311  # a schedule, no secret
    running = list(load.messages(2, 12))
    late = list(load.messages(1, 2, first_producer=2, shift_ns=-600 * 10**9))
    bad = load.poison()
    sent = delivered_again(pairs(running), rng)
    with_poison(sent, bad, rng)
    jobs = [cluster.submit(job) for job in ("metrics", "archive")]

    faults = (kill_taskmanager, kill_broker, kill_jobmanager, stall_broker, kill_taskmanager)
    share = -(-len(sent) // len(faults))

    with cluster.exporter() as exporter:
        for number, fault in enumerate(faults):
            part = sent[number * share : (number + 1) * share]
            with Producing(kafka.bootstrap, cluster.topic("spans"), part) as producing:
                wait_s(rng.uniform(2, 6))
                assert producing.goes_on, "the load has ended before the fault"
                fault(flink, kafka)
                exporter.kill()
                exporter.start()
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
    with pytest.raises(AssertionError, match="--allow-non-restored"):  # state is of other types there
        cluster.submit("metrics", "--mode", "process", "--resume", str(savepoint))
    load.send(kafka.bootstrap, cluster.topic("spans"), pairs(sent[half:]))
    second = flink.submit(UPGRADED, *cluster.job_arguments(), savepoint=savepoint)
    work = load.expected_work(sent)
    cluster.await_points(sum(each.count for each in work.values()))
    drained = flink.stop(second, drain=True)
    assert (drained / "_metadata").is_file()
    points = newest_points(kafka.bootstrap, cluster.topic("points"))
    assert work_of(points) == work
    assert len({point.epoch for point in points.values()}) == 1, "totals began anew"

"""The pipeline on a real broker and a real Flink: the same results as in one process."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from spanlite.contract.point_codec import decode_point
from spanlite.contract.points import Point, Series
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.pipeline.windows import WindowPolicy
from spanlite.transport.memory import MemoryBroker, MemoryConsumer
from tests.stack import load
from tests.stack.checker import WHOLE, archived, newest_points, read_topic, verdict, work_of
from tests.stack.cluster import QUICK, Cluster, pairs, spanlite
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka

pytestmark = [pytest.mark.flink, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1500)]


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


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_both_runners_and_the_brute_force_agree(flink: Flink, kafka: Kafka, tmp_path: Path, mode: str) -> None:
    """A fleet's numbers would depend on the runner: points to the bit, archived rows, observations among them."""
    cluster = Cluster(kafka, flink, tmp_path, f"same-{mode}")
    sent = [*load.messages(3, 2), *load.observed()]
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

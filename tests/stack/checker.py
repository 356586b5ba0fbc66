"""The judge of what a cluster has made: reads topics and Parquet by itself, with none of the code under test.

Points are parsed with the generated protobuf code, files with pyarrow alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from spanlite.v1.point_pb2 import MetricPoint
from tests.stack.load import Kernel, Span, Work

WHOLE = {"lost": 0, "duplicated": 0, "foreign": 0}
"""The verdict on an archive that holds each row once, and no other."""


def read_topic(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of all that is in a topic now, partition by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False})
    found: list[tuple[bytes | None, bytes | None]] = []
    try:
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            if low == high:
                continue
            consumer.assign([TopicPartition(topic, partition, low)])
            at = low
            while at < high:
                for message in consumer.consume(1000, 0.2):
                    assert message.error() is None, message.error()
                    found.append((message.key(), message.value()))
                    at = (message.offset() or 0) + 1
                at = max(at, consumer.position([TopicPartition(topic, partition)])[0].offset)
    finally:
        consumer.close()
    return found


def ends(bootstrap: str, topic: str) -> list[int]:
    """How many messages each partition has ever had."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        return [consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=30)[1] for one in partitions]
    finally:
        consumer.close()


def newest_points(bootstrap: str, topic: str) -> dict[bytes, MetricPoint]:
    """The last point of each key: what compaction would leave."""
    newest: dict[bytes, MetricPoint] = {}
    for key, value in read_topic(bootstrap, topic):
        assert key, "a compacted topic must have keys"
        assert value is not None
        newest[key] = MetricPoint.FromString(value)
    return newest


def work_of(points: dict[bytes, MetricPoint]) -> dict[Kernel, Work]:
    """What the newest points say of each kernel of each GPU."""
    count: Counter[Kernel] = Counter()
    sum_ns: Counter[Kernel] = Counter()
    buckets: dict[Kernel, Counter[int]] = {}
    for point in points.values():
        assert point.cumulative
        kernel = (point.series.gpu_uuid, int(point.series.kind), point.series.name)
        count[kernel] += point.count
        sum_ns[kernel] += point.sum_ns
        buckets.setdefault(kernel, Counter()).update(dict(zip(point.bucket_index, point.bucket_count, strict=True)))
    return {kernel: Work(count[kernel], sum_ns[kernel], dict(buckets[kernel])) for kernel in count}


def verdict_of_work(told: Mapping[Kernel, Work], expected: Mapping[Kernel, Work]) -> dict[str, int]:
    """Executions that the points lack, count too often, or invent."""
    counts = [(work.count, told[kernel].count if kernel in told else 0) for kernel, work in expected.items()]
    return {
        "lost": sum(max(0, wanted - found) for wanted, found in counts),
        "duplicated": sum(max(0, found - wanted) for wanted, found in counts),
        "foreign": sum(work.count for kernel, work in told.items() if kernel not in expected),
    }


def visible(folder: Path) -> list[Path]:
    """Every file that a reader sees."""
    return [path for path in sorted(folder.glob("date=*/hour=*/bucket=*/*.parquet")) if path.name[0] not in "._"]


def archived_rows(folder: Path) -> int:
    """How many rows they have."""
    return sum(pq.read_metadata(path).num_rows for path in visible(folder))


def archived(folder: Path) -> list[Span]:
    """Every row of every file."""
    files = [str(path) for path in visible(folder)]
    if not files:
        return []
    table = ds.dataset(files, format="parquet").to_table(columns=["session", "span_id", "start_ns", "duration_ns"])
    return list(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def verdict(spans: list[Span], expected: set[Span]) -> dict[str, int]:
    """Lost, duplicated and foreign rows of an archive."""
    seen = Counter(spans)
    return {
        "lost": len(expected - seen.keys()),
        "duplicated": sum(count - 1 for count in seen.values()),
        "foreign": len(seen.keys() - expected),
    }

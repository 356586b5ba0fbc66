"""The protobuf exposition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.columns import Kind
from spanlite.contract.points import Point, Series
from spanlite.exporters import metrics_model_pb2 as model
from spanlite.exporters.families import families
from spanlite.exporters.native import bucket_spans, protobuf
from spanlite.exporters.table import PointTable
from spanlite.exporters.totals import Total

MakePoint = Callable[..., Point]


def read(data: bytes) -> dict[str, model.MetricFamily]:
    """Delimited messages by name."""
    found = {}
    position = 0
    while position < len(data):
        size = shift = 0
        while True:
            byte = data[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        family = model.MetricFamily.FromString(data[position : position + size])
        position += size
        found[family.name] = family
    assert position == len(data)
    return found


def buckets(spans: list[tuple[int, int]], deltas: list[int]) -> dict[int, int]:
    """Non-empty buckets by index, decoded as Prometheus's documentation of the format says."""
    found = {}
    index = count = 0
    rest = iter(deltas)
    for offset, length in spans:
        index += offset
        for _ in range(length):
            count += next(rest)
            assert count >= 0
            if count:
                found[index] = count
            index += 1
    assert list(rest) == []
    return found


def total(counted: dict[int, int]) -> Total:
    """A total with these buckets."""
    indexes = np.array(sorted(counted), dtype=np.int32)
    counts = np.array([counted[i] for i in sorted(counted)], dtype=np.int64)
    return Total(int(counts.sum()), 0, 0, 0, 0, indexes, counts, ())


@given(st.dictionaries(st.integers(-960, 300), st.integers(1, 2**40), max_size=60))
def test_spans_and_deltas_hold_the_buckets(counted: dict[int, int]) -> None:
    """Proves for any sparse histogram that decoding gives the buckets back and only the first offset may be < 0."""
    spans, deltas = bucket_spans(total(counted))
    assert buckets(spans, deltas) == counted
    assert all(length > 0 for _, length in spans)
    assert all(offset > 0 for offset, _ in spans[1:])


def test_short_gaps_are_bridged_and_long_ones_are_not() -> None:
    """Proves the exact layout of a small example, worked out by hand."""
    assert bucket_spans(total({-5: 3, -3: 4, 10: 1})) == ([(-5, 3), (12, 1)], [3, -3, 4, -3])
    assert bucket_spans(total({0: 1, 3: 1})) == ([(0, 4)], [1, -1, 0, 1])
    assert bucket_spans(total({0: 1, 4: 1})) == ([(0, 1), (3, 1)], [1, 0])


def test_native_buckets_of_a_recorded_run_are_its_points(serve_points: list[Point]) -> None:
    """Proves count, sum, native and classic buckets of every kernel after the way through the bytes."""
    table = PointTable()
    table.put(serve_points)
    family = read(protobuf(families(table.snapshot())))["spanlite_kernel_duration_seconds"]
    assert (family.type, family.unit) == (model.HISTOGRAM, "seconds")
    for metric in family.metric:
        kernel = {pair.name: pair.value for pair in metric.label}["kernel"]
        mine = [p for p in serve_points if p.series.kernel == kernel]
        truth: dict[int, int] = {}
        for point in mine:
            for index, count in zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True):
                truth[index] = truth.get(index, 0) + count
        histogram = metric.histogram
        spans = [(span.offset, span.length) for span in histogram.positive_span]
        assert buckets(spans, list(histogram.positive_delta)) == truth
        assert histogram.schema == 5
        assert histogram.sample_count == sum(truth.values())
        assert histogram.sample_sum == sum(p.sum_ns for p in mine) / 1e9
        classic = [bucket.cumulative_count for bucket in histogram.bucket]
        assert classic == [sum(c for i, c in truth.items() if i <= 64 * k) for k in range(-10, 1)] + [
            histogram.sample_count
        ]
        assert max(e.value for e in histogram.exemplars) == max(p.max_ns for p in mine) / 1e9


def test_numbers_and_infos_are_counters_and_gauges(make_point: MakePoint) -> None:
    """Proves the types of the other families; the model has none for info."""
    table = PointTable()
    table.put([make_point(Series("GPU-1", Kind.KERNEL, "k", name="void k()"), [1000, 2000])])
    found = read(protobuf(families(table.snapshot())))
    launches = found["spanlite_kernel_launches_total"]
    assert (launches.type, launches.metric[0].counter.value) == (model.COUNTER, 2)
    info = found["spanlite_kernel_info"]
    assert (info.type, info.metric[0].gauge.value) == (model.GAUGE, 1)
    assert {p.name: p.value for p in info.metric[0].label} == {"kernel": "k", "name": "void k()"}


# Numbers of prometheus/client_model, io/prometheus/client/metrics.proto.
@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (model.MetricFamily, {"name": 1, "help": 2, "type": 3, "metric": 4, "unit": 5}),
        (model.Metric, {"label": 1, "gauge": 2, "counter": 3, "histogram": 7}),
        (
            model.Histogram,
            {
                "sample_count": 1,
                "sample_sum": 2,
                "bucket": 3,
                "schema": 5,
                "zero_threshold": 6,
                "zero_count": 7,
                "positive_span": 12,
                "positive_delta": 13,
                "exemplars": 16,
            },
        ),
        (model.Bucket, {"cumulative_count": 1, "upper_bound": 2, "exemplar": 3}),
        (model.BucketSpan, {"offset": 1, "length": 2}),
        (model.Exemplar, {"label": 1, "value": 2, "timestamp": 3}),
        (model.LabelPair, {"name": 1, "value": 2}),
    ],
)
def test_field_numbers_are_prometheus_s(message: type[Message], numbers: dict[str, int]) -> None:
    """Proves that our cut of the model is the model's on the wire."""
    assert {field.name: field.number for field in message.DESCRIPTOR.fields} == numbers

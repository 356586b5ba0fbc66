"""Families as Prometheus's protobuf exposition, with native histograms beside the classic buckets.

The only module that knows the generated model. Layout: length-delimited io.prometheus.client.MetricFamily messages.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from spanlite.contract import points
from spanlite.contract.catalogue import MetricType
from spanlite.contract.columns import Int64
from spanlite.contract.histogram import SCHEMA
from spanlite.exporters import metrics_model_pb2 as model
from spanlite.exporters.families import Family, Labels, Sample
from spanlite.exporters.prometheus import CLASSIC_SECONDS, classic_counts, classic_exemplars, exemplar_labels
from spanlite.exporters.totals import Total

_TYPES = {
    MetricType.COUNTER: model.COUNTER,
    MetricType.GAUGE: model.GAUGE,
    MetricType.HISTOGRAM: model.HISTOGRAM,
    MetricType.INFO: model.GAUGE,
}
_ZERO_THRESHOLD = 2.0**-128
"""client_golang's default. Durations are at least 1 ns, so the zero bucket stays empty; but a threshold above zero is
what tells Prometheus that a histogram without any bucket is native."""
_MAX_GAP = 2
"""Empty buckets up to which two spans are one: a delta of zero is shorter than a span."""


def protobuf(families: Iterable[Family]) -> bytes:
    """All families, each led by its length."""
    parts: list[bytes] = []
    for family in families:
        message = _family(family).SerializeToString()
        parts += [_varint(len(message)), message]
    return b"".join(parts)


def bucket_spans(total: Total) -> tuple[list[tuple[int, int]], list[int]]:
    """Sparse buckets as (offset, length) spans and count deltas.

    Returns:
        Spans; the first offset is from bucket 0, later ones from the end of the span before. Deltas, one a bucket of
        the spans, each to the bucket before, the first to 0.
    """
    index = total.bucket_index.astype(np.int64)
    if not len(index):
        return [], []
    breaks = np.flatnonzero(np.diff(index) > _MAX_GAP + 1) + 1
    starts, ends = index[np.concatenate([[0], breaks])], index[np.concatenate([breaks - 1, [-1]])] + 1
    lengths = ends - starts
    offsets = starts - np.concatenate([[0], ends[:-1]])
    dense: Int64 = np.zeros(int(lengths.sum()), dtype=np.int64)
    shift = starts - np.concatenate([[0], np.cumsum(lengths)[:-1]])
    dense[index - shift[np.searchsorted(starts, index, side="right") - 1]] = total.bucket_count
    return list(zip(offsets.tolist(), lengths.tolist(), strict=True)), np.diff(dense, prepend=0).tolist()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _family(family: Family) -> model.MetricFamily:
    spec = family.spec
    return model.MetricFamily(
        name=spec.name,
        help=spec.meaning,
        type=_TYPES[spec.type],
        unit=spec.unit,
        metric=[_metric(spec.type, sample) for sample in family.samples],
    )


def _metric(kind: MetricType, sample: Sample) -> model.Metric:
    label = _pairs(sample.labels)
    if isinstance(sample.value, Total):
        return model.Metric(label=label, histogram=_histogram(sample.value))
    number = model.Number(value=sample.value)
    if kind is MetricType.COUNTER:
        return model.Metric(label=label, counter=number)
    return model.Metric(label=label, gauge=number)


def _histogram(total: Total) -> model.Histogram:
    exemplars = {position: _exemplar(e) for position, e in classic_exemplars(total).items()}
    spans, deltas = bucket_spans(total)
    bounds = [*CLASSIC_SECONDS, float("inf")]
    return model.Histogram(
        sample_count=total.count,
        sample_sum=total.sum_ns / 10**9,
        bucket=[
            model.Bucket(cumulative_count=count, upper_bound=bound, exemplar=exemplars.get(position))
            for position, (bound, count) in enumerate(zip(bounds, classic_counts(total), strict=True))
        ],
        schema=SCHEMA,
        zero_threshold=_ZERO_THRESHOLD,
        positive_span=[model.BucketSpan(offset=offset, length=length) for offset, length in spans],
        positive_delta=deltas,
        exemplars=[exemplars[position] for position in sorted(exemplars)],
    )


def _pairs(labels: Labels) -> list[model.LabelPair]:
    return [model.LabelPair(name=name, value=value) for name, value in sorted(labels.items())]


def _exemplar(exemplar: points.Exemplar) -> model.Exemplar:
    message = model.Exemplar(label=_pairs(exemplar_labels(exemplar)), value=exemplar.duration_ns / 10**9)
    message.timestamp.FromNanoseconds(exemplar.start_ns + exemplar.duration_ns)
    return message

"""Families as Prometheus's text format 0.0.4 and as OpenMetrics 1.0, written by prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from prometheus_client.core import Exemplar, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from spanlite.contract import points
from spanlite.contract.catalogue import MetricType
from spanlite.contract.histogram import PER_OCTAVE, bound_seconds, bucket_index
from spanlite.exporters.families import Family, Labels
from spanlite.exporters.totals import Total

CLASSIC_INDEX = np.arange(-20, 1, 2, dtype=np.int32) * np.int32(PER_OCTAVE)
"""Classic bounds 4^-10 … 4^0 s (0.95 µs … 1 s) as schema-5 buckets, so cumulative counts at them are exact."""
CLASSIC_SECONDS: list[float] = bound_seconds(CLASSIC_INDEX).tolist()
_LE = [*map(repr, CLASSIC_SECONDS), "+Inf"]


def text(families: Iterable[Family]) -> bytes:
    """Text format 0.0.4: no exemplars, no units."""
    return generate_latest(_Families(families))


def openmetrics(families: Iterable[Family]) -> bytes:
    """OpenMetrics 1.0 with exemplars."""
    return bytes(generate_openmetrics(_Families(families)))  # type: ignore[no-untyped-call]  # typed in part only


def classic_counts(total: Total) -> list[int]:
    """Executions at or below each classic bound, and at last all; 12 values."""
    upto = np.searchsorted(total.bucket_index, CLASSIC_INDEX, side="right")
    below: list[int] = np.concatenate([[0], np.cumsum(total.bucket_count)])[upto].tolist()
    return [*below, total.count]


def classic_exemplars(total: Total) -> dict[int, points.Exemplar]:
    """The longest execution known in each classic bucket, by the bucket's position."""
    found: dict[int, points.Exemplar] = {}
    for exemplar in sorted(total.exemplars, key=lambda e: e.duration_ns):
        index = bucket_index(np.array([exemplar.duration_ns], dtype=np.int64))
        found[int(np.searchsorted(CLASSIC_INDEX, index[0], side="left"))] = exemplar
    return found


def exemplar_labels(exemplar: points.Exemplar) -> Labels:
    """Ids in hexadecimal: 63 of the 128 characters that OpenMetrics allows."""
    labels = {"span_id": f"{exemplar.span_id:016x}"}
    return {"trace_id": exemplar.trace_id.hex(), **labels} if any(exemplar.trace_id) else labels


class _Families(Collector):
    """What prometheus_client writes from."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._families)


def _metric(family: Family) -> Metric:
    spec = family.spec
    # prometheus_client wants the bare name, and puts the suffix of the type on the samples itself or expects it there.
    bare = spec.name.removesuffix({MetricType.COUNTER: "_total", MetricType.INFO: "_info"}.get(spec.type, ""))
    metric = Metric(bare, spec.meaning, spec.type.value, spec.unit)
    for sample in family.samples:
        if isinstance(sample.value, Total):
            _add_histogram(metric, sample.labels, sample.value)
        else:
            metric.add_sample(spec.name, sample.labels, sample.value)
    return metric


def _add_histogram(metric: Metric, labels: Labels, total: Total) -> None:
    exemplars = classic_exemplars(total)
    for position, (bound, count) in enumerate(zip(_LE, classic_counts(total), strict=True)):
        exemplar = exemplars.get(position)
        metric.add_sample(
            f"{metric.name}_bucket", {**labels, "le": bound}, count, exemplar=_exemplar(exemplar) if exemplar else None
        )
    metric.add_sample(f"{metric.name}_count", labels, total.count)
    metric.add_sample(f"{metric.name}_sum", labels, total.sum_ns / 10**9)


def _exemplar(exemplar: points.Exemplar) -> Exemplar:
    end_s = (exemplar.start_ns + exemplar.duration_ns) / 10**9
    return Exemplar(exemplar_labels(exemplar), exemplar.duration_ns / 10**9, end_s)

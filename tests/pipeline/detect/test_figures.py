"""Figures of points as columns: equal to those of each point for itself, and near those of the durations."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.columns import Kind
from spanlite.pipeline.detect.figures import figure_of, quantiles_ns
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import merge
from spanlite.pipeline.pointset import PointSet
from spanlite.pipeline.series import SeriesRegistry
from tests.pipeline.conftest import LAUNCH, Span, exact_bucket, make_batch, span_lists

STATED = 2 ** (1 / 64) - 1
"""Of docs/how-it-works.md: how far off a quantile is at most."""


def of_spans(spans: list[Span], width_ns: int = 100) -> PointSet:
    """Points of spans, whatever these claim."""
    registry = SeriesRegistry()
    batches = [make_batch(spans)] if spans else []
    return PointSet(width_ns, registry, merge([fold_batch(each, width_ns, registry) for each in batches])).ordered()


def values(name: str, points: PointSet) -> list[float]:
    """A figure of each point."""
    figure = figure_of(name)
    assert figure
    found: list[float] = figure.of(points).tolist()
    return found


def from_buckets(buckets: list[tuple[int, int]], q: Fraction) -> float:
    """Walks the buckets one by one to rank ceil(q * n); the middle of that one."""
    rank = max(math.ceil(q * sum(count for _, count in buckets)), 1)
    for index, count in buckets:
        rank -= count
        if rank <= 0:
            return float(2.0 ** ((index - 0.5) / 32) * 1e9)
    raise AssertionError("the rank lies beyond all buckets")


@settings(max_examples=30)
@given(span_lists(), st.sampled_from(["50", "90", "99", "99.9", "100", "0.5", "33"]))
def test_a_quantile_is_that_of_the_buckets(spans: list[Span], percent: str) -> None:
    """Rules would judge another quantile than views show: each against a walk through its point's own buckets."""
    points = of_spans(spans)
    q = Fraction(percent) / 100
    objects = points.points()
    expected = [
        from_buckets(list(zip(p.bucket_index.tolist(), p.bucket_count.tolist(), strict=True)), q) for p in objects
    ]
    assert values(f"p{percent}", points) == expected
    assert values(f"p{percent}", points) == [point.quantile_ns(float(q)) for point in objects]


@settings(max_examples=30)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_a_quantile_is_off_by_no_more_than_is_stated(durations: list[int], q: float) -> None:
    """The error that the documentation promises would not hold: against numpy on the durations themselves."""
    points = of_spans([Span(0, duration, row) for row, duration in enumerate(durations)])
    (found,) = quantiles_ns(points.rows, q).tolist()
    exact = float(np.quantile(durations, q, method="inverted_cdf"))
    assert abs(found / exact - 1) <= STATED * (1 + 1e-9)
    assert exact_bucket(int(exact)) == round(32 * math.log2(found / 1e9) + 0.5)


@settings(max_examples=30)
@given(span_lists())
def test_plain_figures_are_those_of_the_points(spans: list[Span]) -> None:
    """Mean, longest, time, calls or occupancy of another row would be judged."""
    points = of_spans(spans)
    objects = points.points()
    assert values("mean", points) == [point.sum_ns / point.count for point in objects]
    assert values("max", points) == [point.max_ns for point in objects]
    assert values("time", points) == [point.sum_ns for point in objects]
    assert values("calls", points) == [point.count for point in objects]
    assert values("occupancy", points) == pytest.approx([point.occupancy for point in objects], nan_ok=True, rel=1e-15)


def test_rows_without_buckets_have_no_quantile() -> None:
    """A point without executions would take the quantile of its neighbour."""
    points = of_spans([Span(0, 500), Span(100, 700, row=1, kind=Kind.KERNEL, launch=LAUNCH)])
    rows = points.rows
    bare = type(rows)(
        **{
            **{name: getattr(rows, name) for name in type(rows).__slots__},
            "bucket_row": rows.bucket_row[1:],
            "bucket_index": rows.bucket_index[1:],
            "bucket_count": rows.bucket_count[1:],
        }
    )
    first, second = quantiles_ns(bare, 0.5).tolist()
    assert math.isnan(first)
    assert second == points.points()[1].quantile_ns(0.5)
    assert np.isnan(quantiles_ns(points.of_series(lambda _: False).rows, 0.5)).all()

"""Batches folded in C equal numpy's sums, field by field; the numpy code itself is tested against brute force."""

from __future__ import annotations

from dataclasses import fields, replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Kind
from spanlite.native import folding, library
from spanlite.pipeline.fold import fold_batch, sum_natively
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.sums import Sums, sum_batch
from tests.contract.columns_strategy import batches
from tests.pipeline.conftest import Span, make_batch, span_lists
from tests.stack import load

WIDTHS = st.sampled_from([1, 7, 100, 250, 10**9, 10**18])


def natively(batch: Batch, width_ns: int) -> Sums | None:
    """By the library, which must be there."""
    native = library()
    assert native is not None
    return sum_natively(native, batch, width_ns)


def assert_equal(made: Sums | None, expected: Sums) -> None:
    """The same to the bit, dtypes included."""
    assert made is not None
    for field in fields(Sums):
        one, other = getattr(made, field.name), getattr(expected, field.name)
        assert one.dtype == other.dtype, field.name
        assert one.tolist() == other.tolist(), field.name


@given(span_lists(), WIDTHS)
def test_batches_of_few_values(spans: list[Span], width_ns: int) -> None:
    """Groups, ties, weights, copies, ranges and window edges."""
    batch = make_batch(spans)
    assume(not batch.columns.is_range.all())
    with patch.object(folding, "MOST_ENTRIES", 1 << 16):  # larger tables take long to clear, and show no more
        made = natively(batch, width_ns)
    if made is not None:  # windows too far apart for its tables
        assert_equal(made, sum_batch(batch, width_ns))


@given(batches(), WIDTHS)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_batches_of_any_values(batch: Batch, width_ns: int) -> None:
    """Starts, durations, weights and bytes up to the edge of their types."""
    assume(len(batch.columns) and not batch.columns.is_range.all())
    with patch.object(folding, "MOST_ENTRIES", 1 << 16):  # larger tables take long to clear, and show no more
        made = natively(batch, width_ns)
    if made is not None:
        assert_equal(made, sum_batch(batch, width_ns))


@pytest.mark.parametrize("rows", [512, 32_768])
@pytest.mark.parametrize("width_ns", [10**10, 10**8, 10**7])
def test_a_recorded_run(rows: int, width_ns: int) -> None:
    """The recorded serving run in batches as an agent cuts them."""
    batches, compared = load.recorded(rows), 0
    for batch in batches:
        made = None if batch.columns.is_range.all() else natively(batch, width_ns)
        compared += made is not None
        if made is not None:
            assert_equal(made, sum_batch(batch, width_ns))
    assert compared > len(batches) / 2


def test_numpy_takes_over_where_tables_grow_too_large() -> None:
    """The limits of both tables, and a fold that does not show them."""
    batch = make_batch([Span(0, 5, row=0), Span(10**6, 7, row=1)])
    entries = (10**6 + 1) * Kind.RANGE * 2 * 1 * 3  # windows, kinds, configs, stages, GPUs of make_batch
    registry = SeriesRegistry()
    expected = fold_batch(batch, 10**9, registry)
    with patch.object(folding, "MOST_ENTRIES", entries):
        assert_equal(natively(batch, 1), sum_batch(batch, 1))
    with patch.object(folding, "MOST_ENTRIES", entries - 1):
        assert natively(batch, 1) is None
        assert fold_batch(batch, 1, registry).count.tolist() == [1, 1]
    with patch.object(folding, "MOST_ENTRIES", 24):  # of groups; one group has 16 buckets from 5 to 7 ns
        assert_equal(natively(batch, 10**9), sum_batch(batch, 10**9))
    with patch.object(folding, "MOST_ENTRIES", 0):
        assert natively(batch, 10**9) is None
    assert expected.count.tolist() == [2]


@pytest.mark.parametrize("column", ["config", "stage", "place"])
@pytest.mark.parametrize("index", [-1, 1 << 20])
def test_an_index_that_points_nowhere_is_an_error_not_a_crash(column: str, index: int) -> None:
    """A batch that no decoder has checked cannot make the library read beyond a table."""
    batch = make_batch([Span(0, 5, row=0), Span(1, 7, row=1)])
    wrong = getattr(batch.columns, column).copy()
    wrong[1] = index
    with pytest.raises(IndexError, match="row 1 or a place"):
        natively(replace(batch, columns=replace(batch.columns, **{column: wrong})), 10**9)
    places = batch.columns.places.copy()
    places["gpu"] = index
    with pytest.raises(IndexError, match="a place of the batch"):
        natively(replace(batch, columns=replace(batch.columns, places=places)), 10**9)


def test_columns_need_not_be_contiguous() -> None:
    """A batch cut with a step folds as its copy does."""
    batch = make_batch([Span(at, 5 + at, row=at) for at in range(8)])
    stepped = replace(batch, columns=batch.columns.take(slice(0, 8, 2)))
    assert not stepped.columns.start_ns.flags.c_contiguous
    made = natively(stepped, 4)
    assert made is not None
    assert (made.window.tolist(), made.sum_ns.tolist()) == ([0, 1], [5 + 7, 9 + 11])
    assert np.array_equal(made.count, [2, 2])

"""Merging is addition: order, grouping and splits never show in a result, to the bit."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import Partial, empty_partial, merge, select
from spanlite.pipeline.points import points
from spanlite.pipeline.series import SeriesRegistry
from tests.pipeline.conftest import NO_TRACE, Span, brute_force, make_batch, plain, same_bits, span_lists

WIDTH_NS = 100


def split(spans: list[Span], random: Random) -> list[Batch]:
    """The rows in batches of random sizes, in random order."""
    edges = sorted({0, len(spans), *(random.randrange(len(spans) + 1) for _ in range(random.randrange(6)))})
    batches = [make_batch(spans[a:b]) for a, b in pairwise(edges)]
    random.shuffle(batches)
    return batches


def merge_randomly(parts: list[Partial], random: Random) -> Partial:
    """Merges a few at a time, whichever come, until one is left."""
    left = list(parts)
    while len(left) > 1:
        random.shuffle(left)
        taken = random.randrange(1, len(left) + 1)
        left[:taken] = [merge(left[:taken])]
    return merge(left)


@settings(max_examples=150, deadline=None)
@given(span_lists(most=40), st.randoms(use_true_random=False))
def test_splits_and_merge_trees_do_not_show(spans: list[Span], random: Random) -> None:
    """Any batches of the rows, merged in any tree and order, give the brute force's points, exemplars included."""
    registry = SeriesRegistry()
    parts = [fold_batch(batch, WIDTH_NS, registry) for batch in split(spans, random)]
    made = plain(points(merge_randomly(parts, random), WIDTH_NS, registry))
    assert made == brute_force(spans, WIDTH_NS)


@settings(max_examples=100, deadline=None)
@given(span_lists(most=40), st.randoms(use_true_random=False))
def test_merge_is_associative_and_commutative_to_the_bit(spans: list[Span], random: Random) -> None:
    """Within one registry a random tree of merges has the very bits, and dtypes, of one merge of all."""
    registry = SeriesRegistry()
    parts = [fold_batch(batch, WIDTH_NS, registry) for batch in split(spans, random)]
    assert same_bits(merge_randomly(parts, random), merge(parts))


@settings(max_examples=50, deadline=None)
@given(span_lists(most=40))
def test_nothing_is_neutral_and_merging_again_changes_nothing(spans: list[Span]) -> None:
    """Adding empty partials, on either side, and merging what is merged leave every bit in place."""
    once = merge([fold_batch(make_batch(spans), WIDTH_NS, SeriesRegistry())])
    assert same_bits(merge([once]), once)
    assert same_bits(merge([empty_partial(), once, empty_partial()]), once)


def test_merging_nothing_is_nothing() -> None:
    """No partials, or only empty ones, give a partial without rows and with the right dtypes."""
    full = fold_batch(make_batch([Span(0)]), WIDTH_NS, SeriesRegistry())
    for none in (merge([]), merge([empty_partial(), empty_partial()])):
        assert len(none) == 0
        assert [getattr(none, name).dtype for name in Partial.__slots__] == [
            getattr(full, name).dtype for name in Partial.__slots__
        ]


@settings(max_examples=50, deadline=None)
@given(span_lists(most=40), st.randoms(use_true_random=False))
def test_rows_taken_apart_add_up_again(spans: list[Span], random: Random) -> None:
    """A mask and its opposite select all rows with all buckets, none twice."""
    whole = merge([fold_batch(make_batch(spans), WIDTH_NS, SeriesRegistry())])
    keep = np.array([random.random() < 0.5 for _ in range(len(whole))], dtype=bool)
    chosen, rest = select(whole, keep), select(whole, ~keep)
    assert chosen.window.tolist() == whole.window[keep].tolist()
    assert np.bincount(chosen.bucket_row, chosen.bucket_count, len(chosen)).tolist() == chosen.count.tolist()
    assert same_bits(merge([rest, chosen]), whole)


def test_rows_come_out_sorted() -> None:
    """By window, then series; buckets by row, then index: what `points` relies on."""
    spans = [Span(start, 10 ** (row % 4), row, f"k{row % 3}") for row, start in enumerate([350, 20, 120, 10, 330, 110])]
    registry = SeriesRegistry()
    parts = [fold_batch(make_batch([span]), WIDTH_NS, registry) for span in spans]
    merged = merge(parts)
    rows = list(zip(merged.window.tolist(), merged.series.tolist(), strict=True))
    buckets = list(zip(merged.bucket_row.tolist(), merged.bucket_index.tolist(), strict=True))
    assert rows == sorted(set(rows))
    assert buckets == sorted(set(buckets))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_equally_long_spans_are_told_apart_by_start_then_id(order: tuple[int, ...]) -> None:
    """The exemplar of a tie is the earliest, whichever batch comes first; among those the lowest id."""
    spans = [Span(7, 500, 0), Span(5, 500, 1, trace=b"trace-a........."), Span(5, 500, 2, trace=b"trace-b.........")]
    registry = SeriesRegistry()
    merged = merge([fold_batch(make_batch([spans[at]]), WIDTH_NS, registry) for at in order])
    winner = min(spans[1:], key=lambda span: span.span_id)
    assert merged.exemplar_span.tolist() == [winner.span_id]
    assert merged.exemplar_trace.tobytes() == winner.trace != NO_TRACE
    assert merged.exemplar_start_ns.tolist() == [5]

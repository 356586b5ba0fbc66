"""Partials as bytes, by GPU: nothing is lost on the way between operators or in their state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import OBSERVATIONS
from spanlite.contract.errors import StateError
from spanlite.contract.points import Series
from spanlite.contract.state import decode_partial, encode_partial
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import Partial, empty_partial, merge
from spanlite.pipeline.pieces import by_gpu, pack, partial_of, unpack
from spanlite.pipeline.points import Totals, points
from spanlite.pipeline.series import SeriesRegistry
from tests.pipeline.conftest import Span, brute_force, make_batch, plain, same_bits, span_lists

WIDTH_NS = 100


def folded(spans: list[Span], registry: SeriesRegistry) -> Partial:
    """Merged partial of one batch."""
    return merge([fold_batch(make_batch(spans), WIDTH_NS, registry)])


@settings(max_examples=100, deadline=None)
@given(span_lists(), span_lists(most=5))
def test_any_partial_there_and_back(spans: list[Span], others: list[Span]) -> None:
    """In its own registry a partial comes back to the bit; in one that numbers otherwise it has the same points."""
    registry, elsewhere = SeriesRegistry(), SeriesRegistry()
    folded(others, registry)
    partial = folded(spans, registry)
    data = pack(partial, registry)
    assert same_bits(unpack(data, registry), partial)
    elsewhere.number(Span(0, kernel="first here").series)
    assert plain(points(unpack(data, elsewhere), WIDTH_NS, elsewhere)) == brute_force(spans, WIDTH_NS)
    assert data == pack(unpack(data, registry), registry)


def test_only_series_that_are_named_are_packed() -> None:
    """A piece of one series is small, however many the registry has seen."""
    registry = SeriesRegistry()
    folded([Span(0, row=row, kernel=f"k{row}") for row in range(500)], registry)
    data = pack(folded([Span(0, kernel="k7")], registry), registry)
    series, columns = decode_partial(data)
    assert (len(series), columns["series_index"].tolist()) == (1, [0])
    assert len(data) < 400


def test_nothing_is_packed_as_nothing() -> None:
    """An empty partial is a piece without rows and keeps its dtypes."""
    registry = SeriesRegistry()
    assert same_bits(unpack(pack(empty_partial(), registry), registry), empty_partial())


@settings(max_examples=100, deadline=None)
@given(span_lists())
def test_each_gpu_gets_just_its_rows(spans: list[Span]) -> None:
    """The parts are by GPU or, of observations without one, host; each once, in order, together what the whole held."""
    registry = SeriesRegistry()
    parts = list(by_gpu(folded(spans, registry), registry))
    uuids = [uuid for uuid, _ in parts]
    assert uuids == sorted(set(uuids))
    expected = brute_force(spans, WIDTH_NS)

    def place(series: Series) -> str:
        return series.gpu_uuid or ("host:" if series.kind in OBSERVATIONS else "")

    for uuid, part in parts:
        mine = {key: what for key, what in expected.items() if place(key[1]) == uuid}
        assert plain(points(part, WIDTH_NS, registry)) == mine
        assert mine
    assert {place(series) for _, series in expected} == set(uuids)


@settings(max_examples=100, deadline=None)
@given(span_lists())
def test_cumulative_points_are_a_partial_again(spans: list[Span]) -> None:
    """Totals read back from their points have the sums, extremes, buckets and exemplars that they had."""
    registry = SeriesRegistry()
    whole = folded(spans, registry)
    made = Totals(WIDTH_NS, registry).add(whole)
    flat = merge([replace(whole, window=whole.window * 0)])
    assert same_bits(merge([partial_of(made, registry)]), flat)


def test_points_without_exemplar_or_at_all_are_partials_too() -> None:
    """A point of another writer may have none; no points are no rows."""
    registry = SeriesRegistry()
    (point,) = Totals(WIDTH_NS, registry).add(folded([Span(5, 8)], registry))
    partial = partial_of([replace(point, exemplar=None)], registry)
    assert (partial.exemplar_trace.tobytes(), partial.exemplar_span.tolist(), partial.max_ns.tolist()) == (
        bytes(16),
        [0],
        [8],
    )
    assert same_bits(partial_of([], registry), empty_partial())


@pytest.mark.parametrize("series", [b"\xff", b"\x10\x63"], ids=["not protobuf", "unknown kind"])
def test_a_piece_whose_series_cannot_be_read_is_a_state_error(series: bytes) -> None:
    """Damaged state is told as such, not as a bad point."""
    registry = SeriesRegistry()
    _, columns = decode_partial(pack(folded([Span(0)], registry), registry))
    with pytest.raises(StateError, match=r"series cannot be read.*restore from an earlier savepoint"):
        unpack(encode_partial([series], columns), registry)


def test_a_recorded_run_there_and_back(recorded: list[Batch]) -> None:
    """Windows of 10 ms over 20,000 executions of an H200 survive to the bit."""
    registry = SeriesRegistry()
    whole = merge([fold_batch(batch, 10**7, registry) for batch in recorded])
    assert same_bits(unpack(pack(whole, registry), registry), whole)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_a_piece_or_a_state_error(data: bytes) -> None:
    """What is read is a piece that can be packed again; what is not is told as damaged state, and nothing else."""
    registry = SeriesRegistry()
    try:
        piece = unpack(b"\x08\x01" + data, registry)
    except StateError as refused:
        assert "restore" in str(refused)  # noqa: PT017  # either outcome is right
    else:
        assert same_bits(unpack(pack(piece, registry), registry), piece)

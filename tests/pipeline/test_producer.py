"""One producer's fold: what comes out depends on its batches and their order alone, restarts included."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Kind
from spanlite.contract.points import Point
from spanlite.contract.state import decode_progress, encode_progress
from spanlite.pipeline.pieces import pack, unpack
from spanlite.pipeline.points import points
from spanlite.pipeline.producer import Folded, ProducerFold
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy
from tests.pipeline.conftest import Expectation, Span, brute_force, make_batch, plain, span_lists

WIDTH_NS = 100
POLICY = WindowPolicy(WIDTH_NS, lateness_ns=50)


def kept(fold: ProducerFold) -> ProducerFold:
    """The fold as it is after its state was written and read in another process."""
    registry = SeriesRegistry()
    pending = [unpack(pack(partial, fold.registry), registry) for partial in fold.windows.pending]
    progress = decode_progress(encode_progress(fold.progress))
    return ProducerFold(POLICY, registry, progress=progress, pending=pending)


def said(folded: Folded | None, registry: SeriesRegistry) -> tuple[Expectation, Expectation, int, int] | None:
    """Closed and late points and the counts."""
    if folded is None:
        return None
    closed, late = (plain(points(part, WIDTH_NS, registry)) for part in (folded.closed, folded.late))
    return closed, late, folded.spans, folded.ranges


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), span_lists(most=6)), max_size=10),
    st.sets(st.integers(0, 9), max_size=2),
    st.randoms(use_true_random=False),
)
def test_a_restart_after_any_batch_does_not_show(
    deliveries: list[tuple[int, list[Span]]], drains: set[int], random: Random
) -> None:
    """With any deliveries, duplicates and drains, a fold that is written and read again says what the other says."""
    one, other = ProducerFold(POLICY, SeriesRegistry()), ProducerFold(POLICY, SeriesRegistry())
    for at, (sequence, spans) in enumerate(deliveries):
        moved = [span._replace(start_ns=span.start_ns + 60 * sequence) for span in spans]
        batch = make_batch(moved, sequence=sequence)
        assert said(one.take(batch), one.registry) == said(other.take(batch), other.registry)
        if random.random() < 0.5:
            other = kept(other)
        if at in drains:
            assert said(one.drain(), one.registry) == said(other.drain(), other.registry)
        assert one.progress == other.progress
    assert said(one.drain(), one.registry) == said(other.drain(), other.registry)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 900)), max_size=20))
def test_each_sequence_is_folded_once_and_wholly(deliveries: list[tuple[int, int]]) -> None:
    """Over closings, late rows and the last drain, the points of each sequence's first delivery add up to its spans."""
    fold = ProducerFold(POLICY, SeriesRegistry())
    first: dict[int, int] = {}
    made: list[Point] = []
    for sequence, start in deliveries:
        folded = fold.take(make_batch([Span(start, row=sequence), Span(start, row=sequence + 1)], sequence=sequence))
        assert (folded is None) is (sequence in first)
        first.setdefault(sequence, start)
        for part in (folded.closed, folded.late) if folded else ():
            made += points(part, WIDTH_NS, fold.registry)
    made += points(fold.drain().closed, WIDTH_NS, fold.registry)
    found: dict[int, int] = {}
    for point in made:
        found[point.window_start_ns] = found.get(point.window_start_ns, 0) + point.spans
    expected: dict[int, int] = {}
    for start in first.values():
        expected[start // WIDTH_NS * WIDTH_NS] = expected.get(start // WIDTH_NS * WIDTH_NS, 0) + 2
    assert found == expected


def test_what_a_batch_led_to_is_told_apart() -> None:
    """One batch with a range, a late span, and one that closes a window: each is where it belongs."""
    fold = ProducerFold(POLICY, SeriesRegistry())
    early = [Span(10, row=0), Span(170, row=1)]
    batch = make_batch(
        [Span(20, row=2), Span(0, row=3, kind=Kind.RANGE), Span(260, row=4), Span(180, row=5)], sequence=1
    )
    assert said(fold.take(make_batch(early)), fold.registry) == (brute_force(early[:1], WIDTH_NS), {}, 2, 0)
    closed = brute_force([early[1], Span(180, row=5)], WIDTH_NS)
    assert said(fold.take(batch), fold.registry) == (closed, brute_force([Span(20, row=2)], WIDTH_NS), 3, 1)
    assert fold.take(batch) is None
    assert fold.progress == (((0, 1),), 260, 2)


def test_batches_without_work_take_their_sequence_and_move_nothing(recorded: list[Batch]) -> None:
    """Empty batches and those of ranges are not taken for missing, and the watermark stays."""
    fold = ProducerFold(POLICY, SeriesRegistry())
    for sequence, spans in enumerate([[], [Span(10**9, kind=Kind.RANGE)]]):
        assert said(fold.take(make_batch(spans, sequence=sequence)), fold.registry) == ({}, {}, 0, sequence)
    assert fold.progress == (((0, 1),), None, None)
    assert len(recorded) > 1

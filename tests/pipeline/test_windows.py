"""When a producer's windows close, what is late, and that nothing is lost or counted twice on the way."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Kind
from spanlite.contract.points import Point
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.points import points
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy, Windows
from tests.pipeline.conftest import Span, brute_force, make_batch, plain, span_lists

WIDTH_NS = 100


class Pipe:
    """Windows with a registry of their own; closed points come out as [(window start, spans)].

    `late` are the late points so far.
    """

    def __init__(self, lateness_ns: int | None = 50) -> None:
        self.policy = WindowPolicy(WIDTH_NS, lateness_ns)
        self.windows = Windows(self.policy)
        self.registry = SeriesRegistry()
        self.late: list[Point] = []

    def add(self, batch: Batch) -> None:
        late = self.windows.add(batch, fold_batch(batch, WIDTH_NS, self.registry))
        self.late += points(late, WIDTH_NS, self.registry)

    @property
    def late_spans(self) -> int:
        return sum(point.spans for point in self.late)

    def restart(self) -> None:
        """Goes on from what must be kept, and nothing else."""
        old = self.windows
        self.windows = Windows(
            self.policy, newest_ns=old.newest_ns, closed_before=old.closed_before, pending=tuple(old.pending)
        )

    def close_due(self) -> list[Point]:
        return points(self.windows.close_due(), WIDTH_NS, self.registry)

    def drain(self) -> list[Point]:
        return points(self.windows.drain(), WIDTH_NS, self.registry)

    def feed(self, *starts: int) -> list[tuple[int, int]]:
        """Adds one batch with these starts, and says which windows that closed."""
        self.add(make_batch([Span(start, row=row) for row, start in enumerate(starts)]))
        return counted(self.close_due())


def counted(made: list[Point]) -> list[tuple[int, int]]:
    """Window start and spans of each point."""
    return [(point.window_start_ns, point.spans) for point in made]


@pytest.mark.parametrize(
    ("first", "lateness_ns", "closing"), [(10, 50, 150), (-90, 50, 50), (-1, 0, 0), (99, 100, 200)]
)
def test_a_window_closes_when_the_watermark_is_the_lateness_past_its_end(
    first: int, lateness_ns: int, closing: int
) -> None:
    """One nanosecond before nothing closes; at it the window comes out, before 1970 as well."""
    pipe = Pipe(lateness_ns)
    assert pipe.feed(first) == []
    assert pipe.feed(closing - 1) == []
    assert pipe.feed(closing) == [
        (first // WIDTH_NS * WIDTH_NS, 1 if (closing - 1) // WIDTH_NS != first // WIDTH_NS else 2)
    ]


def test_a_closed_window_comes_out_once_and_later_spans_are_late() -> None:
    """Spans for a closed window come back at once as late; those of the same batch for an open one do not."""
    pipe = Pipe()
    pipe.feed(10, 110)
    assert pipe.feed(150) == [(0, 1)]
    assert pipe.feed(20, 99, 100, 120) == []
    assert counted(pipe.late) == [(0, 2)]
    assert counted(pipe.drain()) == [(100, 4)]


def test_spans_within_the_lateness_are_on_time() -> None:
    """A span that is overtaken by less than the lateness still counts in its window."""
    pipe = Pipe()
    assert pipe.feed(10) == []
    assert pipe.feed(149) == []
    assert pipe.feed(99) == []
    assert pipe.feed(150) == [(0, 2)]
    assert pipe.late == []


def test_a_batch_closes_windows_only_when_all_of_it_is_in() -> None:
    """Old and new spans in one batch: the new ones do not make the old ones late."""
    pipe = Pipe()
    assert pipe.feed(900, 5) == [(0, 1)]
    assert pipe.late == []


def test_several_windows_close_in_order() -> None:
    """A jump in time closes all that is due, oldest first; windows without spans have no points."""
    pipe = Pipe(lateness_ns=500)
    pipe.feed(310, 10, 20, 199)
    assert pipe.feed(1000) == [(0, 2), (100, 1), (300, 1)]


def test_without_lateness_only_the_end_closes() -> None:
    """With None no watermark closes anything; `drain` brings all windows at once, and nothing is late."""
    pipe = Pipe(None)
    assert pipe.feed(10**15) == []
    assert pipe.feed(-500, 10) == []
    assert counted(pipe.drain()) == [(-500, 1), (0, 1), (10**15, 1)]
    assert pipe.late == []


def test_ranges_do_not_move_the_watermark() -> None:
    """Host ranges are no work: their starts close nothing, alone or beside work."""
    pipe = Pipe()
    pipe.feed(10)
    pipe.add(make_batch([Span(10**9, kind=Kind.RANGE)]))
    pipe.add(make_batch([Span(10**9, kind=Kind.RANGE), Span(12, row=1)]))
    assert pipe.close_due() == []
    assert pipe.windows.newest_ns == 12


def test_before_the_first_span_there_is_no_watermark() -> None:
    """Nothing in, nothing out: closing and draining an empty pipeline is harmless."""
    pipe = Pipe()
    pipe.add(make_batch([]))
    assert pipe.windows.newest_ns is None
    assert (pipe.close_due(), pipe.drain()) == ([], [])
    assert pipe.feed(-500, 10) == [(-500, 1)]
    assert pipe.late == []


def test_draining_reopens_nothing() -> None:
    """After a drain, and after a second one that finds nothing, spans of drained windows are late."""
    pipe = Pipe()
    pipe.feed(10_050)
    assert counted(pipe.drain()) == [(10_000, 1)]
    assert pipe.drain() == []
    pipe.feed(10_060, 150)
    assert pipe.late_spans == 2
    assert pipe.drain() == []


@settings(max_examples=100, deadline=None)
@given(span_lists(most=40), st.randoms(use_true_random=False))
def test_arrival_order_does_not_show_when_only_the_end_closes(spans: list[Span], random: Random) -> None:
    """Spans one by one, shuffled, give the brute force's points."""
    pipe = Pipe(None)
    for span in random.sample(spans, len(spans)):
        pipe.add(make_batch([span]))
        assert pipe.close_due() == []
    assert plain(pipe.drain()) == brute_force(spans, WIDTH_NS)
    assert pipe.late == []


def test_many_pending_batches_are_merged_on_the_way() -> None:
    """A thousand batches for one open window keep few partials in memory and lose none."""
    pipe = Pipe(None)
    spans = [Span(row % 250, 100 + row, row, f"k{row % 7}") for row in range(1000)]
    for at in range(1000):
        pipe.add(make_batch([spans[(at * 617) % 1000]]))
        assert len(pipe.windows.pending) < 16
    assert plain(pipe.drain()) == brute_force(spans, WIDTH_NS)


def test_a_jump_ahead_makes_late_what_follows_and_loses_nothing() -> None:
    """One start in the far future closes all; what comes then for the present comes out at once, each time."""
    pipe = Pipe()
    pipe.feed(10)
    assert pipe.feed(10**15) == [(0, 1)]
    assert pipe.feed(20, 130) == []
    assert pipe.feed(140) == []
    assert counted(pipe.late) == [(0, 1), (100, 1), (100, 1)]
    assert counted(pipe.drain()) == [(10**15, 1)]


Closings = list[tuple[int, int]]


def judged(batches: list[list[int]], lateness_ns: int, drains: set[int]) -> tuple[Closings, Closings, Closings]:
    """Which (window start, row) come out by closing, which late, which stay: span by span, in whole numbers.

    `drains` are numbers of batches after which everything is drained.
    """
    out: Closings = []
    late: Closings = []
    waiting: Closings = []
    closed_before: int | None = None
    newest: int | None = None
    row = 0
    for at, starts in enumerate(batches):
        for start in starts:
            window = start // WIDTH_NS * WIDTH_NS
            (waiting if closed_before is None or window >= closed_before else late).append((window, row))
            newest = start if newest is None else max(newest, start)
            row += 1
        edges = [closed_before] if closed_before is not None else []
        if newest is not None:
            edges.append((newest - lateness_ns) // WIDTH_NS * WIDTH_NS)
        if at in drains and waiting:
            edges.append(max(waiting)[0] + WIDTH_NS)
        closed_before = max(edges, default=None)
        if closed_before is not None:
            out += [each for each in waiting if each[0] < closed_before]
            waiting = [each for each in waiting if each[0] >= closed_before]
    return out, late, waiting


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(-300, 1500), max_size=3), max_size=30),
    st.sampled_from([0, 50, 99, 100, 400]),
    st.sets(st.integers(0, 30), max_size=3),
    st.randoms(use_true_random=False),
)
def test_each_span_comes_out_once_on_time_or_late(
    batches: list[list[int]], lateness_ns: int, drains: set[int], random: Random
) -> None:
    """For any arrivals, drains and restarts on the way, each span is in one point: of a closing or of a late row."""
    pipe = Pipe(lateness_ns)
    made: list[Point] = []
    spans: list[Span] = []
    for at, starts in enumerate(batches):
        batch = [Span(start, row=len(spans) + place) for place, start in enumerate(starts)]
        spans += batch
        pipe.add(make_batch(batch))
        made += pipe.close_due()
        if at in drains:
            made += pipe.drain()
        if random.random() < 0.3:
            pipe.restart()
    out, late, waiting = judged(batches, lateness_ns, drains)
    assert plain(made) == brute_force((spans[row] for _, row in out), WIDTH_NS)
    assert Counter(window for window, _ in late) == Counter(
        point.window_start_ns for point in pipe.late for _ in range(point.spans)
    )
    assert plain(pipe.drain()) == brute_force((spans[row] for _, row in waiting), WIDTH_NS)
    assert len(out) + len(late) + len(waiting) == len(spans)

"""When windows close, what is late, and that nothing is lost or counted twice on the way."""

from __future__ import annotations

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
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


class Pipe:
    """Windows with a registry of their own; closed points come out as [(window start, spans)]."""

    def __init__(self, lateness_ns: int | None = 50, idle_ns: int = 1000) -> None:
        self.windows = Windows(WindowPolicy(WIDTH_NS, lateness_ns, idle_ns))
        self.registry = SeriesRegistry()

    def add(self, batch: Batch) -> None:
        self.windows.add(batch, fold_batch(batch, WIDTH_NS, self.registry))

    def close_due(self) -> list[Point]:
        return points(self.windows.close_due(), WIDTH_NS, self.registry)

    def drain(self) -> list[Point]:
        return points(self.windows.drain(), WIDTH_NS, self.registry)

    def feed(self, *starts: int, producer: bytes = A) -> list[tuple[int, int]]:
        """Adds one batch with these starts, and says which windows that closed."""
        self.add(make_batch([Span(start, row=row) for row, start in enumerate(starts)], producer=producer))
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
    """Spans for a closed window are counted and left out; those of the same batch for an open one are not."""
    pipe = Pipe()
    pipe.feed(10, 110)
    assert pipe.feed(150) == [(0, 1)]
    assert pipe.feed(20, 99, 100, 120) == []
    assert pipe.windows.late_spans == 2
    assert counted(pipe.drain()) == [(100, 4)]


def test_spans_within_the_lateness_are_on_time() -> None:
    """A span that is overtaken by less than the lateness still counts in its window."""
    pipe = Pipe()
    assert pipe.feed(10) == []
    assert pipe.feed(149) == []
    assert pipe.feed(99) == []
    assert pipe.feed(150) == [(0, 2)]
    assert pipe.windows.late_spans == 0


def test_a_batch_closes_windows_only_when_all_of_it_is_in() -> None:
    """Old and new spans in one batch: the new ones do not make the old ones late."""
    pipe = Pipe()
    assert pipe.feed(900, 5) == [(0, 1)]
    assert pipe.windows.late_spans == 0


def test_several_windows_close_in_order() -> None:
    """A jump in time closes all that is due, oldest first; windows without spans have no points."""
    pipe = Pipe(lateness_ns=500)
    pipe.feed(310, 10, 20, 199)
    assert pipe.feed(1000) == [(0, 2), (100, 1), (300, 1)]


def test_the_slowest_producer_holds_windows_open() -> None:
    """The watermark is the least of the producers' newest starts."""
    pipe = Pipe()
    pipe.feed(10, producer=A)
    pipe.feed(20, producer=B)
    assert pipe.feed(900, producer=A) == []
    assert pipe.windows.watermark_ns == 20
    assert pipe.feed(149, producer=B) == []
    assert pipe.feed(150, producer=B) == [(0, 2)]
    assert pipe.windows.watermark_ns == 150


def test_an_idle_producer_lets_go() -> None:
    """At `idle_ns` behind the newest it still holds windows open, one nanosecond further it does not."""
    pipe = Pipe(idle_ns=1000)
    pipe.feed(10, producer=A)
    pipe.feed(10, producer=B)
    assert pipe.feed(1010, producer=B) == []
    assert pipe.feed(1011, producer=B) == [(0, 2)]
    assert pipe.feed(20, producer=A) == []
    assert pipe.windows.late_spans == 1
    assert pipe.feed(1020, producer=A) == []
    assert pipe.windows.watermark_ns == 1011


def test_a_new_producer_with_old_spans_takes_nothing_back() -> None:
    """The watermark may fall when a producer appears; windows that are closed stay closed."""
    pipe = Pipe()
    pipe.feed(10, producer=A)
    assert pipe.feed(450, producer=A) == [(0, 1)]
    assert pipe.feed(50, 420, producer=B) == []
    assert pipe.windows.watermark_ns == 420
    assert pipe.windows.late_spans == 1
    assert pipe.feed(440, producer=B) == []
    assert counted(pipe.drain()) == [(400, 3)]


def test_producers_that_ended_are_forgotten() -> None:
    """One agent after the other, a thousand of them: only those that still hold the watermark are kept."""
    pipe = Pipe(idle_ns=300)
    for number in range(1000):
        pipe.feed(100 * number, producer=number.to_bytes(16, "big"))
        assert len(pipe.windows._newest_ns) <= 6
    assert pipe.windows.late_spans == 0


def test_without_lateness_only_the_end_closes() -> None:
    """With None no watermark closes anything; `drain` brings all windows at once, and nothing is late."""
    pipe = Pipe(None)
    assert pipe.feed(10**15) == []
    assert pipe.feed(-500, 10) == []
    assert counted(pipe.drain()) == [(-500, 1), (0, 1), (10**15, 1)]
    assert pipe.windows.late_spans == 0


def test_ranges_do_not_move_the_watermark() -> None:
    """Host ranges are no work: their starts close nothing."""
    pipe = Pipe()
    pipe.feed(10)
    pipe.add(make_batch([Span(10**9, kind=Kind.RANGE)]))
    assert pipe.close_due() == []
    assert pipe.windows.watermark_ns == 10


def test_before_the_first_span_there_is_no_watermark() -> None:
    """Nothing in, nothing out: closing and draining an empty pipeline is harmless."""
    pipe = Pipe()
    pipe.add(make_batch([]))
    assert pipe.windows.watermark_ns is None
    assert (pipe.close_due(), pipe.drain()) == ([], [])
    assert pipe.feed(-500, 10) == [(-500, 1)]
    assert pipe.windows.late_spans == 0


def test_draining_reopens_nothing() -> None:
    """After a drain, and after a second one that finds nothing, spans of drained windows are late."""
    pipe = Pipe()
    pipe.feed(10_050)
    assert counted(pipe.drain()) == [(10_000, 1)]
    assert pipe.drain() == []
    pipe.feed(10_060, 150)
    assert pipe.windows.late_spans == 2
    assert pipe.drain() == []


@settings(max_examples=100, deadline=None)
@given(span_lists(most=40), st.randoms(use_true_random=False))
def test_arrival_order_does_not_show_when_only_the_end_closes(spans: list[Span], random: Random) -> None:
    """Spans one by one, shuffled over three producers, give the brute force's points."""
    pipe = Pipe(None)
    for span in random.sample(spans, len(spans)):
        pipe.add(make_batch([span], producer=random.choice([A, B, C])))
        assert pipe.close_due() == []
    assert plain(pipe.drain()) == brute_force(spans, WIDTH_NS)
    assert pipe.windows.late_spans == 0


def test_many_pending_batches_are_merged_on_the_way() -> None:
    """A thousand batches for one open window keep few partials in memory and lose none."""
    pipe = Pipe(None)
    spans = [Span(row % 250, 100 + row, row, f"k{row % 7}") for row in range(1000)]
    for at in range(1000):
        pipe.add(make_batch([spans[(at * 617) % 1000]]))
        assert len(pipe.windows._pending) <= 64
    assert plain(pipe.drain()) == brute_force(spans, WIDTH_NS)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-300, 1500), st.sampled_from([A, B, C])), max_size=40),
    st.sampled_from([0, 50, 99, 100, 400]),
    st.sampled_from([0, 200, 5000]),
)
def test_each_span_is_in_one_point_or_late(arrivals: list[tuple[int, bytes]], lateness_ns: int, idle_ns: int) -> None:
    """For any arrivals, spans in points plus late ones are all, and late are just those behind an earlier watermark."""
    pipe = Pipe(lateness_ns, idle_ns)
    newest: dict[bytes, int] = {}
    furthest: int | None = None
    on_time: list[Span] = []
    made: list[Point] = []
    for row, (start, producer) in enumerate(arrivals):
        end = start // WIDTH_NS * WIDTH_NS + WIDTH_NS
        if furthest is None or end + lateness_ns > furthest:
            on_time.append(Span(start, row=row))
        newest[producer] = max(start, newest.get(producer, start))
        watermark = min(each for each in newest.values() if each >= max(newest.values()) - idle_ns)
        furthest = watermark if furthest is None else max(furthest, watermark)
        pipe.add(make_batch([Span(start, row=row)], producer=producer))
        made += pipe.close_due()
        assert pipe.windows.watermark_ns == watermark
        assert pipe.windows.late_spans == row + 1 - len(on_time)
    made += pipe.drain()
    assert plain(made) == brute_force(on_time, WIDTH_NS)
    assert sum(point.spans for point in made) + pipe.windows.late_spans == len(arrivals)

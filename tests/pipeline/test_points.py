"""Rows to points, and running totals."""

from __future__ import annotations

from itertools import count
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Kind
from spanlite.contract.point_codec import decode_point, encode_point
from spanlite.contract.points import Point, Series
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import Partial, empty_partial, merge, select
from spanlite.pipeline.points import Totals, points
from spanlite.pipeline.series import SeriesRegistry
from tests.pipeline.conftest import LAUNCH, Expected, Span, bits_of, brute_force, make_batch, span_lists

WIDTH_NS = 100


def windows(whole: Partial) -> list[Partial]:
    """A merged partial as one partial a window, oldest first."""
    return [select(whole, whole.window == window) for window in sorted(set(whole.window.tolist()))]


def running(
    batches: list[Batch], *, at_once: bool = False, width_ns: int = WIDTH_NS
) -> tuple[list[Point], list[Point]]:
    """Window points and cumulative points, window after window or all at once."""
    registry = SeriesRegistry()
    totals = Totals(width_ns, registry)
    whole = merge([fold_batch(batch, width_ns, registry) for batch in batches])
    cumulative = [point for part in ([whole] if at_once else windows(whole)) for point in totals.add(part)]
    return points(whole, width_ns, registry), cumulative


def newest(cumulative: list[Point]) -> dict[Series, Point]:
    """The last point of each series."""
    return {point.series: point for point in cumulative}


def what(point: Point) -> Expected:
    """A point in the form of the brute force."""
    longest = point.exemplar
    assert longest is not None
    return Expected(
        point.count,
        point.spans,
        point.sum_ns,
        point.min_ns,
        point.max_ns,
        point.warp_ns,
        point.bytes,
        tuple(zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True)),
        (longest.trace_id, longest.span_id, longest.duration_ns, longest.start_ns),
    )


def test_a_point_says_all_of_its_row() -> None:
    """Every field of one point of a window that is not the first, and of a registry with several series."""
    registry = SeriesRegistry()
    spans = [
        Span(5, 8, 0, "relu"),
        Span(230, 1000, 1, launch=LAUNCH, stage="decode", weight=2, trace=b"trace-a........."),
        Span(299, 10, 2, launch=LAUNCH, stage="decode"),
    ]
    _, point = points(merge([fold_batch(make_batch(spans), WIDTH_NS, registry)]), WIDTH_NS, registry)
    assert (point.window_start_ns, point.window_end_ns, point.cumulative) == (200, 300, False)
    assert point.series == spans[1].series
    # 1 us lies in (2^-20, 2^(-638/32)] s, 10 ns in (2^(-851/32), 2^(-850/32)] s
    assert what(point) == Expected(
        count=3,
        spans=2,
        sum_ns=2010,
        min_ns=10,
        max_ns=1000,
        warp_ns=2010 * 48,
        moved=0,
        buckets=((-850, 1), (-637, 2)),
        exemplar=(b"trace-a.........", spans[1].span_id, 1000, 230),
    )


def test_no_rows_no_points() -> None:
    """Nothing closed gives no points, and totals that say nothing."""
    registry = SeriesRegistry()
    assert points(empty_partial(), WIDTH_NS, registry) == []
    assert Totals(WIDTH_NS, registry).add(empty_partial()) == []


@settings(max_examples=100, deadline=None)
@given(span_lists(most=40))
def test_totals_are_the_brute_force_over_all_windows(spans: list[Span]) -> None:
    """The newest cumulative point of each series is what one endless window would have held."""
    window_points, cumulative = running([make_batch(spans)])
    last = newest(cumulative)
    # one window as wide as all of time, moved so that no start is negative
    shifted = [span._replace(start_ns=span.start_ns + 10**6) for span in spans]
    expected = {series: group for (_, series), group in brute_force(shifted, 10**12).items()}
    assert last.keys() == expected.keys()
    for series, group in expected.items():
        start = group.exemplar[3] - 10**6
        moved = Expected(**{**vars(group), "exemplar": (*group.exemplar[:3], start)})
        assert what(last[series]) == moved
        mine = [point for point in window_points if point.series == series]
        assert last[series].count == sum(point.count for point in mine)
        assert last[series].window_start_ns == min(point.window_start_ns for point in mine)
        assert last[series].window_end_ns == max(point.window_end_ns for point in mine)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-300, 300), st.floats(), st.integers(0, 2**40)), min_size=1, max_size=30),
    st.integers(1, 7),
    st.randoms(use_true_random=False),
)
def test_observations_in_any_split(seen: list[tuple[int, float, int]], size: int, random: Random) -> None:
    """A gauge's value is the newest one, NaN included, a counter's the exact sum, however they are cut and mixed."""
    gauge, counter = Span(0, 0, kind=Kind.GAUGE), Span(0, 0, kind=Kind.COUNTER)
    spans = [gauge._replace(start_ns=start, moved=bits_of(value)) for start, value, _ in seen]
    spans += [counter._replace(start_ns=start, moved=increment) for start, _, increment in seen]
    random.shuffle(spans)
    spans = [span._replace(row=row) for row, span in enumerate(spans)]
    registry = SeriesRegistry()
    totals = Totals(WIDTH_NS, registry)
    told: dict[int, Point] = {}
    for at in range(0, len(spans), size):
        made = totals.add(fold_batch(make_batch(spans[at : at + size]), WIDTH_NS, registry))
        told |= {point.series.kind: decode_point(encode_point(point)) for point in made}
    newest = max(seen, key=lambda each: (each[0], -(bits_of(each[1]) % 2**64)))
    value = told[Kind.GAUGE].value
    assert value is not None
    assert bits_of(value) == bits_of(newest[1])
    assert (told[Kind.GAUGE].bytes, told[Kind.GAUGE].sum_ns, told[Kind.GAUGE].count) == (0, 0, len(seen))
    assert told[Kind.COUNTER].bytes == sum(increment for *_, increment in seen)
    assert told[Kind.COUNTER].value is None


@settings(max_examples=50, deadline=None)
@given(st.lists(span_lists(most=15), max_size=4))
def test_totals_never_fall(closings: list[list[Span]]) -> None:
    """From one closing to the next each sum, each bucket and the end grow or stay; the start falls at most."""
    registry = SeriesRegistry()
    totals = Totals(WIDTH_NS, registry)
    last: dict[Series, Point] = {}
    for number, spans in enumerate(closings):
        later = [span._replace(start_ns=span.start_ns + number * 10**8) for span in spans]
        part = merge([fold_batch(make_batch(later), WIDTH_NS, registry)])
        for point in totals.add(part):
            assert point.cumulative
            before = last.get(point.series)
            if before is not None:
                for name in ("count", "spans", "sum_ns", "max_ns", "warp_ns", "bytes", "window_end_ns"):
                    assert getattr(point, name) >= getattr(before, name)
                assert point.min_ns <= before.min_ns
                assert point.window_start_ns <= before.window_start_ns
                now = dict(zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True))
                then = zip(before.bucket_index.tolist(), before.bucket_count.tolist(), strict=True)
                assert all(now[index] >= count for index, count in then)
            last[point.series] = point


@settings(max_examples=50, deadline=None)
@given(span_lists(most=40))
def test_closing_together_or_one_by_one_ends_the_same(spans: list[Span]) -> None:
    """How many windows close at a time shows in no total, and not in its first and last window."""
    together, one_by_one = (newest(running([make_batch(spans)], at_once=once)[1]) for once in (True, False))
    assert together.keys() == one_by_one.keys()
    for series, point in together.items():
        assert what(point) == what(one_by_one[series])
        assert point.window_start_ns == one_by_one[series].window_start_ns
        assert point.window_end_ns == one_by_one[series].window_end_ns


@settings(max_examples=100, deadline=None)
@given(st.lists(span_lists(most=10), max_size=5), st.integers(0, 5), st.randoms(use_true_random=False))
def test_totals_commute_and_go_on_from_their_points(closings: list[list[Span]], cut: int, random: Random) -> None:
    """Windows in any order, with a restart from encoded points in between, end at the points of one addition."""
    rows = count()
    numbered = [[span._replace(row=next(rows)) for span in spans] for spans in closings]
    registry, whole = SeriesRegistry(), SeriesRegistry()
    shuffled = random.sample(numbered, len(numbered))
    before, after = Totals(WIDTH_NS, registry, epoch=5), Totals(WIDTH_NS, registry, epoch=9)
    made = [before.add(fold_batch(make_batch(spans), WIDTH_NS, registry)) for spans in shuffled[:cut]]
    kept = newest([point for points_ in made for point in points_])
    restored = [decode_point(encode_point(point)) for point in kept.values()]
    after.restore(random.sample(restored, len(restored)))
    made = [after.add(fold_batch(make_batch(spans), WIDTH_NS, registry)) for spans in shuffled[cut:]]
    last = kept | newest([point for points_ in made for point in points_])
    once = Totals(WIDTH_NS, whole, epoch=5 if kept else 9)
    expected = newest(once.add(merge([fold_batch(make_batch(spans), WIDTH_NS, whole) for spans in numbered])))
    assert {series: encode_point(point) for series, point in last.items()} == {
        series: encode_point(point) for series, point in expected.items()
    }


def test_only_series_of_the_closed_windows_are_told_again() -> None:
    """A series without work in the closed windows makes no new cumulative point."""
    spans = [Span(0, row=0, kernel="a"), Span(0, row=1, kernel="b"), Span(100, row=2, kernel="b")]
    _, cumulative = running([make_batch(spans)])
    told = [(p.series.kernel, p.count, p.window_start_ns, p.window_end_ns) for p in cumulative]
    assert told == [("a", 1, 0, 100), ("b", 1, 0, 100), ("b", 2, 0, 200)]


def test_totals_of_a_recorded_run(recorded: list[Batch]) -> None:
    """Windows of 10 ms over 20,000 executions: the totals' counts and times are those of the columns."""
    _, cumulative = running(recorded, width_ns=10**7)
    last = newest(cumulative).values()
    assert sum(point.count for point in last) == 20_000
    assert sum(point.sum_ns for point in last) == sum(int(batch.columns.duration_ns.sum()) for batch in recorded)

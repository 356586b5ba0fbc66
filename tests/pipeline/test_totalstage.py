"""The second stage alone: any sequence of emits against a brute force over spans, and what an emit must not touch."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.columns import OBSERVATIONS, Kind
from spanlite.contract.point_codec import decode_point, encode_point, series_key
from spanlite.contract.points import OTHER, Launch, Point, Series
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import MOST_SUM, Partial, merge
from spanlite.pipeline.pieces import pack
from spanlite.pipeline.points import Totals
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.totalstage import TotalStage, Update
from tests.pipeline.conftest import NO_TRACE, Span, exact_bucket, make_batch, span_lists
from tests.pipeline.simulator import MemoryLog, MemoryTable, Store

WIDTH_NS = 100
GPU = "GPU-1"


class Reference:
    """Every span that was added, by the series that took it; nothing is ever added up but at the end."""

    def __init__(self, top_k: int) -> None:
        self._top_k = top_k
        self._admitted: set[str] = set()
        self._spans: dict[Series, list[Span]] = defaultdict(list)

    def emit(self, spans: Sequence[Span]) -> dict[Series, dict[str, Any]]:
        """Takes spans; the totals of the series that they are of."""
        time_ns: dict[str, int] = defaultdict(int)
        for span in spans:
            if span.kind not in OBSERVATIONS:
                time_ns[span.kernel] += span.duration_ns * span.weight
        for kernel in sorted(time_ns, key=lambda kernel: (-time_ns[kernel], kernel)):
            if len(self._admitted) < self._top_k:
                self._admitted.add(kernel)
        touched = set()
        for span in spans:
            series = span.series
            if span.kind not in OBSERVATIONS and span.kernel not in self._admitted:
                launch = Launch(max_warps=span.launch.max_warps, copy_kind=span.launch.copy_kind)
                series = series._replace(kernel=OTHER, name="", launch=launch)
            self._spans[series].append(span)
            touched.add(series)
        return {series: _summed(self._spans[series]) for series in touched}


def _summed(spans: Sequence[Span]) -> dict[str, Any]:
    buckets: dict[int, int] = defaultdict(int)
    for span in spans:
        buckets[exact_bucket(span.duration_ns)] += span.weight
    lasting = any(span.duration_ns for span in spans)
    longest = min(
        spans, key=lambda span: (-span.duration_ns, span.start_ns if lasting else -span.start_ns, span.span_id)
    )
    gauge = longest.kind == Kind.GAUGE
    windows = [span.start_ns // WIDTH_NS for span in spans]
    return {
        "window_start_ns": min(windows) * WIDTH_NS,
        "window_end_ns": (max(windows) + 1) * WIDTH_NS,
        "count": sum(span.weight for span in spans),
        "spans": len(spans),
        "sum_ns": sum(span.duration_ns * span.weight for span in spans),
        "min_ns": min(span.duration_ns for span in spans),
        "max_ns": longest.duration_ns,
        "warp_ns": sum(span.duration_ns * span.weight * span.launch.active_warps for span in spans),
        "bytes": 0 if gauge else sum(span.moved * span.weight for span in spans),
        "buckets": sorted(buckets.items()),
        "exemplar": (NO_TRACE if gauge else longest.trace, longest.span_id, longest.duration_ns, longest.start_ns),
    }


def _plain(point: Point) -> dict[str, Any]:
    longest = point.exemplar
    assert longest is not None
    names = ("window_start_ns", "window_end_ns", "count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes")
    return {
        **{name: getattr(point, name) for name in names},
        "buckets": list(zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True)),
        "exemplar": (longest.trace_id, longest.span_id, longest.duration_ns, longest.start_ns),
    }


def _stage(store: Store, top_k: int = 1000, epoch: int = 5) -> TotalStage:
    store.key = GPU
    return TotalStage(WIDTH_NS, top_k, epoch, MemoryLog(store, "waiting"), MemoryTable(store, "kept"))


emits = st.lists(st.tuples(st.lists(span_lists(most=8), min_size=1, max_size=3), st.booleans()), max_size=6)
"""Spans of the pieces of each emit, and whether the stage loses its memory before."""


@settings(max_examples=150, deadline=None)
@given(emits, st.sampled_from([0, 1, 2, 1000]))
def test_any_emits_tell_what_a_brute_force_tells(made: list[tuple[list[list[Span]], bool]], top_k: int) -> None:
    """After each emit, restarts between or not: the series that were touched, each once, with all they ever did."""
    rows = count()
    store, reference = Store({}), Reference(top_k)
    stage, epoch = _stage(store, top_k), 5
    kept: dict[bytes, bytes] = {}
    for pieces, restart in made:
        if restart:
            epoch = epoch if kept else 9
            stage = _stage(store, top_k, 9)
        spans: list[Span] = []
        for number, piece in enumerate(pieces):
            # Time goes on from piece to piece, some of the time; rows are numbered through, so no ids are equal.
            own = [span._replace(gpu=GPU, start_ns=span.start_ns + 70 * number) for span in piece]
            own = [span._replace(row=next(rows)) for span in own if span.kind != Kind.RANGE]
            registry = SeriesRegistry()
            stage.take(pack(merge([fold_batch(make_batch(own), WIDTH_NS, registry)]), registry))
            spans += own
        updates = list(stage.emit(GPU))
        points = [decode_point(update.point) for update in updates]
        assert {point.series: _plain(point) for point in points} == reference.emit(spans)
        assert len({point.series for point in points}) == len(points)
        assert [update.key for update in updates] == [series_key(point.series) for point in points]
        assert [update.point for update in updates] == [encode_point(point) for point in points]
        assert all(point.cumulative and point.epoch == epoch for point in points)
        kept |= dict(updates)
        assert store.saved.get(("kept", GPU), {}) == kept
        assert list(stage.emit(GPU)) == []


def _window(numbers: Sequence[int], window: int, index: Sequence[int]) -> Partial:
    """The same work of some series: one execution in each bucket."""
    rows, buckets = len(numbers), len(index)
    column = np.full(rows, 1000, dtype=np.int64)
    return Partial(
        window=np.full(rows, window, dtype=np.int64),
        series=np.array(numbers, dtype=np.int32),
        count=np.full(rows, buckets, dtype=np.int64),
        spans=np.full(rows, buckets, dtype=np.int64),
        sum_ns=column,
        min_ns=column,
        max_ns=column,
        warp_ns=column,
        bytes=column,
        exemplar_trace=np.zeros(rows, dtype="V16"),
        exemplar_span=np.arange(rows, dtype=np.uint64),
        exemplar_start_ns=column,
        bucket_row=np.repeat(np.arange(rows, dtype=np.int32), buckets),
        bucket_index=np.tile(np.array(index, dtype=np.int32), rows),
        bucket_count=np.ones(rows * buckets, dtype=np.int64),
    )


def _many(series: int) -> SeriesRegistry:
    registry = SeriesRegistry()
    for number in range(series):
        registry.number(Series(GPU, 1, f"k{number}"))
    return registry


def _peak_bytes(stage: TotalStage, piece: bytes) -> int:
    stage.take(piece)
    tracemalloc.start()
    told: list[Update] = list(stage.emit(GPU))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(told) == 3
    return peak


@pytest.mark.parametrize("index", [[-600], [-500, -400, -300]], ids=["known buckets", "new buckets"])
def test_an_emit_that_touches_few_of_many_series_takes_no_memory_for_the_others(index: list[int]) -> None:
    """Of 300 or of 30,000 series, three are told with the same memory: nothing is copied that was not touched."""
    peaks = []
    for series in (300, 30_000):
        registry = _many(series)
        stage = _stage(Store({}), top_k=series)
        for window in (1, 2):
            stage.take(pack(_window(range(series), window, [-700, -600]), registry))
            assert sum(1 for _ in stage.emit(GPU)) == series
        few = [5, series // 2, series - 1]
        pieces = [pack(_window(few, 3 + at, index), registry) for at in range(3)]
        peaks.append(min(_peak_bytes(stage, piece) for piece in pieces))
    few_bytes, many_bytes = peaks
    assert many_bytes < few_bytes + 4096  # a column of all series alone would take 240,000


def test_rows_move_together_when_half_of_the_pool_is_left_behind() -> None:
    """Series whose buckets become ever more, one by one: the pool stays a few times what it holds, and is right."""
    registry = _many(50)
    totals = Totals(WIDTH_NS, registry)
    for bucket in range(200):
        totals.add(_window(range(0, 50, 1 + bucket % 2), bucket, [bucket - 600]))
    pool = totals._buckets
    held = int(pool._length.sum())
    assert held == 50 * 100 + 25 * 100
    assert pool._end <= 4 * held
    for number, point in enumerate(totals.add(_window(range(50), 200, [-700]))):
        expected = [-700, *range(-600, -400, 1 + number % 2)]
        assert point.bucket_index.tolist() == expected
        assert point.bucket_count.tolist() == [1] * len(expected)


def test_sums_stop_where_they_would_wrap_around() -> None:
    """Totals at the limit stay there, whatever is added, as those of `merge` do."""
    registry = _many(1)
    totals = Totals(WIDTH_NS, registry)
    part = _window([0], 1, [-600])
    part.sum_ns[:] = MOST_SUM - 5
    assert [point.sum_ns for _ in range(3) for point in totals.add(part)] == [MOST_SUM - 5, MOST_SUM, MOST_SUM]
    (point,) = totals.add(_window([0], 2, [-600]))
    restored = Totals(WIDTH_NS, registry)
    restored.restore([point])
    assert [point.sum_ns for point in restored.add(part)] == [MOST_SUM]

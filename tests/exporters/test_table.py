"""The table of newest points."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.columns import Kind
from spanlite.contract.errors import ExporterError
from spanlite.contract.points import Launch, Point, Series
from spanlite.exporters.labels import direction
from spanlite.exporters.table import PointTable, Snapshot

MakePoint = Callable[..., Point]
GEMM = Series("GPU-1", Kind.KERNEL, "gemm", name="void gemm()")


def point_of(series: Series, *, count: int, end_ns: int) -> Point:
    """`count` executions of 1 us."""
    index, counted = np.array([-637], dtype=np.int32), np.array([count], dtype=np.int64)
    us = 1000
    return Point(series, 0, end_ns, count, count, us * count, us, us, 0, 0, index, counted, cumulative=True)


def counts(table: PointTable) -> dict[str, int]:
    """Executions by kernel label."""
    found: dict[str, int] = {}
    for row in table.snapshot().rows:
        found[row.key.what] = found.get(row.key.what, 0) + row.point.count
    return found


def test_the_newest_point_of_a_series_is_held(make_point: MakePoint) -> None:
    """Proves that a later cumulative point replaces, not adds."""
    table = PointTable()
    table.put([make_point(GEMM, [1000] * 3, end_ns=10)])
    table.put([make_point(GEMM, [1000] * 5, end_ns=20)])
    assert counts(table) == {"gemm": 5}


def test_older_and_repeated_points_change_nothing(make_point: MakePoint) -> None:
    """Proves that a replayed topic cannot turn a counter back."""
    table = PointTable()
    old, new = make_point(GEMM, [1000] * 3, end_ns=10), make_point(GEMM, [1000] * 5, end_ns=20)
    table.put([new, old, new])
    assert counts(table) == {"gemm": 5}
    assert table.snapshot().offered == {"newest": 1, "older": 2, "restarted": 0, "refused": 0}


def test_a_table_filled_again_from_newest_points_says_the_same(make_point: MakePoint) -> None:
    """Proves that a restarted exporter resets no counter."""
    history = [make_point(GEMM, [1000] * n, end_ns=n) for n in range(1, 6)]
    first, second = PointTable(), PointTable()
    for point in history:
        first.put([point])
    second.put(row.point for row in first.snapshot().rows)
    assert counts(second) == counts(first) == {"gemm": 5}


def test_state_that_begins_anew_adds_to_what_was_counted(make_point: MakePoint) -> None:
    """Proves that counts, sums and buckets go on growing when a job loses its state, twice."""
    table = PointTable()
    lives = ([1000] * 5, [2000] * 3, [1000, 2000])
    for epoch, durations in enumerate(lives):
        table.put([replace(make_point(GEMM, durations, end_ns=10 * (epoch + 1)), epoch=epoch)])
    whole = make_point(GEMM, [d for life in lives for d in life])
    (row,) = table.snapshot().rows
    assert (row.point.count, row.point.sum_ns) == (10, whole.sum_ns)
    assert (row.point.min_ns, row.point.max_ns) == (1000, 2000)
    assert row.point.bucket_index.tolist() == whole.bucket_index.tolist()
    assert row.point.bucket_count.tolist() == whole.bucket_count.tolist() == [6, 4]
    assert table.snapshot().offered["restarted"] == 2


def test_counters_never_fall_and_totals_are_conserved_when_the_cap_is_reached(make_point: MakePoint) -> None:
    """Proves, over rounds in which ever heavier kernels appear, that each label's count only grows and none is lost."""
    table = PointTable(series_cap=3)
    seen: dict[str, int] = {}
    for end in range(1, 9):
        names = [f"k{n}" for n in range(end)]
        points = [make_point(GEMM._replace(kernel=k), [1000 * (i + 1)] * end, end_ns=end) for i, k in enumerate(names)]
        table.put(points)
        now = counts(table)
        assert all(now[kernel] >= count for kernel, count in seen.items())
        assert sum(now.values()) == end * end
        seen = now
    assert seen == {"k0": 8, "k1": 8, "k2": 8, "other": 40}
    assert table.snapshot().capped["kernel"] == 5


_OFFERS = st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(1, 20), st.integers(0, 2))


@given(st.lists(st.lists(_OFFERS, max_size=4), max_size=12))
def test_no_sequence_of_points_makes_a_counter_fall(hand_overs: list[list[tuple[int, int, int, int]]]) -> None:
    """Proves it for any order of kernels, window ends, counts, epochs: repeated, older, restarted, beyond the cap."""
    table = PointTable(series_cap=2)
    seen: dict[str, int] = {}
    for points in hand_overs:
        table.put(
            replace(point_of(GEMM._replace(kernel=f"k{k}"), count=count, end_ns=end), epoch=epoch)
            for k, end, count, epoch in points
        )
        now = counts(table)
        assert all(now.get(kernel, 0) >= count for kernel, count in seen.items())
        assert all(row.point.bucket_count.sum() == row.point.count for row in table.snapshot().rows)
        assert len(now) <= 3
        seen = now


def test_newcomers_of_one_hand_over_are_admitted_by_gpu_time(make_point: MakePoint) -> None:
    """Proves that a full table holds the heaviest kernels of the first window, not the first in the list."""
    table = PointTable(series_cap=2)
    table.put([make_point(GEMM._replace(kernel=f"k{n}"), [1000 * n]) for n in range(1, 5)])
    assert counts(table) == {"k3": 1, "k4": 1, "other": 2}


def test_a_window_point_is_refused_and_nothing_is_taken(make_point: MakePoint) -> None:
    """Proves that a delta cannot pass for a total."""
    table = PointTable()
    good = make_point(GEMM, [1000])
    with pytest.raises(ExporterError, match=r"gemm.*one window.*cumulative"):
        table.put([good, replace(good, cumulative=False)])
    assert counts(table) == {}
    assert not table.loaded


def test_ranges_are_passed_over(make_point: MakePoint) -> None:
    """Proves that host ranges do not count as GPU work."""
    table = PointTable()
    table.put([make_point(GEMM._replace(kind=Kind.RANGE), [1000])])
    assert counts(table) == {}
    assert table.loaded


def test_a_kernel_keeps_the_first_name_seen(make_point: MakePoint) -> None:
    """Proves that an id has one info series for as long as the table lives, also across restarts of a join."""
    table = PointTable()
    table.put([make_point(GEMM, [1000]), make_point(GEMM._replace(name="void gemm<2>()"), [900])])
    assert table.snapshot().names == {"gemm": "void gemm()"}


@pytest.mark.parametrize(("copy_kind", "word"), [(1, "h2d"), (2, "d2h"), (8, "d2d"), (10, "p2p"), (11, "unknown")])
def test_directions_are_cupti_s(copy_kind: int, word: str) -> None:
    """Proves the numbers of CUpti_ActivityMemcpyKind; one of a later CUPTI is unknown."""
    assert direction(copy_kind) == word


def test_threads_may_put_and_read_at_once(make_point: MakePoint) -> None:
    """Proves that every snapshot under concurrent puts is one of whole hand-overs."""
    table = PointTable()
    rounds = [
        [make_point(GEMM._replace(kernel=k, launch=Launch(grid=(n, 1, 1))), [1000], end_ns=n) for k in ("a", "b")]
        for n in range(1, 60)
    ]

    def read(_: int) -> Snapshot:
        return table.snapshot()

    with ThreadPoolExecutor(4) as pool:
        writes = pool.map(table.put, rounds)
        snapshots = list(pool.map(read, range(60)))
        assert list(writes) == [None] * len(rounds)
    assert all(len(snapshot.rows) % 2 == 0 for snapshot in snapshots)
    assert counts(table) == {"a": 59, "b": 59}

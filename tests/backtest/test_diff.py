"""Two sets of points compared: exactly what was changed is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.errors import UsageError
from spanlite.contract.points import Exemplar, Point, Series
from spanlite.pipeline.backtest.diff import NUMBERS, Difference, compare
from spanlite.pipeline.pointset import PointSet, point_set
from tests.backtest.conftest import Live
from tests.pipeline.conftest import LAUNCH

Name = tuple[int, Series]


def point(at: int) -> Point:
    """A point of its own series or window."""
    return Point(
        Series(f"GPU-{at % 3}", 1, f"k{at % 5}", launch=LAUNCH),
        (at // 15) * 10,
        (at // 15) * 10 + 10,
        *(7 + at, 7, 1000 + at, 100, 300, 48 * (1000 + at), at),
        np.array([-700 + at, -600 + at], dtype=np.int32),
        np.array([3, 4 + at], dtype=np.int64),
        Exemplar(bytes(15) + b"x", 5, 300, at),
    )


BASE = [point(at) for at in range(60)]


def names(found: PointSet, rows: Any) -> set[Name]:
    """Window and series of some rows."""
    series, width = found.registry.series, found.width_ns
    return {(int(found.rows.window[row]) * width, series[int(found.rows.series[row])]) for row in rows.tolist()}


def name(one: Point) -> Name:
    """The same of a point."""
    return one.window_start_ns, one.series


def changed(found: Difference) -> dict[Name, set[str]]:
    """The fields that differ, by point."""
    made: dict[Name, set[str]] = {}
    for at in found.changed.tolist():
        (key,) = names(found.a, found.both_a[[at]])
        assert {key} == names(found.b, found.both_b[[at]])
        made[key] = {field for field, off in found.off.items() if off[at] > 0}
    return made


def with_change(one: Point, field: str) -> Point:
    """The point with one field another."""
    if field == "buckets":
        return replace(one, bucket_index=one.bucket_index + np.array([0, 1], dtype=np.int32))
    if field == "exemplar":
        assert one.exemplar
        return replace(one, exemplar=replace(one.exemplar, span_id=6))
    more: dict[str, Any] = {field: getattr(one, field) + 1}
    if field == "count":  # what the buckets hold
        more["bucket_count"] = one.bucket_count + np.array([1, 0])
    if field == "max_ns" and one.exemplar:
        more["exemplar"] = replace(one.exemplar, duration_ns=one.max_ns + 1)
    return replace(one, **more)


@settings(max_examples=40)
@given(
    st.sets(st.integers(0, 59), max_size=8),
    st.sets(st.integers(0, 59), max_size=8),
    st.dictionaries(st.integers(0, 59), st.sampled_from([*NUMBERS, "buckets", "exemplar"]), max_size=8),
    st.randoms(use_true_random=False),
)
def test_a_diff_finds_exactly_what_was_changed(
    missing_a: set[int], missing_b: set[int], changes: dict[int, str], random: Any
) -> None:
    """A difference would be overlooked, invented, or told of the wrong point or field."""
    side_a = [one for at, one in enumerate(BASE) if at not in missing_a]
    side_b = [
        with_change(one, changes[at]) if at in changes else one for at, one in enumerate(BASE) if at not in missing_b
    ]
    random.shuffle(side_b)
    found = compare(point_set(side_a), point_set(side_b))
    assert names(found.a, found.only_a) == {name(BASE[at]) for at in missing_b - missing_a}
    assert names(found.b, found.only_b) == {name(BASE[at]) for at in missing_a - missing_b}
    there = {at: field for at, field in changes.items() if at not in missing_a | missing_b}
    expected = {name(BASE[at]): {field, "buckets"} if field == "count" else {field} for at, field in there.items()}
    assert changed(found) == expected
    assert found.equal == (missing_a == missing_b and not there)


def test_the_worst_difference_comes_first() -> None:
    """The one that matters would stand below the limit of what is shown."""
    off = {3: 1.5, 7: 4.0, 9: 1.01}
    other = [replace(one, sum_ns=round(one.sum_ns * off.get(at, 1))) for at, one in enumerate(BASE)]
    found = compare(point_set(BASE), point_set(other))
    assert [key for key, _ in changed(found).items()] == [name(BASE[at]) for at in (7, 3, 9)]
    assert found.worst[found.changed] == pytest.approx([0.75, 1 / 3, 0.01], abs=1e-3)


def test_a_tolerance_leaves_out_what_is_close() -> None:
    """Two builds whose figures differ by noise could not be compared."""
    other = [replace(one, sum_ns=one.sum_ns + 20, exemplar=None) for one in BASE]
    slower = [replace(other[0], bucket_index=other[0].bucket_index + np.int32(16)), *other[1:]]  # 41 %
    assert not compare(point_set(BASE), point_set(other), tolerance=0.01).equal
    assert compare(point_set(BASE), point_set(other), tolerance=0.02).equal
    assert compare(point_set(BASE), point_set(slower), tolerance=0.3).equal
    found = compare(point_set(BASE), point_set(slower), tolerance=0.2)
    assert changed(found) == {name(BASE[0]): {"p50", "p90", "p99"}}


def test_pieces_of_one_point_add_up() -> None:
    """Late points, or those of two processes, would be taken for differences."""
    halves = [replace(one, series=one.series) for one in (*BASE, *BASE)]
    found = compare(point_set(halves), point_set(BASE))
    assert {field for fields in changed(found).values() for field in fields} == {
        *("count", "spans", "sum_ns", "warp_ns", "buckets"),
        "bytes",
    }
    doubled = [
        replace(
            one,
            bucket_count=2 * one.bucket_count,
            **{field: 2 * getattr(one, field) for field in ("count", "spans", "sum_ns", "warp_ns", "bytes")},
        )
        for one in BASE
    ]
    assert compare(point_set(halves), point_set(doubled)).equal


def test_sets_of_different_windows_are_aligned(live: Live) -> None:
    """Points of a finer window, or a topic's cumulative ones, could not be compared with those of a coarser."""
    fine = point_set(live.points)
    found = compare(fine.coarser(4 * 10**9), fine)
    assert found.equal
    assert found.a.width_ns == found.b.width_ns == 4 * 10**9
    assert compare(fine, fine.total()).equal
    assert not compare(fine.total(), point_set(live.points[:-1])).equal
    for width_s in (2, 3, 7):
        assert compare(fine.total(), fine.coarser(width_s * 10**9)).equal
        assert compare(fine.coarser(2 * 10**9).total(), fine.coarser(width_s * 10**9).total()).equal
    apart = fine.total()
    assert apart.begin_ns is not None
    early = compare(apart, replace(apart, begin_ns=apart.begin_ns - 10**9))
    assert {field for fields in changed(early).values() for field in fields} == {"begin_ns"}
    with pytest.raises(UsageError, match="must be a multiple"):
        compare(fine.coarser(2 * 10**9), fine.coarser(3 * 10**9))


def test_where_one_side_has_no_exemplars_they_do_not_count(live: Live) -> None:
    """JSON lines, which have none, would differ from everything."""
    fine = point_set(live.points)
    bare = point_set([replace(one, exemplar=None) for one in live.points], exemplars=False)
    assert compare(fine, bare).equal
    assert not compare(fine, replace(bare, exemplars=True)).equal


def test_empty_sets_are_compared(live: Live) -> None:
    """A selection without GPU work would end in a traceback."""
    fine = point_set(live.points)
    nothing = fine.of_series(lambda _: False)
    assert compare(nothing, nothing).equal
    assert len(compare(fine, nothing).only_a) == len(live.points)
    assert len(compare(nothing, fine).only_b) == len(live.points)

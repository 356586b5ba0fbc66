"""Due times, against a brute-force twin in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.columns import Int64
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.pacing.rates import MOST_NS, Rate, scaled
from spanlite.replay.pacing.schedule import Chunk, Schedule, scheduled
from spanlite.replay.pacing.settings import Limit, Pace
from tests.replay.pacing.brute import amount, brute_due, reached, spaced

_GAPS = st.one_of(st.integers(0, 20), st.integers(0, 10**6), st.integers(0, 10**12))
_SPEEDS = st.fractions(Fraction(1, 100), 1000, max_denominator=10**6)
_RATES = st.fractions(Fraction(1, 10**9), 1, max_denominator=10**9)


def _ramps(values: st.SearchStrategy[Fraction]) -> st.SearchStrategy[Rate]:
    return st.one_of(st.builds(Rate.steady, values), st.builds(Rate, values, values, st.integers(1, 10**10)))


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[int], list[int], Pace]:
    """Source times, weights, and a pace of anything that fits them."""
    first = draw(st.integers(-(2**62), 2**62))
    gaps = draw(st.lists(_GAPS, min_size=1, max_size=12))
    times = [first + sum(gaps[:at]) for at in range(len(gaps) + 1)]
    weights = draw(st.lists(st.integers(0, 70_000), min_size=len(times), max_size=len(times)))
    origin = draw(st.one_of(st.none(), st.integers(0, 10**6).map(lambda before: first - before)))
    length = times[-1] - (first if origin is None else origin)
    limit = st.builds(Limit, _ramps(_RATES), st.integers(0, 200_000))
    limited = draw(st.one_of(st.none(), limit))
    pace = Pace(
        speed=draw(st.one_of(st.none(), _ramps(_SPEEDS)) if limited or not length else _ramps(_SPEEDS)),
        loops=draw(st.integers(1, 3)) if length else 1,
        period_ns=draw(st.one_of(st.none(), st.integers(0, 10**9).map(lambda more: length + more))),
        gap_cap_ns=draw(st.one_of(st.none(), _GAPS.map(lambda ns: ns + 1))),
        limit=limited,
        duration_ns=draw(st.one_of(st.none(), st.integers(1, 10**12))),
        most_items=draw(st.one_of(st.none(), st.integers(1, 30))),
        origin_ns=origin,
    )
    return times, weights, pace


def _due(times: list[int], pace: Pace, weights: list[int] | None = None, cuts: list[int] | None = None) -> list[int]:
    """The schedule's due times, its input cut at some places."""
    array = np.array(times, np.int64)
    weight = None if weights is None else np.array(weights, np.int64)
    bounds = [0, *sorted(cuts or []), len(times)]

    def read(_number: int) -> list[Chunk[int]]:
        return [Chunk(array[a:b], times[a:b], None if weight is None else weight[a:b]) for a, b in pairwise(bounds)]

    found: list[int] = []
    for due in scheduled(Schedule(pace), read):
        assert len(due.items) == len(due.due_ns)
        found += due.due_ns.tolist()
    return found


@settings(max_examples=400, deadline=None)
@given(_cases())
def test_equals_the_definition_in_fractions(case: tuple[list[int], list[int], Pace]) -> None:
    """Proves speed × loop × gap cap × limit × burst × ramps × bounds to the nanosecond."""
    times, weights, pace = case
    assert _due(times, pace, weights) == brute_due(times, pace, weights)


@settings(max_examples=200, deadline=None)
@given(_cases(), st.lists(st.integers(0, 13), max_size=6))
def test_chunks_give_what_the_whole_gives(case: tuple[list[int], list[int], Pace], cuts: list[int]) -> None:
    """Proves that nothing depends on how the input is cut, and that due times never go back."""
    times, weights, pace = case
    due = _due(times, pace, weights, [min(cut, len(times)) for cut in cuts])
    assert due == _due(times, pace, weights)
    assert due == sorted(due)
    assert all(ns >= 0 for ns in due)


@given(
    st.builds(Rate, st.integers(0, 9).map(Fraction), st.integers(1, 9).map(Fraction), st.integers(0, 40)),
    st.lists(st.integers(0, 400), min_size=1, max_size=40).map(sorted),
)
def test_a_ramp_is_solved_for_the_first_nanosecond(rate: Rate, much: list[int]) -> None:
    """Proves the root of a ramp up and down against bisection, with numbers small enough to hit every border."""
    form = rate.form
    got = form.reached(much[0] * form.unit, scaled(_array(much) - much[0], form.unit))
    assert got.tolist() == [reached(rate, more) for more in much]
    base, more = form.amount(got)
    assert [Fraction(base + int(part), form.unit) for part in more] == [amount(rate, ns) for ns in got.tolist()]


def test_speed_is_exact_after_a_million_items() -> None:
    """Proves that rounding does not add up: a third of 7 ns, a million times, is 2,333,333 ⅓ rounded up once."""
    times = np.arange(10**6 + 1, dtype=np.int64) * 7
    due = Schedule(Pace(speed=Rate.steady(3))).take(times)
    assert due[-1] == 2_333_334
    assert due[:5].tolist() == [0, 3, 5, 7, 10]


def test_a_gap_is_cut_before_the_speed_is_applied() -> None:
    """Proves the order by hand: 60 s are cut to 6 s, which at twice the speed are 3 s."""
    pace = Pace(speed=Rate.steady(2), gap_cap_ns=6 * 10**9)
    assert _due([0, 60 * 10**9, 61 * 10**9], pace) == [0, 3 * 10**9, 3_500_000_000]


def test_slower_than_recorded_and_looped() -> None:
    """Proves speed below 1 with loops: passes are (20 + 10) ns apart, and at half the speed 60."""
    pace = Pace(speed=Rate.steady(Fraction(1, 2)), loops=3)
    assert _due([5, 15, 25], pace) == [0, 20, 40, 60, 80, 100, 120, 140, 160]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30).map(sorted), st.integers(1, 1000))
def test_a_limit_is_the_recurrence(due: list[int], cost_ns: int) -> None:
    """Proves due' = max(due, previous' + cost) for a cost of whole nanoseconds."""
    pace = Pace(limit=Limit(Rate.steady(Fraction(1, cost_ns))), origin_ns=0)
    assert _due(due, pace) == spaced(due, cost_ns)


def test_a_burst_goes_at_once_and_comes_back() -> None:
    """Proves the allowance by hand: 10 ns an item, 2 more at once; after a pause as many again."""
    pace = Pace(limit=Limit(Rate.steady(Fraction(1, 10)), burst=2))
    assert _due([0] * 5 + [1000] * 4, pace) == [0, 0, 0, 10, 20, 1000, 1000, 1000, 1010]


def test_as_fast_as_possible_under_a_limit_is_evenly_spaced() -> None:
    """Proves a fixed rate by weight: batches of 100, 300 and 100 spans at 1000 spans a second."""
    pace = Pace(speed=None, limit=Limit(Rate.steady(Fraction(1000, 10**9))))
    assert _due([0, 1, 2], pace, [100, 300, 100]) == [0, 100_000_000, 400_000_000]


@pytest.mark.parametrize(
    ("pace", "due"),
    [
        (Pace(), [0, MOST_NS]),
        (Pace(speed=Rate.steady(1000)), [0, -(-MOST_NS // 1000)]),
        (Pace(speed=Rate.steady(Fraction(999_999_999, 10**6))), [0, -(-MOST_NS * 10**6 // 999_999_999)]),
        (Pace(speed=Rate.steady(Fraction(999 * 2**55 + 1, 2**55))), [0, 9_232_604_641_496_273]),
        (Pace(gap_cap_ns=MOST_NS - 1), [0, MOST_NS - 1]),
        (Pace(limit=Limit(Rate.steady(1), burst=2**70)), [0, MOST_NS]),
        (Pace(speed=Rate(Fraction(1), Fraction(1000), 10**18)), [0, 134_889_437_536_802_494]),
    ],
)
def test_extremes_do_not_wrap(pace: Pace, due: list[int]) -> None:
    """Proves times 292 years apart on both sides of zero: 2^63 ns × 1000 is beyond int64."""
    for first in (-(2**63), -(2**62), -1, 0):
        assert _due([first, first + MOST_NS], pace) == due
        assert _due([first, first + MOST_NS], pace, None, [1]) == due
        assert brute_due([first, first + MOST_NS], pace) == due


@pytest.mark.parametrize(
    ("times", "pace", "says"),
    [
        ([0, MOST_NS // 99], Pace(speed=Rate.steady(Fraction(1, 100))), "more than 292 years"),
        ([-(2**63), 2**63 - 1], Pace(), "longer than 292 years"),
        ([0, MOST_NS // 2], Pace(loops=3), "beyond 292 years"),
        ([0, 0], Pace(limit=Limit(Rate.steady(Fraction(1, 2**62)), 0), loops=4), "more than 292 years"),
    ],
)
def test_what_does_not_fit_is_an_error(times: list[int], pace: Pace, says: str) -> None:
    """Proves that beyond int64 there is a sentence, not a number."""
    with pytest.raises(ReplayError, match=says):
        _due(times, pace)


@pytest.mark.parametrize(("cuts", "place"), [([], "item 2 of pass 0"), ([2], "item 2 of pass 0")])
def test_unsorted_input_is_named(cuts: list[int], place: str) -> None:
    """Proves that the error says where, within a chunk and between two."""
    with pytest.raises(ReplayError, match=rf"{place} is at 19 ns, 1 ns before what precedes it; sort"):
        _due([10, 20, 19, 30], Pace(), None, cuts)


def test_an_item_before_the_origin_is_unsorted() -> None:
    """Proves that nothing is due before the start."""
    with pytest.raises(ReplayError, match="item 0 of pass 0 is at 10 ns, 1 ns before"):
        _due([10], Pace(origin_ns=11))


@pytest.mark.parametrize(
    ("times", "pace", "says"),
    [
        ([7, 7], Pace(loops=2), "name a period"),
        ([0, 50], Pace(loops=2, period_ns=49), "a period of 49 ns is shorter than the recording"),
    ],
)
def test_passes_that_cannot_follow_each_other(times: list[int], pace: Pace, says: str) -> None:
    """Proves that passes neither fall together nor overlap."""
    with pytest.raises(UsageError, match=says):
        _due(times, pace)


def test_a_recording_without_items_is_not_read_for_ever() -> None:
    """Proves that an endless loop over nothing ends."""
    schedule = Schedule(Pace(loops=0))
    assert list(scheduled(schedule, lambda _number: [])) == []
    assert schedule.ended == "empty"


@pytest.mark.parametrize(
    ("pace", "ended", "count"),
    [
        (Pace(loops=2), "passes", 6),
        (Pace(loops=0, most_items=100), "items", 100),
        (Pace(loops=0, duration_ns=100), "duration", 10),
        (Pace(loops=2, most_items=6), "items", 6),
    ],
)
def test_why_it_ended(pace: Pace, ended: str, count: int) -> None:
    """Proves each bound with items every 10 ns."""
    schedule = Schedule(pace)
    chunks = scheduled(schedule, lambda _number: [Chunk(_array([0, 10, 20]), ["a", "b", "c"])])
    assert sum(len(due.items) for due in chunks) == count
    assert schedule.ended == ended


def test_weights_must_fit() -> None:
    """Proves that a negative weight, which would let due times go back, is refused."""
    schedule = Schedule(Pace(limit=Limit(Rate.steady(1))))
    with pytest.raises(ReplayError, match="2 items have 2 weights, the least -1"):
        schedule.take(_array([0, 1]), _array([1, -1]))


def _array(values: list[int]) -> Int64:
    return np.array(values, np.int64)

"""Exponential histograms: exact at every bound, and quantiles as good as promised."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from spanlite.contract.histogram import (
    LOWEST_INDEX,
    PER_OCTAVE,
    SCHEMA,
    bound_seconds,
    bounds_ns,
    bucket_index,
    quantile_ns,
)

_MOST = 1 << 53
_ERROR = 2 ** (1 / 64) - 1


def _exact_floor(index: int) -> int:
    """floor(2^(index/32) * 10^9) as an integer root: the greatest d with d^32 <= 2^index * 10^288."""
    power = Fraction(2) ** index * Fraction(10) ** (9 * 32)
    low, high = 0, 1 << 64
    while high - low > 1:
        middle = (low + high) // 2
        if Fraction(middle) ** 32 <= power:
            low = middle
        else:
            high = middle
    return low


def _index_of(duration_ns: int) -> int:
    return int(bucket_index(np.array([duration_ns], dtype=np.int64))[0])


@pytest.mark.parametrize("index", [*range(LOWEST_INDEX, LOWEST_INDEX + 40), *range(-64, 65, 7), 0, 1, 32, 740, 1055])
def test_bounds_are_the_exact_floors(index: int) -> None:
    """Found again by integer roots, without a logarithm or a float."""
    assert int(bounds_ns()[index - LOWEST_INDEX]) == _exact_floor(index)


def test_bounds_reach_from_below_a_nanosecond_to_the_end_of_int64() -> None:
    """They rise, and the last one is the last that int64 holds: 2^33.1 s."""
    bounds = bounds_ns()
    assert int(bounds[0]) == 0
    assert (np.diff(bounds) >= 0).all()
    assert int(bounds[-1]) == _exact_floor(LOWEST_INDEX + len(bounds) - 1) < 2**63
    assert _exact_floor(LOWEST_INDEX + len(bounds)) >= 2**63


def test_a_second_is_the_upper_bound_of_bucket_zero() -> None:
    """Prometheus: bucket i of schema s ends at 2^(i * 2^-s), inclusive."""
    assert SCHEMA == 5
    assert PER_OCTAVE == 32
    assert [_index_of(d) for d in (10**9, 10**9 + 1, 2 * 10**9, 2 * 10**9 + 1, 5 * 10**8)] == [0, 1, 32, 33, -32]
    assert bound_seconds(np.array([0, 32, -32, 16], dtype=np.int32)).tolist() == [1.0, 2.0, 0.5, 2**0.5]


def test_every_bound_and_its_neighbours_lie_in_the_right_bucket() -> None:
    """d is in bucket i exactly if bound(i-1) < d <= bound(i), at all bounds up to 2^53 ns and one ns beside them."""
    bounds = bounds_ns()
    inside = bounds[(bounds >= 1) & (bounds < _MOST)]
    for shift in (-1, 0, 1):
        durations = np.maximum(inside + shift, 1)
        expected = np.searchsorted(bounds, durations, side="left") + LOWEST_INDEX
        assert bucket_index(durations).tolist() == expected.tolist()


@pytest.mark.parametrize("most", [1 << 8, 1 << 16, 1 << 24, 1 << 32, 1 << 44, _MOST])
def test_random_durations_lie_in_the_right_bucket(most: int) -> None:
    """A hundred thousand of each magnitude against a binary search among the exact bounds."""
    durations = np.random.default_rng(most % 997).integers(1, most, 100_000, endpoint=True)
    expected = np.searchsorted(bounds_ns(), durations, side="left") + LOWEST_INDEX
    assert np.array_equal(bucket_index(durations), expected)


def test_durations_to_65_microseconds_are_tried_one_by_one() -> None:
    """Most kernels are that short; the bounds around them were cross-checked by integer roots above."""
    durations = np.arange(1, 1 << 16)
    expected = np.searchsorted(bounds_ns(), durations, side="left") + LOWEST_INDEX
    assert np.array_equal(bucket_index(durations), expected)


def test_what_lies_outside_is_put_at_the_edge() -> None:
    """Zero counts as 1 ns, and 300 years as 104 days: nothing is lost from the count."""
    outside = bucket_index(np.array([0, -5, 2**63 - 1], dtype=np.int64)).tolist()
    assert outside == [_index_of(1), _index_of(1), _index_of(_MOST)]


def test_no_durations_have_no_buckets() -> None:
    """An empty column stays one."""
    assert bucket_index(np.zeros(0, dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("shape", ["lognormal", "uniform", "two peaks", "one value", "two values"])
@pytest.mark.parametrize("q", [0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_quantiles_are_at_most_1_1_percent_off(shape: str, q: float) -> None:
    """Against the value of rank ceil(q * n) of the sorted durations, from 1 us to seconds."""
    rng = np.random.default_rng(3)
    durations = {
        "lognormal": np.exp(rng.normal(10, 2, 20_001)).astype(np.int64) + 1_000,
        "uniform": rng.integers(1_000, 90_000, 20_001),
        "two peaks": np.concatenate([rng.integers(2_000, 2_200, 9_000), rng.integers(10**9, 2 * 10**9, 1_000)]),
        "one value": np.array([123_457]),
        "two values": np.array([1_000, 5_000_000_000]),
    }[shape]
    index, count = np.unique(bucket_index(durations), return_counts=True)
    rank = max(int(np.ceil(q * len(durations))), 1)
    exact = int(np.sort(durations)[rank - 1])
    assert _ERROR < 0.011
    # floor() moves a bound by less than 1 ns, which is 0.1 % at 1 us, the shortest here
    assert abs(quantile_ns(index.astype(np.int32), count, q) / exact - 1) <= _ERROR + 1 / exact


def test_a_quantile_of_nothing_is_nan() -> None:
    """There is no number to give."""
    assert np.isnan(quantile_ns(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), 0.5))


def test_a_quantile_s_rank_counts_whole_executions() -> None:
    """Of ten in bucket 0 and one in bucket 64 the median is in the first, the 0.95 in the second."""
    index, count = np.array([0, 64], dtype=np.int32), np.array([10, 1], dtype=np.int64)
    assert quantile_ns(index, count, 0.5) == pytest.approx(2 ** (-1 / 64) * 1e9)
    assert quantile_ns(index, count, 10 / 11) == pytest.approx(2 ** (-1 / 64) * 1e9)
    assert quantile_ns(index, count, 0.95) == pytest.approx(2 ** (127 / 64) * 1e9)

"""Samples as whole numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spanlite.agent.counters.measuring import measure
from spanlite.agent.counters.samples import DRAM_READ, METRICS, NEEDED, TENSOR, WARPS, Samples

NAN = math.nan


def of(*rows: tuple[float, ...]) -> Samples:
    """Samples of 1,000 ns each."""
    start = np.arange(len(rows), dtype=np.int64) * 1000
    return Samples(start, start + 1000, np.array(rows))


def test_time_is_weighted_and_rounded_sample_by_sample() -> None:
    """Occupancy would depend on how samples were batched."""
    found = measure(of((50, 80, 25, 10, 2.4, 3.5), (33.33, 10, 0, 0, 0, 0)), METRICS)
    assert found.active_ns.tolist() == [800, 100]
    assert found.weighted_ns[WARPS].tolist() == [400, 33]
    assert found.weighted_ns[TENSOR].tolist() == [200, 0]
    assert [values.tolist() for values in found.sums.values()] == [[10, 0], [2, 0], [4, 0]]


def test_an_idle_gpu_has_no_share_of_nothing() -> None:
    """0 / 0 would take idle samples for broken ones."""
    found = measure(of((NAN, 0, NAN, 7, 0, 0)), METRICS)
    assert (found.active_ns.tolist(), found.weighted_ns[WARPS].tolist()) == ([0], [0])
    assert found.sums[DRAM_READ].tolist() == [7]


@pytest.mark.parametrize("row", [(NAN, 50), (102, 50), (50, 102), (50, -1), (50, NAN), (math.inf, 50)])
def test_what_cannot_be_is_left_out(row: tuple[float, float]) -> None:
    """One broken sample would be seen in every mean for ever."""
    assert measure(of(row, (10, 10)), NEEDED).active_ns.tolist() == [100]


def test_metrics_that_a_chip_lacks_are_not_told() -> None:
    """Zeros would be shown for what nobody measured."""
    found = measure(of((50, 80)), NEEDED)
    assert (list(found.weighted_ns), list(found.sums)) == ([WARPS], [])

"""How late kernels began, as it is told, against what the imitated GPU wrote down in the host's time."""

from __future__ import annotations

import numpy as np
import pytest

from spanlite.contract.columns import Int64
from tests.replay.cuda.imitated import CLOCK, TICK, Gpu, Played, Timeline

MS, S = 1_000_000, 1_000_000_000
_MOST_DRIFT = 5000
"""The library takes a timer to gain one part in so many at most."""
_CALL_NS = 20_000
"""What a launch's call and its thread may take more at one time than at another, the quickest of many."""


def _error(played: Played) -> Int64:
    error: Int64 = played.late - played.truly_late
    return error


@pytest.mark.parametrize("offset", [0, -98_765_432_123, 1_790_000_000 * S])
def test_lateness_is_that_of_the_gpu(gpu: Gpu, offset: int) -> None:
    """A timer with another zero, before and after the host's, would shift all. The first reading has no other clock."""
    timeline = Timeline.of(np.arange(1500) * 20_000, 18_000)
    played = gpu.play(timeline, from_ns=-MS, offset=offset)
    assert np.all(np.abs(_error(played)) <= played.calibration.clock_uncertainty + TICK)
    assert np.ptp(_error(played)) <= TICK


@pytest.mark.parametrize("drift", [50, -50])
def test_the_clock_is_followed(gpu: Gpu, drift: int) -> None:
    """What a timer gains or loses would be taken for lateness: 75 us in this run, without end in a long one."""
    timeline = Timeline.of(np.arange(7500) * 200_000, 50_000)
    played = gpu.play(timeline, drift=drift)
    behind = 100 * MS * abs(drift) // 10**6  # a turn of reading
    steady = _error(played)[np.searchsorted(timeline.due, S) :]
    assert np.all(np.abs(steady) <= played.calibration.clock_uncertainty + 6 * behind + _CALL_NS)


def test_a_timer_that_goes_past_the_bits_of_a_cell(gpu: Gpu) -> None:
    """Cells hold 40 bits of the time: every 18 minutes all kernels would be that much late, or early."""
    timeline = Timeline.of(np.arange(2000) * 200_000, 50_000)
    when = 0

    def offset() -> int:
        nonlocal when
        when = CLOCK.monotonic_ns() + 1200 * MS
        return (3 << 40) - when

    played = gpu.play(timeline, from_ns=lambda: when - 200 * MS - CLOCK.monotonic_ns(), offset=offset)
    passed = played.log["gpu_start"] >= 3 << 40
    assert not passed[0]
    assert passed[-1]
    assert np.all(np.abs(_error(played)) <= played.calibration.clock_uncertainty + _CALL_NS)


def test_a_slow_gpu_is_told_as_lateness_that_grows(gpu: Gpu) -> None:
    """Lateness that all kernels share must not be taken for the clock's."""
    n = 1600
    timeline = Timeline.of(np.arange(n) * 500_000, 400_000)
    played = gpu.play(timeline, before=lambda: gpu.set("slow", 1500))
    allowed = played.calibration.clock_uncertainty + _CALL_NS + (timeline.due[-1] + played.truly_late) // _MOST_DRIFT
    assert np.all(np.abs(_error(played)) <= allowed)
    assert played.late[-1] - played.late[0] >= (n - 1) * 98_000  # 600 us every 500 us, less the floor's share
    assert np.all(np.diff(played.late) > 0)

"""One series over failures: what it shows never falls, and ends at the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.columns import Kind
from spanlite.contract.points import Launch, Point, Series
from spanlite.exporters.history import History, dominates
from tests.exporters.conftest import cumulative_point

_SERIES = Series("GPU-1", Kind.KERNEL, "gemm", launch=Launch(active_warps=16, max_warps=64))
_BATCHES = st.lists(
    st.lists(st.sampled_from([1, 700, 1000, 1010, 2000, 10**6]), min_size=1, max_size=5), min_size=1, max_size=6
)
_STEPS = st.lists(st.one_of(st.integers(0, 5), st.sampled_from(["emit", "emit", "checkpoint", "crash"])), max_size=40)


def _point(batches: list[list[int]], held: set[int], *, end_ns: int, epoch: int = 0) -> Point:
    durations = [duration for number in held for duration in batches[number]]
    moved = sum(len(batches[number]) * 64 for number in held)
    return replace(cumulative_point(_SERIES, durations, end_ns=end_ns, moved=moved), epoch=epoch)


def _numbers(point: Point) -> dict[object, int]:
    """Every number that must not fall, buckets by index."""
    buckets = dict(zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True))
    sums = {name: getattr(point, name) for name in ("count", "spans", "sum_ns", "max_ns", "warp_ns", "bytes")}
    return {**sums, "-min": -point.min_ns, **buckets}


@given(_BATCHES, _STEPS)
def test_a_job_that_goes_back_to_checkpoints_makes_nothing_fall(
    batches: list[list[int]], steps: list[int | str]
) -> None:
    """Proves, for sets of batches that grow, fall back and grow in another order, that each number only grows."""
    kept: set[int] = set()
    saved: set[int] = set()
    points = []
    for at, step in enumerate(steps):
        if step == "checkpoint":
            saved = set(kept)
        elif step == "crash":
            kept = set(saved)
        elif step == "emit":
            points += [_point(batches, kept, end_ns=at)] if kept else []
        else:
            kept.add(int(step) % len(batches))
    whole = _point(batches, set(range(len(batches))), end_ns=len(steps))
    history = None
    seen: dict[object, int] = {}
    for point in [*points, whole]:
        if history is None:
            history = History(point)
        else:
            history.offer(point)
        now = _numbers(history.whole)
        assert all(now.get(name, 0) >= number for name, number in seen.items())
        seen = now
    assert seen == _numbers(whole)


@given(st.lists(_BATCHES, min_size=1, max_size=4))
def test_epochs_add_up(lives: list[list[list[int]]]) -> None:
    """Proves that the whole of all epochs is their sum, and that late points of an ended one change nothing."""
    history = None
    for epoch, batches in enumerate(lives):
        point = _point(batches, set(range(len(batches))), end_ns=1, epoch=epoch)
        if history is None:
            history = History(point)
        else:
            assert history.offer(point) == "restarted"
            assert history.offer(replace(point, epoch=epoch - 1, count=point.count + 1)) == "older"
    everything = [batch for batches in lives for batch in batches]
    assert history is not None
    assert _numbers(history.whole) == _numbers(_point(everything, set(range(len(everything))), end_ns=1))


@given(_BATCHES, st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_a_superset_dominates(batches: list[list[int]], few: set[int], more: set[int]) -> None:
    """Proves that the point of a set with all batches of another's is never refused."""
    few = {number % len(batches) for number in few} or {0}
    more = {number % len(batches) for number in more} | few
    assert dominates(_point(batches, more, end_ns=1), _point(batches, few, end_ns=2))


@pytest.mark.parametrize(
    "change",
    [
        {"count": 2},
        {"spans": 2},
        {"sum_ns": 3999},
        {"min_ns": 1001},
        {"max_ns": 1999},
        {"warp_ns": 16 * 4000 - 1},
        {"bytes": 9},
        {"bucket_count": np.array([1, 2], dtype=np.int64)},
        {"bucket_index": np.array([-637, -604], dtype=np.int32)},
        {"bucket_index": np.array([-637], dtype=np.int32), "bucket_count": np.array([9], dtype=np.int64)},
        {"bucket_index": np.zeros(0, dtype=np.int32), "bucket_count": np.zeros(0, dtype=np.int64)},
    ],
)
def test_one_smaller_number_is_enough_not_to_dominate(change: dict[str, object]) -> None:
    """Proves that each number is looked at: one that fell would be a counter that fell."""
    held = cumulative_point(_SERIES, [1000, 1000, 2000], moved=10)
    assert dominates(held, held)
    assert not dominates(replace(held, **change), held)  # type: ignore[arg-type]  # fields of a point


def test_what_is_heard_of_is_the_latest_window_of_the_epoch() -> None:
    """Proves that a series is alive while a job catches up, and that ended epochs do not keep it alive."""
    history = History(replace(cumulative_point(_SERIES, [1000] * 3, end_ns=10), epoch=1))
    history.offer(replace(cumulative_point(_SERIES, [1000], end_ns=20), epoch=1))
    assert history.heard_ns == 20
    history.offer(replace(cumulative_point(_SERIES, [1000] * 9, end_ns=30), epoch=0))
    assert (history.heard_ns, history.whole.count) == (20, 3)

"""Series that end: by a tombstone at once, or since nothing was heard of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.columns import Kind
from spanlite.contract.point_codec import series_key
from spanlite.contract.points import Launch, Point, Series
from spanlite.exporters.families import families
from spanlite.exporters.table import PointTable
from spanlite.exporters.totals import Total
from spanlite.runtime.clock import ManualClock
from tests.exporters.test_table import point_of

MakePoint = Callable[..., Point]
HOUR_NS = 3600 * 10**9
GEMM = Series("GPU-1", Kind.KERNEL, "gemm", name="void gemm()", launch=Launch(limiter=1), stage="decode")
BIG = GEMM._replace(launch=Launch(grid=(9, 1, 1), limiter=2), stage="prefill")
SOFTMAX = GEMM._replace(kernel="softmax", name="void softmax()")


def shown(table: PointTable) -> dict[tuple[str, ...], float]:
    """Every value of GPU work by family and label values; histograms by their counts."""
    return {
        (family.spec.name, *sample.labels.values()): (
            sample.value.count if isinstance(sample.value, Total) else sample.value
        )
        for family in families(table.snapshot())
        for sample in family.samples
        if family.spec.group == "GPU work"
    }


def launches(table: PointTable) -> dict[str, float]:
    """Executions by kernel."""
    return {key[2]: value for key, value in shown(table).items() if key[0] == "spanlite_kernel_launches_total"}


@pytest.fixture
def table() -> PointTable:
    """A series expires after one hour."""
    return PointTable(expire_ns=HOUR_NS, clock=ManualClock(10**18))


def test_a_label_set_goes_when_all_its_series_are_stale(table: PointTable) -> None:
    """Proves the bound to the nanosecond, in every family, that the name goes too, and that the loss is counted."""
    table.put([point_of(GEMM, count=3, end_ns=0), point_of(SOFTMAX, count=1, end_ns=HOUR_NS)])
    assert launches(table) == {"gemm": 3, "softmax": 1}
    table.put([point_of(SOFTMAX, count=2, end_ns=HOUR_NS + 1)])
    assert launches(table) == {"softmax": 2}
    assert not any("gemm" in key for key in shown(table))
    snapshot = table.snapshot()
    assert snapshot.names == {"softmax": "void softmax()"}
    assert (snapshot.series, snapshot.dropped) == (1, {"expired": 1, "removed": 0})


def test_a_stale_series_goes_on_counting_in_what_it_shares(table: PointTable) -> None:
    """Proves that a launch configuration that is no longer used does not make its kernel's counters fall."""
    table.put([point_of(GEMM, count=3, end_ns=0), point_of(BIG, count=1, end_ns=0)])
    table.put([point_of(GEMM, count=4, end_ns=2 * HOUR_NS)])
    assert launches(table) == {"gemm": 5}
    stages = {key[2]: value for key, value in shown(table).items() if key[0] == "spanlite_stage_time_seconds_total"}
    assert stages == {"decode": 4e-6}
    limiters = [key[3] for key in shown(table) if key[0] == "spanlite_kernel_limiter_time_seconds_total"]
    assert limiters == ["warps"]


def test_a_series_that_comes_back_goes_on_where_it_was(table: PointTable) -> None:
    """Proves that a weekly job's counters are not counted twice, nor begin at zero."""
    table.put([point_of(GEMM, count=3, end_ns=0), point_of(SOFTMAX, count=1, end_ns=9 * HOUR_NS)])
    assert launches(table) == {"softmax": 1}
    table.put([point_of(GEMM, count=5, end_ns=9 * HOUR_NS)])
    assert launches(table) == {"gemm": 5, "softmax": 1}
    table.put([point_of(SOFTMAX, count=2, end_ns=99 * HOUR_NS)])
    assert launches(table) == {"softmax": 2}
    assert table.snapshot().dropped["expired"] == 2


def test_a_window_in_the_future_expires_nothing(table: PointTable) -> None:
    """Proves that one wrong time cannot empty the table."""
    table.put([point_of(GEMM, count=3, end_ns=10**18 - HOUR_NS), point_of(SOFTMAX, count=1, end_ns=2**63 - 1)])
    assert launches(table) == {"gemm": 3, "softmax": 1}


def test_without_points_nothing_expires() -> None:
    """Proves that a pipeline that stands still for a week does not empty the table, whatever the clock says."""
    clock = ManualClock(0)
    table = PointTable(expire_ns=HOUR_NS, clock=clock)
    table.put([point_of(GEMM, count=3, end_ns=0)])
    clock.advance_ns(168 * HOUR_NS)
    assert launches(table) == {"gemm": 3}


def test_a_tombstone_removes_a_series_at_once(table: PointTable) -> None:
    """Proves it for a label set of its own; unknown keys are passed over."""
    table.put([point_of(GEMM, count=3, end_ns=0), point_of(SOFTMAX, count=1, end_ns=0)])
    table.remove([series_key(GEMM), b"unknown", series_key(GEMM)])
    assert launches(table) == {"softmax": 1}
    assert table.snapshot().dropped == {"expired": 0, "removed": 1}


def test_a_removed_series_leaves_what_it_counted_where_others_go_on(table: PointTable) -> None:
    """Proves that a tombstone is no fall of a counter, and that a series that begins again adds to the rest."""
    table.put([point_of(GEMM, count=3, end_ns=0), point_of(BIG, count=2, end_ns=0)])
    table.remove([series_key(BIG)])
    assert launches(table) == {"gemm": 5}
    table.put([point_of(BIG, count=1, end_ns=1)])
    assert launches(table) == {"gemm": 6}
    table.remove([series_key(BIG), series_key(GEMM)])
    assert launches(table) == {}
    table.put([point_of(GEMM, count=1, end_ns=2)])
    assert launches(table) == {"gemm": 1}


_SERIES = [
    GEMM._replace(kernel=f"k{kernel}", stage=stage, launch=Launch(grid=(grid, 1, 1), limiter=grid), pod=pod)
    for kernel in range(2)
    for stage in ("a", "b")
    for grid in (1, 2)
    for pod in ("p", "q")
]
_ACTS = st.tuples(
    st.sampled_from(["put", "put", "put", "wait", "remove", "look"]), st.integers(0, 15), st.integers(1, 9)
)


@given(st.lists(_ACTS, max_size=60), st.sampled_from([1, 2, 100]))
def test_nothing_that_stays_in_sight_ever_falls(acts: list[tuple[str, int, int]], cap: int) -> None:
    """Proves, over any order of growth, silence, tombstones and new beginnings, with label sets shared in every way."""
    table = PointTable(series_cap=cap, expire_ns=HOUR_NS, clock=ManualClock(2**62))
    counted: dict[int, int] = {}
    epochs = [0] * len(_SERIES)
    now_ns = 0
    seen: dict[tuple[str, ...], float] = {}
    for act, which, amount in acts:
        if act == "wait":
            now_ns += amount * HOUR_NS // 4
        elif act == "remove":
            table.remove([series_key(_SERIES[which])])
            counted.pop(which, None)
            epochs[which] += 1
        elif act == "put":
            counted[which] = counted.get(which, 0) + amount
            point = point_of(_SERIES[which], count=counted[which], end_ns=now_ns)
            table.put([replace(point, epoch=epochs[which])])
        else:
            now = shown(table)
            assert all(now[key] >= value for key, value in seen.items() if key in now)
            seen = now

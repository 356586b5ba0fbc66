"""Which spans are kept, and how the others are counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.validate import DEFAULT_HORIZON_NS, REASONS, validate

_NOW = 1_795_958_731_643_646_670
_DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (_NOW, _NOW + 1, None),
        (0, 0, "zero_timestamp"),
        (0, _NOW, "zero_timestamp"),
        (_NOW, 0, "zero_timestamp"),
        (2**63, 0, "zero_timestamp"),
        (2**63, 2**63 + 1, "sentinel"),
        (_NOW, 2**63, "sentinel"),
        (2**64 - 1, 2**64 - 1, "sentinel"),
        (_NOW, 2**64 - 1, "sentinel"),
        (_NOW, _NOW - 1, "negative_duration"),
        (_NOW + 2 * _DAY, _NOW, "negative_duration"),
        (_NOW, _NOW, "zero_duration"),
        (1, 1, "zero_duration"),
        (1, 2, "implausible_clock"),
        (_NOW - _DAY, _NOW, None),
        (_NOW - _DAY - 1, _NOW, "implausible_clock"),
        (_NOW + _DAY - 1, _NOW + _DAY, None),
        (_NOW, _NOW + _DAY + 1, "implausible_clock"),
        (_NOW, 2**63 - 1, "implausible_clock"),
        (_NOW + _DAY, _NOW + _DAY + 2, "implausible_clock"),
        (2**63 - 2, 2**63 - 1, "implausible_clock"),
    ],
)
def test_row_is_refused_under_the_first_reason_that_fits(start: int, end: int, reason: str | None) -> None:
    """Each reason, its bounds and its precedence, one row at a time."""
    keep, rejected = validate(np.array([start], np.uint64), np.array([end], np.uint64), now_ns=_NOW)
    assert keep.tolist() == [reason is None]
    assert rejected == ({} if reason is None else {reason: 1})


def test_clock_is_not_checked_without_a_now() -> None:
    """Without a wall clock every positive start passes."""
    keep, rejected = validate(np.array([1, 0], np.uint64), np.array([2, 2], np.uint64), now_ns=None)
    assert keep.tolist() == [True, False]
    assert rejected == {"zero_timestamp": 1}


def test_horizon_is_a_day_unless_given() -> None:
    """The horizon can be narrowed."""
    assert DEFAULT_HORIZON_NS == _DAY
    start = np.array([_NOW - 10, _NOW + 11], np.int64)
    keep, rejected = validate(start, start + 1, now_ns=_NOW, horizon_ns=10)
    assert keep.tolist() == [True, False]
    assert rejected == {"implausible_clock": 1}


def test_fields_of_records_are_accepted_as_they_are() -> None:
    """Strided columns of a structured array need no copy by the caller."""
    records = np.zeros(3, [("kind", "<i4"), ("start", "<u8"), ("end", "<u8")])
    records["start"], records["end"] = [5, 7, 2**64 - 1], [6, 6, 1]
    keep, rejected = validate(records["start"], records["end"], now_ns=None)
    assert keep.tolist() == [True, False, False]
    assert rejected == {"negative_duration": 1, "sentinel": 1}


def test_no_rows_give_no_reasons() -> None:
    """An empty batch is valid."""
    keep, rejected = validate(np.zeros(0, np.int64), np.zeros(0, np.int64), now_ns=_NOW)
    assert keep.shape == (0,)
    assert rejected == {}


_TIMES = st.sampled_from([0, 1, _NOW - 1, _NOW, _NOW + 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(_TIMES, _TIMES)), st.sampled_from([None, 0, _NOW]))
def test_every_row_is_kept_or_counted_once(rows: list[tuple[int, int]], now: int | None) -> None:
    """Kept rows and counted rows add up, whichever integer type holds the bits; kept rows can be true."""
    table = np.array(rows, np.uint64).reshape(-1, 2)
    keep, rejected = validate(table[:, 0], table[:, 1], now_ns=now)
    signed = table.view(np.int64)
    again = validate(signed[:, 0], signed[:, 1], now_ns=now)
    assert int(keep.sum()) + sum(rejected.values()) == len(rows)
    assert set(rejected) <= set(REASONS)
    assert again[0].tolist() == keep.tolist()
    assert again[1] == rejected
    kept = [row for row, ok in zip(rows, keep, strict=True) if ok]
    assert all(0 < start < end < 2**63 and (now is None or abs(start - now) <= _DAY) for start, end in kept)

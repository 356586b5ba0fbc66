"""Tells spans that can be true from those that cannot, and counts the latter by reason.

CUPTI hands out records with start and end 0 (by design when timestamps could not be had, and in bulk around graph
capture), kernels that were still running when a forced flush took their record, ends before starts and the value
2^63. None of them may reach a histogram, and none may vanish unseen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Times = npt.NDArray[np.int64] | npt.NDArray[np.uint64]

ZERO_TIMESTAMP = "zero_timestamp"
SENTINEL = "sentinel"
NEGATIVE_DURATION = "negative_duration"
ZERO_DURATION = "zero_duration"
IMPLAUSIBLE_CLOCK = "implausible_clock"
REASONS = (ZERO_TIMESTAMP, SENTINEL, NEGATIVE_DURATION, ZERO_DURATION, IMPLAUSIBLE_CLOCK)
"""Every reason, in the order in which they are tried: a row counts under the first that fits it."""

DEFAULT_HORIZON_NS = 24 * 3600 * 10**9


def validate(
    start: _Times, end: _Times, *, now_ns: int | None, horizon_ns: int = DEFAULT_HORIZON_NS
) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """Checks the times of spans.

    A row is refused under the first reason that fits: ``zero_timestamp`` (start or end is 0), ``sentinel`` (start or
    end is 2^63 or more, as unsigned), ``negative_duration`` (end before start), ``zero_duration`` (end equals start),
    ``implausible_clock`` (it starts more than ``horizon_ns`` before ``now_ns`` or ends more than that after it).

    Args:
        start: ns, int64 or uint64 of [rows].
        end: ns, as ``start``.
        now_ns: the wall clock around which starts must lie; None leaves that check out.
        horizon_ns: how far from ``now_ns`` a start may lie.

    Returns:
        Which rows to keep, and how many of the others there are by reason (reasons without a row are left out). The
        counts and the kept rows add up to all rows.
    """
    begin, finish = _signed(start), _signed(end)
    tests = [
        (ZERO_TIMESTAMP, (begin == 0) | (finish == 0)),
        (SENTINEL, (begin < 0) | (finish < 0)),  # the upper half of uint64, read as signed
        (NEGATIVE_DURATION, finish < begin),
        (ZERO_DURATION, finish == begin),
    ]
    if now_ns is not None:
        tests.append((IMPLAUSIBLE_CLOCK, (begin < now_ns - horizon_ns) | (finish > now_ns + horizon_ns)))
    keep = np.ones(begin.shape, np.bool_)
    rejected: dict[str, int] = {}
    for reason, unfit in tests:
        count = int(np.count_nonzero(unfit & keep))
        if count:
            rejected[reason] = count
            keep &= ~unfit
    return keep, rejected


def _signed(times: _Times) -> npt.NDArray[np.int64]:
    """The same bits as int64, contiguous whatever record they are a field of."""
    return np.ascontiguousarray(times).view(np.int64)

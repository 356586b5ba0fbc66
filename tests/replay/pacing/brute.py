"""Due times item by item in fractions, from the definitions: no array, no closed formula."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from spanlite.replay.pacing.rates import Rate
from spanlite.replay.pacing.settings import Pace


def amount(rate: Rate, at_ns: int | Fraction) -> Fraction:
    """The area under the rate until then."""
    if not rate.over_ns:
        return rate.last * at_ns
    within = min(at_ns, rate.over_ns)
    there = rate.first + (rate.last - rate.first) * Fraction(within) / rate.over_ns
    return (rate.first + there) / 2 * within + rate.last * max(at_ns - rate.over_ns, 0)


def reached(rate: Rate, much: Fraction | int) -> int:
    """The first whole nanosecond with that amount, by bisection."""
    high = 1
    while amount(rate, high) < much:
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        if amount(rate, middle) >= much:
            high = middle
        else:
            low = middle
    return high


def brute_due(times_ns: Sequence[int], pace: Pace, weights: Sequence[int] | None = None) -> list[int]:
    """All due times of a recording under a pace; pace.loops ≥ 1."""
    positions = _positions(times_ns, pace)
    due = [reached(pace.speed, position) if pace.speed else 0 for position in positions]
    if pace.limit:
        due = _limited(due, list(weights or [1] * len(times_ns)) * pace.loops, pace.limit.rate, pace.limit.burst)
    if pace.duration_ns is not None:
        due = [ns for ns in due if ns < pace.duration_ns]
    return due[: pace.most_items]


def _positions(times_ns: Sequence[int], pace: Pace) -> list[int]:
    origin = times_ns[0] if pace.origin_ns is None else pace.origin_ns
    at, before, one = 0, origin, []
    for time in times_ns:
        gap = time - before
        at += gap if pace.gap_cap_ns is None else min(gap, pace.gap_cap_ns)
        before = time
        one.append(at)
    gaps = len(times_ns) - (pace.origin_ns is None)
    period = pace.period_ns if pace.period_ns is not None else at + ceil(Fraction(at, max(gaps, 1)))
    return [loop * period + position for loop in range(pace.loops) for position in one]


def _limited(due: list[int], weights: list[int], rate: Rate, burst: int) -> list[int]:
    used = Fraction(0)
    out = []
    for ns, weight in zip(due, weights, strict=True):
        now = amount(rate, ns)
        out.append(max(ns, reached(rate, max(used - burst, Fraction(0)))))
        used = max(used, now) + weight
    return out


def spaced(due: Sequence[int], cost_ns: int) -> list[int]:
    """max(due, previous + cost): a limit as it is written in words."""
    out: list[int] = []
    for ns in due:
        out.append(max(ns, out[-1] + cost_ns) if out else ns)
    return out

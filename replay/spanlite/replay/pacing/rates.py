"""Rates that stay or ramp, integrated and inverted without rounding.

An amount (source nanoseconds that have passed, tokens of a limit) is handled in whole multiples of 1/`unit`, as a
Python int `base` plus an array. The array is int64 where everything that is done with it fits, and holds Python ints
where it does not, so nothing wraps around.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt, lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64
from spanlite.contract.errors import ReplayError, UsageError

MOST_NS = 2**63 - 1
Exact = NDArray[Any]
"""int64, or objects that are Python ints."""
_ceil_root = np.frompyfunc(lambda square: isqrt(square - 1) + 1 if square else 0, 1, 1)
_root = np.frompyfunc(isqrt, 1, 1)


@dataclass(frozen=True)
class Rate:
    """`first` per nanosecond at time 0, changing evenly to `last` at `over_ns`, `last` from then on.

    Attributes:
        first: 0 or more.
        last: above 0.
        over_ns: 0 for a rate that is `last` all the time.
    """

    first: Fraction
    last: Fraction
    over_ns: int = 0

    def __post_init__(self) -> None:
        if self.first < 0 or self.last <= 0 or not 0 <= self.over_ns <= MOST_NS:
            raise UsageError(f"a rate from {self.first} to {self.last} never gets there; end it above 0")

    @classmethod
    def steady(cls, per_ns: Fraction | int) -> Rate:
        """A rate that does not change."""
        return cls(Fraction(per_ns), Fraction(per_ns))

    @cached_property
    def form(self) -> Line | Curve:
        """The amount that has passed, as a function of time."""
        unit = lcm(self.first.denominator, self.last.denominator)
        first, last = int(self.first * unit), int(self.last * unit)
        if not self.over_ns or first == last:
            return Line(last, unit)
        return Curve(first, last, self.over_ns, unit * 2 * self.over_ns)


@dataclass(frozen=True)
class Line:
    """amount(t) = slope × t / unit."""

    slope: int
    unit: int

    def amount(self, at_ns: Int64) -> tuple[int, Exact]:
        """What has passed at times in ascending order, shape (n,), n ≥ 1: base and array, in 1/unit."""
        first = int(at_ns[0])
        return first * self.slope, scaled(at_ns - first, self.slope)

    def reached(self, base: int, more: Exact) -> Int64:
        """The first whole nanosecond at which base + more has passed, each; `more` ascending from 0 or more.

        Raises:
            ReplayError: that is more than 292 years away.
        """
        whole, rest = divmod(base, self.slope)
        local = more if fits(int(more[-1]) + rest) and fits(self.slope) else more.astype(object)
        return as_ns(whole, -(-(local + rest) // self.slope))


@dataclass(frozen=True)
class Curve:
    """amount(t) = (2·T·a·t + (b - a)·t²) / unit until T, from then on a line of slope 2·T·b / unit."""

    first: int
    last: int
    over_ns: int
    unit: int

    def amount(self, at_ns: Int64) -> tuple[int, Exact]:
        """Like Line.amount."""
        at = at_ns.astype(object)
        within, after = np.minimum(at, self.over_ns), np.maximum(at - self.over_ns, 0)
        change = self.last - self.first
        return 0, within * (2 * self.over_ns * self.first + change * within) + 2 * self.over_ns * self.last * after

    def reached(self, base: int, more: Exact) -> Int64:
        """Like Line.reached."""
        amount = more.astype(object) + base
        bend = (self.first + self.last) * self.over_ns**2
        within, after = np.minimum(amount, bend), np.maximum(amount - bend, 0)
        change, start = self.last - self.first, self.over_ns * self.first
        square = start**2 + change * within
        # (change·t + start)² ≥ square solved for whole t: the root is rounded to the side on which t is still enough.
        t = -((start - _ceil_root(square)) // change) if change > 0 else -((_root(square) - start) // -change)
        return as_ns(0, t - (-after // (2 * self.over_ns * self.last)))


def fits(number: int) -> bool:
    """Whether an int64 holds it with a bit to spare."""
    return abs(number) < 2**62


def scaled(more: Int64, factor: int) -> Exact:
    """more × factor, exact; `more` ascending from 0 or more, shape (n,), n ≥ 1."""
    return more * factor if fits(int(more[-1]) * factor) and fits(factor) else more.astype(object) * factor


def as_ns(whole: int, more: Exact) -> Int64:
    """whole + more as int64.

    Raises:
        ReplayError: it does not fit.
    """
    if whole + int(more[-1]) > MOST_NS:
        raise ReplayError("an item would be due in more than 292 years; replay faster, or cap the idle gaps")
    return (
        np.asarray(more + whole, dtype=np.int64) if fits(whole) else np.array([int(m) + whole for m in more], np.int64)
    )

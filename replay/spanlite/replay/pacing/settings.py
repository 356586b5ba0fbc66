"""What a pace is made of, and how people write speeds and rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from spanlite.contract.errors import UsageError
from spanlite.replay.pacing.rates import MOST_NS, Rate
from spanlite.runtime.durations import parse_duration_ns

SLOWEST, FASTEST = Fraction(1, 100), Fraction(1000)
RECORDED = Rate.steady(1)
_MOST_PER_S = 10**9
_NUMBER = r"([0-9]{1,10}(?:\.[0-9]{1,9})?)"
_FORM = re.compile(rf"{_NUMBER}(?:\.\.{_NUMBER}/([0-9].*))?")


@dataclass(frozen=True)
class Limit:
    """At most so much a second; what is too much is delayed, nothing is dropped.

    Attributes:
        rate: weight per nanosecond of the replay.
        burst: weight that may go at once beyond that, after as long a pause or at the start.
    """

    rate: Rate
    burst: int = 0

    def __post_init__(self) -> None:
        if self.burst < 0:
            raise UsageError(f"a burst of {self.burst} is none; write 0 or more")


@dataclass(frozen=True)
class Pace:
    """How source times become due times.

    Attributes:
        speed: source nanoseconds per nanosecond of the replay; None is as fast as possible.
        loops: how often the recording is played; 0 is for ever.
        period_ns: source time from one pass to the next; None is the length of a pass and its mean gap, rounded up.
        gap_cap_ns: longer gaps between items are cut to this, before `speed` is applied.
        limit: what is too much is delayed.
        duration_ns: items due from then on are left out.
        most_items: items beyond so many are left out.
        origin_ns: source time that is due at 0; None is the first item's. Processes that share a recording share it.
    """

    speed: Rate | None = RECORDED
    loops: int = 1
    period_ns: int | None = None
    gap_cap_ns: int | None = None
    limit: Limit | None = None
    duration_ns: int | None = None
    most_items: int | None = None
    origin_ns: int | None = None

    def __post_init__(self) -> None:
        if self.speed:
            for speed in (self.speed.first, self.speed.last):
                if not SLOWEST <= speed <= FASTEST:
                    raise UsageError(f"a speed of {float(speed):g} is out of range; write 0.01 to 1000, or max")
        for name, value in (("loops", self.loops), ("gap cap", self.gap_cap_ns), ("period", self.period_ns)):
            if value is not None and not 0 <= value <= MOST_NS:
                raise UsageError(f"{name} of {value} is out of range; write 0 to {MOST_NS}")
        for name, value in (("duration", self.duration_ns), ("number of items", self.most_items)):
            if value is not None and not 1 <= value <= MOST_NS:
                raise UsageError(f"a {name} of {value} leaves nothing to replay; write 1 to {MOST_NS}")


def parse_speed(text: str) -> Rate | None:
    """`2`, `0.5`, `1..10/60s` (from 1 to 10 within a minute), `max` (None); exact as written.

    Raises:
        UsageError: another form; the range is checked by `Pace`.
    """
    return None if text.strip() == "max" else _parse("speed", text, 1, "2, 0.5, 1..10/60s or max")


def parse_rate(text: str) -> Rate:
    """`5000`, `0.25`, `100..5000/60s` a second, as a rate per nanosecond; at most 10^9.

    Raises:
        UsageError: another form, or too much.
    """
    rate = _parse("rate", text, 10**9, "5000, 0.25 or 100..5000/60s")
    if max(rate.first, rate.last) * 10**9 > _MOST_PER_S:
        raise UsageError(f"{text!r} is too high a rate; write at most {_MOST_PER_S:,} a second")
    return rate


def _parse(what: str, text: str, per: int, forms: str) -> Rate:
    match = _FORM.fullmatch(text.strip())
    if not match or not Fraction(match[2] or match[1]):
        raise UsageError(f"{text!r} is no {what}; write {forms}")
    first = Fraction(match[1]) / per
    if match[2] is None:
        return Rate.steady(first)
    return Rate(first, Fraction(match[2]) / per, parse_duration_ns(match[3]))

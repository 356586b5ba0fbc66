"""Speeds, rates and bounds as people write them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from spanlite.contract.errors import UsageError
from spanlite.replay.pacing.late import Late, LatePolicy, parse_late
from spanlite.replay.pacing.rates import Rate
from spanlite.replay.pacing.settings import Limit, Pace, parse_rate, parse_speed


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1", Rate.steady(1)),
        ("0.01", Rate.steady(Fraction(1, 100))),
        ("1000", Rate.steady(1000)),
        (" 1.1 ", Rate.steady(Fraction(11, 10))),
        ("0.5..4/60s", Rate(Fraction(1, 2), Fraction(4), 60 * 10**9)),
        ("max", None),
    ],
)
def test_speeds_are_exact(text: str, rate: Rate | None) -> None:
    """Proves that 1.1 is eleven tenths and no float64."""
    assert parse_speed(text) == rate
    assert Pace(speed=parse_speed(text)).speed == rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("5000", Rate.steady(Fraction(5000, 10**9))),
        ("0.25", Rate.steady(Fraction(1, 4 * 10**9))),
        ("0..100/1.5m", Rate(Fraction(0), Fraction(100, 10**9), 90 * 10**9)),
    ],
)
def test_rates_are_a_second(text: str, rate: Rate) -> None:
    """Proves the unit, and that a ramp may begin at nothing."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1e3", "2x", "1..0/1s", "1..2", "1..2/", "1..2/0s", "inf", "1/3"])
def test_other_forms_are_refused(text: str) -> None:
    """Proves that a slip is no number."""
    for parse in (parse_speed, parse_rate):
        with pytest.raises(UsageError, match="write"):
            parse(text)


@pytest.mark.parametrize("text", ["0.009", "1001", "0.001..1/1s", "1..2000/1s"])
def test_speeds_are_bounded(text: str) -> None:
    """Proves both bounds, at both ends of a ramp."""
    with pytest.raises(UsageError, match=r"write 0\.01 to 1000, or max"):
        Pace(speed=parse_speed(text))


def test_rates_are_bounded() -> None:
    """Proves that more than one a nanosecond is refused."""
    with pytest.raises(UsageError, match="at most 1,000,000,000"):
        parse_rate("1000000001")


def test_bounds_that_leave_nothing_are_refused() -> None:
    """Proves that a replay of nothing is a slip."""
    for make in (
        lambda: Pace(duration_ns=0),
        lambda: Pace(most_items=0),
        lambda: Pace(loops=-1),
        lambda: Pace(gap_cap_ns=2**63),
        lambda: Limit(Rate.steady(1), -1),
        lambda: Rate(Fraction(1), Fraction(0), 10),
    ):
        with pytest.raises(UsageError):
            make()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("catchup", LatePolicy()),
        ("drop=5ms", LatePolicy(Late.DROP, 5_000_000)),
        ("shift", LatePolicy(Late.SHIFT, 10_000_000)),
        ("abort=1s", LatePolicy(Late.ABORT, 10**9)),
    ],
)
def test_late_policies(text: str, policy: LatePolicy) -> None:
    """Proves each word."""
    assert parse_late(text) == policy


@pytest.mark.parametrize("text", ["", "later", "drop=", "drop=5", "abort=0s"])
def test_other_late_policies_are_refused(text: str) -> None:
    """Proves that an unknown word does not fall back to catching up."""
    with pytest.raises(UsageError, match="write"):
        parse_late(text)

"""The grammar of rules: what can be written, and what is said of the rest."""

from __future__ import annotations

import pytest

from spanlite.contract.errors import UsageError
from spanlite.pipeline.detect.rules import parse_rule


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99 > 2ms for 3", ("p99", ">", 2e6, 3, None)),
        ("p99.9>=1.5us", ("p99.9", ">=", 1500, 1, None)),
        ("  mean   <  10s  ", ("mean", "<", 1e10, 1, None)),
        ("max<=1h for 10000", ("max", "<=", 3.6e12, 10_000, None)),
        ("time > 900ms", ("time", ">", 9e8, 1, None)),
        ("calls > 1000 for 2", ("calls", ">", 1000, 2, None)),
        ("calls < 0.5", ("calls", "<", 0.5, 1, None)),
        ("occupancy < 40%", ("occupancy", "<", 0.4, 1, None)),
        ("occupancy < 0.4 for 2", ("occupancy", "<", 0.4, 2, None)),
        ("p99 > 1.5x of 30 for 2", ("p99", ">", 1.5, 2, 30)),
        ("calls < 0.5x of 1", ("calls", "<", 0.5, 1, 1)),
        ("occupancy < 0.9x of 30", ("occupancy", "<", 0.9, 1, 30)),
    ],
)
def test_what_a_rule_says(text: str, expected: tuple[str, str, float, int, int | None]) -> None:
    """A rule would be taken for another one: unit, factor, number of windows."""
    rule = parse_rule(text)
    for one in (rule, parse_rule(rule.text)):
        assert (one.figure.name, one.operator, one.value, one.windows, one.baseline) == expected
    assert rule.above == (expected[1][0] == ">")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 of at least 3 words"),
        ("p99 >", "2 of at least 3 words"),
        ("p0 > 2ms", "'p0' is no figure; there are p50, p90, p99, p99.9, …, mean, max, time, calls, occupancy"),
        ("p101 > 2ms", "'p101' is no figure"),
        ("P99 > 2ms", "'P99' is no figure"),
        ("median > 2ms", "'median' is no figure"),
        ("p99 = 2ms", "'=' is no comparison; there are >, >=, < and <="),
        ("p99 >> 2ms", "p99 is a time, and '>' is no duration"),
        ("p99 > 2", "p99 is a time, and '2' is no duration; write a number and one of ns, us, ms, s, m, h"),
        ("mean > 5%", "mean is a time"),
        ("calls > 2ms", "calls is a number, and '2ms' is none"),
        ("calls > -3", "calls is a number"),
        ("occupancy < 40", "40 is more than 100 %"),
        ("occupancy < 140%", "140% is more than 100 %"),
        ("p99 > 2ms for", "after 'for' stands a number of windows, 1 to 10000"),
        ("p99 > 2ms for 0", "after 'for'"),
        ("p99 > 2ms for 3 windows", "'windows' is too much"),
        ("p99 > 2ms of 3", "'of 3' is too much"),
        ("p99 > 1.5x", "'1.5x' of what?"),
        ("p99 > 1.5x for 2", "'1.5x' of what?"),
        ("p99 > 1.5x of many", "after 'of' stands a number of windows"),
        ("p99 > 1.5x of 10001", "after 'of'"),
        ("p99 > 1.5x of 30 for 2 for 2", "'for 2' is too much"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(text: str, said: str) -> None:
    """A slip of the pen would be a rule of its own, or an error that helps nobody."""
    with pytest.raises(UsageError) as raised:
        parse_rule(text)
    assert said in str(raised.value)
    assert str(raised.value).endswith("write such as 'p99 > 2ms for 3' or 'mean > 1.5x of 30 for 2'")

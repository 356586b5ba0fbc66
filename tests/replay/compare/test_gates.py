"""Requirements: what holds, what does not, and what nobody can tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.errors import UsageError
from spanlite.replay.compare.figures import NAMES, Report
from spanlite.replay.compare.gates import parse_gate, said


def _report(**values: float) -> Report:
    report = Report("r", "traces", "out", "file")
    report.arrivals = {"by": "broker", "resolution_ns": 1_000_000}
    report.figures.put(**values)
    report.figures.lack("nobody said", "topology", "ks")
    return report


@given(
    value=st.integers(-5, 5), bound=st.integers(-5, 5), test=st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="])
)
def test_a_gate_is_what_python_says(value: int, bound: int, test: str) -> None:
    """Each test is that of the numbers."""
    judged = parse_gate(f" missing {test} {bound} ").judged(_report(missing=value))
    assert judged["passed"] is eval(f"{value} {'==' if test == '=' else test} {bound}")  # noqa: S307  # two numbers
    assert (judged["value"], judged["bound"]) == (value, bound)


def test_a_gate_that_fails_names_both_numbers() -> None:
    """What is required and what is, in one line."""
    assert said(parse_gate("missing=0").judged(_report(missing=3))) == "failed  missing=0: missing is 3, not =0"
    assert said(parse_gate("missing=3").judged(_report(missing=3))) == "ok      missing=3: 3"


def test_what_is_not_there_fails_and_says_why() -> None:
    """A figure without a value holds nothing, whatever is required of it."""
    judged = parse_gate("topology>=0").judged(_report())
    assert judged["passed"] is False
    assert said(judged) == "failed  topology>=0: there is no topology: nobody said"
    assert "nobody said" in said(parse_gate("ks<1").judged(_report()))


def test_columns_are_figures() -> None:
    """A column that does not differ anywhere has 0, where spans were compared at all."""
    assert parse_gate("changed.kernel=0").judged(_report(changed=0))["passed"]
    assert not parse_gate("changed.kernel=0").judged(_report(changed=2, **{"changed.kernel": 2}))["passed"]


@pytest.mark.parametrize("text", ["missing", "missing=", "missing=many", "missing~0", "=0", "missing=nan", ""])
def test_what_is_no_requirement_is_refused(text: str) -> None:
    """Another form is a wrong call."""
    with pytest.raises(UsageError, match="--require"):
        parse_gate(text)


def test_an_unknown_name_lists_the_known_ones() -> None:
    """A typing error does not pass for a figure that is not there."""
    with pytest.raises(UsageError, match="no figure mising; there are ") as caught:
        parse_gate("mising=0")
    assert [name for name in NAMES if name not in str(caught.value)] == []

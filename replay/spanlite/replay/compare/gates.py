"""What is required of a comparison: `missing=0`, `topology=100`, `ks<0.01`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spanlite.contract.errors import UsageError
from spanlite.replay.compare.figures import CHANGED, EMITTED, GAPS, NAMES, Report

_TESTS: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_BY = {
    "broker": "the broker's times",
    "batches": "the times that batches carry",
    "headers": "the headers of the run",
}
_FORM = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*(==|<=|>=|!=|=|<|>)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """One requirement, as it was written."""

    text: str
    name: str
    test: str
    bound: float

    def judged(self, report: Report) -> dict[str, Any]:
        """The requirement, the figure (None where there is none, with `why`), and whether it holds.

        Of a figure about emissions or arrivals it also says `by` whose clock.
        """
        value = report.figures.value(self.name)
        told: dict[str, Any] = {"require": self.text, "name": self.name, "bound": self.bound, "value": value}
        if self.name in GAPS:
            told["by"] = report.arrivals["by"]
        elif self.name in EMITTED and report.emissions["by"]:
            told["by"] = report.emissions["by"]
        if value is None:
            why = report.figures.unavailable.get(self.name, "it was not measured")
            return {**told, "passed": False, "why": why}
        return {**told, "passed": _TESTS[self.test](value, self.bound)}


def parse_gate(text: str) -> Gate:
    """A requirement.

    Raises:
        UsageError: another form, or a name that no figure has.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"--require {text!r}: write NAME=NUMBER, or with <, <=, >, >=, !=, such as ks<0.01")
    name, test, number = match.groups()
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if math.isnan(bound):
        raise UsageError(f"--require {text!r}: {number} is no number")
    if name not in NAMES and not name.startswith(CHANGED):
        raise UsageError(f"--require {text!r}: no figure {name}; there are {', '.join(NAMES)} and changed.COLUMN")
    return Gate(text.strip(), name, test, bound)


def said(gate: dict[str, Any]) -> str:
    """A judged gate in one line."""
    required, name, value = gate["require"], gate["name"], gate["value"]
    by = f" (by {_BY[gate['by']]})" if "by" in gate else ""
    if gate["passed"]:
        return f"ok      {required}: {value:.12g}{by}"
    if value is None:
        return f"failed  {required}: there is no {name}: {gate['why']}"
    return f"failed  {required}: {name} is {value:.12g}, not {required.removeprefix(name).strip()}{by}"

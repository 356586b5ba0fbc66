"""Arithmetic that can be read: every result with its formula and the numbers in it, from one description of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Line:
    """One result.

    Attributes:
        section: heading under which it stands.
        name: for JSON and for the formulas of later lines.
        title: for people.
        value: in `unit`.
        formula: with names; numbers: the same with values.
        assumed: whether anything in it has not been measured.
    """

    section: str
    name: str
    title: str
    value: float
    unit: str
    formula: str
    numbers: str
    assumed: bool


class Sheet:
    """Lines in the order in which they are reckoned; each may use all before it, and what the sheet began with."""

    def __init__(self, values: Mapping[str, float], assumed: Sequence[str] = ()) -> None:
        """Args: values: inputs by name; assumed: those that nobody has measured."""
        self.lines: list[Line] = []
        self._values = dict(values)
        self._assumed = set(assumed)
        self._section = ""

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def section(self, title: str) -> None:
        """Begins a section."""
        self._section = title

    def product(
        self, name: str, title: str, unit: str, times: Sequence[str], over: Sequence[str] = (), *, whole: bool = False
    ) -> float:
        """Product of some values over the product of others; `whole` rounds up."""
        value = math.prod(self[each] for each in times) / math.prod(self[each] for each in over)
        formula = " × ".join(times) + "".join(f" / {each}" for each in over)
        return self.line(name, title, unit, math.ceil(value) if whole else value, formula)

    def total(self, name: str, title: str, unit: str, plus: Sequence[str]) -> float:
        """Sum of values."""
        return self.line(name, title, unit, sum(self[each] for each in plus), " + ".join(plus))

    def line(self, name: str, title: str, unit: str, value: float, formula: str) -> float:
        """Any other arithmetic; the words of `formula` that name values become numbers where numbers are shown."""
        words = formula.split(" ")
        numbers = " ".join(number(self[word]) if word in self._values else word for word in words)
        assumed = not self._assumed.isdisjoint(words)
        self._values[name] = value
        if assumed:
            self._assumed.add(name)
        self.lines.append(Line(self._section, name, title, value, unit, formula, numbers, assumed))
        return value


def number(value: float) -> str:
    """A number as people write it: whole ones in full, others to four digits."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def quantity(value: float, unit: str) -> str:
    """A value with its unit; bytes, and spans a second, with a decimal prefix."""
    if unit in ("B", "B/s", "spans/s", "records/s"):
        for scale, prefix in _SCALES:
            if value >= scale:
                return (
                    f"{value / scale:.3g} {prefix}{unit}" if unit[0] == "B" else f"{value / scale:.3g} {prefix} {unit}"
                )
    return f"{number(value if value == int(value) else float(f'{value:.3g}'))} {unit}".rstrip()

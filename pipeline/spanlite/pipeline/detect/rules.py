"""Rules as people write them.

    rule     = figure op value ["for" windows]
             | figure op factor "x of" windows ["for" windows]
    figure   = p50, p90, p99, p99.9, … | mean | max | time | calls | occupancy
    op       = ">" | ">=" | "<" | "<="
    value    = 2ms, 1.5us (p…, mean, max, time) | 100 (calls) | 0.4 or 40% (occupancy)

"p99 > 2ms for 3": in three windows one after the other. "mean > 1.5x of 30 for 2": against the median of the 30 windows
before. A `for` of 1 may be left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.errors import UsageError
from spanlite.pipeline.detect.figures import NAMES, SHARE, TIME, Figure, figure_of
from spanlite.runtime.durations import parse_duration_ns

_OPERATORS = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}
_TOKEN = re.compile(r"\s*([<>]=?|[^\s<>]+)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")
MOST_WINDOWS = 10_000
_EXAMPLES = "write such as 'p99 > 2ms for 3' or 'mean > 1.5x of 30 for 2'"


@dataclass(frozen=True, slots=True)
class Rule:
    """When a series is off, and for how long it must be.

    Attributes:
        text: as it was written, with single spaces.
        figure: what is compared.
        operator: >, >=, < or <=.
        value: with what: nanoseconds, a number or a share; or a factor of the baseline.
        windows: so many one after the other.
        baseline: None for a fixed value, else of how many windows before the median is taken.
    """

    text: str
    figure: Figure
    operator: str
    value: float
    windows: int = 1
    baseline: int | None = None

    @property
    def above(self) -> bool:
        """Whether more is worse."""
        return self.operator.startswith(">")


def parse_rule(text: str) -> Rule:
    """A rule from its text.

    Raises:
        UsageError: what in it is wrong, and how it is written.
    """
    words = _TOKEN.findall(text)
    if len(words) < 3:
        _refuse(text, f"it has {len(words)} of at least 3 words")
    figure = figure_of(words[0])
    if figure is None:
        _refuse(text, f"{words[0]!r} is no figure; there are {', '.join(NAMES)}")
    if words[1] not in _OPERATORS:
        _refuse(text, f"{words[1]!r} is no comparison; there are >, >=, < and <=")
    rest = words[3:]
    factor, baseline = _FACTOR.fullmatch(words[2]), None
    if factor:
        if rest[:1] != ["of"]:
            _refuse(text, f"{words[2]!r} of what? of the median of how many windows, such as {words[2]} of 30")
        value, baseline = float(factor[1]), _windows(text, rest[1:2], "of")
        rest = rest[2:]
    else:
        value = _value(text, figure, words[2])
    length = 1
    if rest[:1] == ["for"]:
        length, rest = _windows(text, rest[1:2], "for"), rest[2:]
    if rest:
        _refuse(text, f"{' '.join(rest)!r} is too much")
    return Rule(" ".join(words), figure, words[1], value, length, baseline)


def is_off(rule: Rule, value: NDArray[np.float64], limit: NDArray[np.float64] | float) -> NDArray[np.bool_]:
    """Whether each figure is off from its limit; never where either is not known."""
    off: NDArray[np.bool_] = _OPERATORS[rule.operator](value, limit)
    return off


def _value(text: str, figure: Figure, word: str) -> float:
    if figure.unit == TIME:
        try:
            return float(parse_duration_ns(word))
        except UsageError as error:
            _refuse(text, f"{figure.name} is a time, and {error}")
    share = figure.unit == SHARE and word.endswith("%")
    number = word.removesuffix("%") if share else word
    if not _NUMBER.fullmatch(number):
        _refuse(text, f"{figure.name} is a {figure.unit}, and {word!r} is none")
    value = float(number) / 100 if share else float(number)
    if figure.unit == SHARE and value > 1:
        _refuse(text, f"{word} is more than 100 %")
    return value


def _windows(text: str, words: list[str], after: str) -> int:
    if not words or not words[0].isdecimal() or not 1 <= int(words[0]) <= MOST_WINDOWS:
        _refuse(text, f"after {after!r} stands a number of windows, 1 to {MOST_WINDOWS}")
    return int(words[0])


def _refuse(text: str, why: str) -> NoReturn:
    raise UsageError(f"rule {text!r}: {why}; {_EXAMPLES}")

"""Durations as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from spanlite.contract.errors import UsageError

_MOST_NS = 2**63 - 1
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h)")


def parse_duration_ns(text: str) -> int:
    """Nanoseconds of `10s`, `1.5m`, `500ms`, …; at least 1 ns, at most an int64 (292 years).

    Raises:
        UsageError: another form, too long, or nothing left after rounding.
    """
    match = _FORM.fullmatch(text.strip())
    value_ns = int(Decimal(match[1]) * _UNITS_NS[match[2]]) if match else 0
    if not 1 <= value_ns <= _MOST_NS:
        raise UsageError(f"{text!r} is no duration; write a number and one of {', '.join(_UNITS_NS)}, such as 10s")
    return value_ns

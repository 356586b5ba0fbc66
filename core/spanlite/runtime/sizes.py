"""Numbers of bytes as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from spanlite.contract.errors import UsageError

_MOST = 2**63 - 1
_UNITS = {"": 1, "B": 1, **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Bytes of `1GiB`, `1.5 MB`, `4096`, …; at least 1.

    Raises:
        UsageError: another form, more than an int64, or nothing left after rounding.
    """
    match = _FORM.fullmatch(text.strip())
    unit = _UNITS.get(match[2]) if match else None
    value = int(Decimal(match[1]) * unit) if match and unit else 0
    if not 1 <= value <= _MOST:
        raise UsageError(f"{text!r} is no size; write a number and one of {', '.join(filter(None, _UNITS))}")
    return value

"""Series, times and figures as `spanlite backtest` shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from spanlite.contract.columns import Kind
from spanlite.contract.points import OTHER, Series
from spanlite.pipeline.detect.figures import NUMBER, TIME

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_BARS = "▁▂▃▄▅▆▇█"
_NO_POINT = "·"


def time_text(unix_ns: int) -> str:
    """RFC 3339, UTC, with as much of a fraction as there is."""
    seconds, fraction = divmod(unix_ns, 10**9)
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}{digits}Z"


def duration_text(ns: float) -> str:
    """Such as 1.25ms; of what is negative with its sign."""
    size, unit = next(((size, unit) for size, unit in _UNITS if abs(ns) >= size), _UNITS[-1])
    return f"{ns / size:.4g}{unit}"


def figure_text(value: float, unit: str) -> str:
    """A figure in its unit."""
    if math.isnan(value):
        return "unknown"
    if unit == TIME:
        return duration_text(value)
    return f"{value:,.6g}" if unit == NUMBER else f"{100 * value:.4g}%"


def series_text(series: Series) -> str:
    """What tells a series from others, as far as one line holds it."""
    launch = series.launch
    what = [series.kernel, f"stage={series.stage}" if series.stage else ""]
    if series.kind == Kind.KERNEL and series.kernel != OTHER:
        what.append(f"grid={_shape(launch.grid)} block={_shape(launch.block)} regs={launch.registers_per_thread}")
    where = [series.host, series.namespace, series.pod, series.container, series.workload]
    return " ".join([*filter(None, what), f"gpu={series.gpu_uuid[:12]}", *filter(None, where)])


def series_facts(series: Series) -> dict[str, Any]:
    """A series as JSON values."""
    return {**series._asdict(), "kind": Kind(series.kind).name.lower(), "launch": series.launch._asdict()}


def sparkline(values: Mapping[int, float], first: int, last: int, marked: Sequence[tuple[int, int]]) -> str:
    """Figures of the windows first … last as bars from the least to the greatest; ranges of windows between [ and ]."""
    known = [value for value in values.values() if math.isfinite(value)]
    least, most = min(known, default=0.0), max(known, default=0.0)
    text = []
    for window in range(first, last + 1):
        text.append("[" * sum(window == begin for begin, _ in marked))
        value = values.get(window, math.nan)
        share = (value - least) / (most - least) if most > least else 0.0
        text.append(_BARS[round(share * (len(_BARS) - 1))] if math.isfinite(value) else _NO_POINT)
        text.append("]" * sum(window == end for _, end in marked))
    return "".join(text)


def _shape(sizes: tuple[int, int, int]) -> str:
    return "x".join(map(str, sizes))

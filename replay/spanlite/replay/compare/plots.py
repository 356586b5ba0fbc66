"""Plots as inline SVG: curves and bars over labelled axes, coloured by the page's style sheet, every text escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 680, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 32, 34, 48
_TICKS = 6
_MOST_DECADE_LABELS = 10
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its label, its ends, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Values to label."""
        if self.log:
            decades = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            step = -(-len(decades) // _MOST_DECADE_LABELS) or 1
            return [10.0**decade for decade in decades[::step]]
        raw = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(raw))
        width = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
        first, count = math.ceil(self.low / width - 1e-9), math.floor(self.high / width + 1e-9)
        return [number * width for number in range(first, count + 1)]


def linear(label: str, values: Sequence[float]) -> Axis:
    """An axis from 0 to the largest value."""
    most = max(values, default=0)
    return Axis(label, 0, most if most > 0 else 1)


def decades(label: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis of whole decades around all values from 1 on; smaller ones, 0 too, stand at its low end."""
    shown = [value for value in values if value >= 1]
    low = math.floor(math.log10(min(shown, default=1)))
    high = math.ceil(math.log10(max(shown, default=10)))
    return Axis(label, 10.0**low, 10.0 ** max(high, low + 1), log=True)


def duration(ns: float) -> str:
    """Nanoseconds in the unit that fits."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= size:
            return f"{ns / size:,.6g} {unit}"
    return f"{ns:g} ns"


def curves(
    title: str, x: Axis, y: Axis, series: Sequence[tuple[str, Points]], *, times: bool = False, stepped: bool = False
) -> str:
    """Lines over two axes; series are drawn in the classes s0, s1, ….

    Args:
        title: above it.
        x, y: axes.
        series: name, and points in the order of x.
        times: whether x is in nanoseconds.
        stepped: whether lines are stairs, as those of empirical distributions are.
    """
    parts = [_frame(title, x, y, times=times)]
    for at, (name, points) in enumerate(series):
        path = _path(points, x, y, stepped=stepped)
        parts.append(f'<path class="line s{at}" d="{path}"><title>{escape(name)}</title></path>')
        left = _LEFT + 10 + 160 * at
        parts.append(f'<path class="line s{at}" d="M{left} {_TOP - 8}h26"/>')
        parts.append(f'<text x="{left + 32}" y="{_TOP - 4}">{escape(name)}</text>')
    return _svg(title, parts)


def bars(
    title: str, x_label: str, y_label: str, heights: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]
) -> str:
    """Bars in groups: a label and a height for each of `names`."""
    y = linear(y_label, [height for _, group in heights for height in group])
    parts = [_frame(title, Axis(x_label, 0, 1), y, times=False, x_ticks=False)]
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(heights), 1)
    thick = 0.8 * step / max(len(names), 1)
    every = -(-len(heights) // 12)
    for at, (label, group) in enumerate(heights):
        begin = _LEFT + at * step + 0.1 * step
        for number, height in enumerate(group):
            top = _y(y, height)
            parts.append(
                f'<rect class="bar s{number}" x="{begin + number * thick:.1f}" y="{top:.1f}" width="{thick:.1f}" '
                f'height="{_HEIGHT - _BOTTOM - top:.1f}"><title>{escape(names[number])}, {escape(label)}: '
                f"{height:,.0f}</title></rect>"
            )
        if at % every == 0:
            parts.append(f'<text class="mid" x="{begin + 0.4 * step:.1f}" y="{_HEIGHT - 30}">{escape(label)}</text>')
    for at, name in enumerate(names):
        left = _LEFT + 10 + 160 * at
        parts.append(f'<rect class="bar s{at}" x="{left}" y="{_TOP - 14}" width="12" height="12"/>')
        parts.append(f'<text x="{left + 18}" y="{_TOP - 4}">{escape(name)}</text>')
    return _svg(title, parts)


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _frame(title: str, x: Axis, y: Axis, *, times: bool, x_ticks: bool = True) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [f'<text class="title" x="{_LEFT}" y="14">{escape(title)}</text>']
    for value in y.ticks():
        at = _y(y, value)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{at + 4:.1f}">{value:,.6g}</text>')
    for value in x.ticks() if x_ticks else ():
        at = _x(x, value)
        label = duration(value) if times else f"{value:,.6g}"
        parts.append(f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>')
        parts.append(f'<text class="mid" x="{at:.1f}" y="{_HEIGHT - 30}">{escape(label)}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    parts.append(f'<text class="mid" x="{(_LEFT + right) / 2:.1f}" y="{_HEIGHT - 10}">{escape(x.label)}</text>')
    middle = (_TOP + bottom) / 2
    parts.append(f'<text class="mid" transform="translate(16 {middle:.1f}) rotate(-90)">{escape(y.label)}</text>')
    return "".join(parts)


def _path(points: Points, x: Axis, y: Axis, *, stepped: bool) -> str:
    if not points:
        return ""
    first = points[0]
    path = [f"M{_x(x, first[0]):.1f} {_y(y, 0.0 if stepped else first[1]):.1f}"]
    for value, height in points:
        at, up = _x(x, value), _y(y, height)
        path.append(f"H{at:.1f}V{up:.1f}" if stepped else f"L{at:.1f} {up:.1f}")
    return "".join([*path, f"H{_WIDTH - _RIGHT:.1f}"] if stepped else path)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (_WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - axis.place(value) * (_HEIGHT - _TOP - _BOTTOM)

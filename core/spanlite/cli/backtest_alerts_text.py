"""Alerts, and what two sets of them have in common, as text and as JSON values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spanlite.cli.backtest_text import (
    duration_text,
    figure_text,
    series_facts,
    series_text,
    sparkline,
    time_text,
)
from spanlite.pipeline.detect.alerts import Alerts
from spanlite.pipeline.detect.compare import Changes, Incidents
from spanlite.pipeline.detect.rules import Rule
from spanlite.pipeline.pointset import PointSet

_WIDE = 72
"""Windows that a line of bars shows at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """Points, rules, and the alerts of each rule."""

    points: PointSet
    rules: list[Rule]
    alerts: list[Alerts]


def alert_facts(found: Found) -> list[dict[str, Any]]:
    """Every alert, rule by rule."""
    width_ns, series = found.points.width_ns, found.points.registry.series
    return [
        {
            "rule": rule.text,
            "series": series_facts(series[alerts.series[at]]),
            "start_ns": int(alerts.first[at]) * width_ns,
            "end_ns": int(alerts.last[at] + 1) * width_ns,
            "told_ns": int(alerts.told[at] + 1) * width_ns,
            "windows": int(alerts.last[at] - alerts.first[at]) + 1,
            "peak": float(alerts.peak[at]),
            "peak_window_ns": int(alerts.peak_window[at]) * width_ns,
            "threshold": float(alerts.threshold[at]),
            "unit": rule.figure.unit,
        }
        for rule, alerts in zip(found.rules, found.alerts, strict=True)
        for at in range(len(alerts))
    ]


def say_alerts(found: Found, limit: int) -> None:
    """Prints them by rule and first window, each with the course of its series."""
    width_ns, series = found.points.width_ns, found.points.registry.series
    for rule, alerts in zip(found.rules, found.alerts, strict=True):
        what = "alert" if len(alerts) == 1 else "alerts"
        print(f"{rule.text}: {len(alerts)} {what} of {len(set(alerts.series.tolist()))} series")
        values = rule.figure.of(found.points)
        for at in range(min(len(alerts), limit)):
            unit = rule.figure.unit
            windows = int(alerts.last[at] - alerts.first[at]) + 1
            print(
                f"  {time_text(int(alerts.first[at]) * width_ns)}  {windows} × {duration_text(width_ns)}  "
                f"peak {figure_text(float(alerts.peak[at]), unit)} {rule.operator} "
                f"{figure_text(float(alerts.threshold[at]), unit)}  {series_text(series[alerts.series[at]])}"
            )
            print(f"    {_course(found.points, alerts, at, values)}")
        if len(alerts) > limit:
            print(f"  … and {len(alerts) - limit} more: --limit, or --json for all")


def _course(points: PointSet, alerts: Alerts, at: int, values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    """Bars of the series' windows around an alert; its ends are shown even where its middle does not fit."""
    first, last = int(alerts.first[at]), int(alerts.last[at])
    rows = np.flatnonzero(points.rows.series == alerts.series[at])
    window = points.rows.window[rows]
    around = max((_WIDE - (last - first + 1)) // 2, 2)
    begin, end = max(int(window.min()), first - around), min(int(window.max()), last + around)
    cut = end - begin + 1 - _WIDE
    shown = {int(w): float(v) for w, v in zip(window, values[rows], strict=True) if begin <= w <= end}
    if cut <= 0:
        return sparkline(shown, begin, end, [(first, last)])
    half = _WIDE // 2
    left = sparkline(shown, begin, begin + half - 1, [(first, last)])
    return f"{left} … {cut} … {sparkline(shown, end - half + 1, end, [(first, last)])}"


def change_facts(found: Found, other: Found, changed: Changes) -> dict[str, Any]:
    """What only one set has, and what both have with how much later the other begins and tells."""
    return {
        "rules": [rule.text for rule in other.rules],
        "window_ns": other.points.width_ns,
        "only_here": _incident_facts(found, changed.only_a),
        "only_against": _incident_facts(found, changed.only_b),
        "both": [
            {
                **here,
                "against": {name: there[name] for name in ("start_ns", "end_ns", "told_ns")},
                "starts_later_ns": there["start_ns"] - here["start_ns"],
                "told_later_ns": there["told_ns"] - here["told_ns"],
            }
            for here, there in zip(
                _incident_facts(found, changed.both_a), _incident_facts(found, changed.both_b), strict=True
            )
        ],
    }


def _incident_facts(found: Found, some: Incidents) -> list[dict[str, Any]]:
    series = found.points.registry.series
    columns = (some.series.tolist(), some.begin_ns.tolist(), some.end_ns.tolist(), some.told_ns.tolist())
    return [
        {"series": series_facts(series[number]), "start_ns": begin, "end_ns": end, "told_ns": told}
        for number, begin, end, told in zip(*columns, strict=True)
    ]


def say_changes(found: Found, other: Found, changed: Changes, limit: int) -> None:
    """Prints them, those of one set alone first."""
    what = f"{', '.join(rule.text for rule in other.rules)} in windows of {duration_text(other.points.width_ns)}"
    counts = f"{len(changed.only_a)} only here, {len(changed.only_b)} only there, {len(changed.both_a)} in both"
    print(f"against {what}: {counts}")
    series = found.points.registry.series
    for mark, some in (("-", changed.only_a), ("+", changed.only_b)):
        for at in range(min(len(some), limit)):
            length = duration_text(int(some.end_ns[at] - some.begin_ns[at]))
            print(f"{mark} {time_text(int(some.begin_ns[at]))}  {length}  {series_text(series[some.series[at]])}")
    here, there = changed.both_a, changed.both_b
    for at in range(min(len(here), limit)):
        starts, told = (
            _later(int(getattr(there, name)[at] - getattr(here, name)[at])) for name in ("begin_ns", "told_ns")
        )
        begin = time_text(int(here.begin_ns[at]))
        print(f"= {begin}  starts {starts}, told {told}  {series_text(series[here.series[at]])}")


def _later(ns: int) -> str:
    if not ns:
        return "as before"
    return f"{duration_text(abs(ns))} {'later' if ns > 0 else 'earlier'}"

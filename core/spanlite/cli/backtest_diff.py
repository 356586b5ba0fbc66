"""`spanlite backtest diff`: two sets of points, and what of it is worth a look."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from spanlite.cli.backtest_source import is_archive, load
from spanlite.cli.backtest_text import series_facts, series_text, time_text
from spanlite.contract.errors import SpanliteError, UsageError
from spanlite.pipeline.backtest.diff import NUMBERS, Difference, compare
from spanlite.pipeline.pointset import PointSet

_TOLERANCE = re.compile(r"(\d+(?:\.\d+)?)(%?)")


def run(args: argparse.Namespace) -> int:
    """0 equal, 1 different.

    Raises:
        UsageError: the call is wrong, or one of the two cannot be read: exit code 2, as that of diff(1).
    """
    if (args.b is None) == (args.archive is None):
        raise UsageError("diff compares two: A and B, or A and --archive ARCHIVE")
    tolerance = _tolerance(args.tolerance)
    names = args.a, args.b or args.archive
    try:
        a, b = _both(args, *names)
        found = compare(a, b, tolerance=tolerance)
    except UsageError:
        raise
    except SpanliteError as error:  # 1 would say that they differ
        raise UsageError(str(error)) from error
    facts = _facts(found, names, args.limit)
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _say(found, names, facts, args.limit)
    return 0 if found.equal else 1


def _both(args: argparse.Namespace, a: str, b: str) -> tuple[PointSet, PointSet]:
    """Files and topics first: an archive is put through in windows like theirs unless --window says otherwise."""
    found: dict[int, PointSet] = {}
    for at, where in sorted(enumerate((a, b)), key=lambda each: is_archive(each[1])):
        window = args.window
        if window is None and found and is_archive(where):
            window = f"{found[1 - at].width_ns}ns" if found[1 - at].width_ns else None
        found[at] = load(argparse.Namespace(**{**vars(args), "window": window}), where)
    return found[0], found[1]


def _tolerance(text: str) -> float:
    match = _TOLERANCE.fullmatch(text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share < 1:
        raise UsageError(f"--tolerance {text!r}: write a share such as 5% or 0.05, below 100%")
    return share


def _facts(found: Difference, names: tuple[str, str], limit: int) -> dict[str, Any]:
    changed = found.changed
    return {
        "a": names[0],
        "b": names[1],
        "window_ns": found.a.width_ns or None,
        "equal": len(found.both_a) - len(changed),
        "changed": len(changed),
        "only_a": len(found.only_a),
        "only_b": len(found.only_b),
        "changed_by_field": {name: int(np.count_nonzero(off)) for name, off in found.off.items() if off.any()},
        "worst": list(_worst(found, limit)),
        "first_only_a": [_where(found.a, row) for row in found.only_a[:limit].tolist()],
        "first_only_b": [_where(found.b, row) for row in found.only_b[:limit].tolist()],
    }


def _worst(found: Difference, limit: int) -> Iterator[dict[str, Any]]:
    for at in found.changed[:limit].tolist():
        row_a, row_b = int(found.both_a[at]), int(found.both_b[at])
        fields = sorted((name for name in found.off if found.off[name][at] > 0), key=lambda name: -found.off[name][at])
        yield {
            **_where(found.a, row_a),
            "off": float(found.worst[at]),
            "fields": {
                name: {"off": float(found.off[name][at]), **_values(found, name, row_a, row_b)} for name in fields
            },
        }


def _values(found: Difference, name: str, row_a: int, row_b: int) -> dict[str, int]:
    """What the two say, where that is a number."""
    if name not in NUMBERS:
        return {}
    return {"a": int(getattr(found.a.rows, name)[row_a]), "b": int(getattr(found.b.rows, name)[row_b])}


def _where(points: PointSet, row: int) -> dict[str, Any]:
    window = None if points.cumulative else int(points.rows.window[row]) * points.width_ns
    return {"window_start_ns": window, "series": series_facts(points.registry.series[int(points.rows.series[row])])}


def _say(found: Difference, names: tuple[str, str], facts: dict[str, Any], limit: int) -> None:
    kind = "series, cumulative" if found.a.cumulative else f"points of windows of {found.a.width_ns / 1e9:g} s"
    print(f"{kind}: {facts['equal']} equal, {facts['changed']} changed, {facts['only_a']} only in {names[0]}, ", end="")
    print(f"{facts['only_b']} only in {names[1]}")
    if facts["changed_by_field"]:
        print("changed in  " + ", ".join(f"{name} {rows}" for name, rows in facts["changed_by_field"].items()))
    for at, each in zip(found.changed[:limit].tolist(), facts["worst"], strict=True):
        print(f"~ {_line(found.a, int(found.both_a[at]))}")
        for name, value in each["fields"].items():
            numbers = f"  {value['a']} → {value['b']}" if "a" in value else ""
            print(f"    {name:<10} {100 * value['off']:7.3g} %{numbers}")
    for mark, points, rows in (("-", found.a, found.only_a), ("+", found.b, found.only_b)):
        for row in rows[:limit].tolist():
            print(f"{mark} {_line(points, row)}")


def _line(points: PointSet, row: int) -> str:
    series = series_text(points.registry.series[int(points.rows.series[row])])
    return series if points.cumulative else f"{time_text(int(points.rows.window[row]) * points.width_ns)}  {series}"

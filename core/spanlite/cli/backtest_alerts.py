"""`spanlite backtest alerts`: rules on old points, and what other rules or windows would have told."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from spanlite.cli.backtest_alerts_text import Found, alert_facts, change_facts, say_alerts, say_changes
from spanlite.cli.backtest_source import TOPIC, is_archive, load
from spanlite.contract.errors import UsageError
from spanlite.contract.points import Series
from spanlite.pipeline.detect.compare import changes, incidents
from spanlite.pipeline.detect.detectors import detector_of
from spanlite.pipeline.detect.port import detect
from spanlite.pipeline.detect.rules import Rule, parse_rule
from spanlite.pipeline.pointset import PointSet
from spanlite.runtime.durations import parse_duration_ns

_Texts = list[str] | str | None


def run(args: argparse.Namespace) -> int:
    """0, whatever is found.

    Raises:
        UsageError: no rule, a rule that is none, cumulative points, no series left.
        SpanliteError: the points or the archive cannot be read.
    """
    rules, other_rules = _rules(args.rule), _rules(args.against)
    if not rules:
        raise UsageError("--rule is missing: what is off, such as 'p99 > 2ms for 3'")
    if args.limit < 0:
        raise UsageError(f"--limit must be 0 or more, not {args.limit}")
    if args.points.startswith(TOPIC):
        raise UsageError(f"{args.points}: a topic's points are cumulative, without windows; take an archive or a file")
    points = _selected(args, load(args, args.points))
    found = _found(points, rules)
    compared = bool(other_rules or args.against_window)
    other = _found(_other_points(args, points), other_rules or rules) if compared else found
    changed = changes(*(incidents(each.alerts, each.points.width_ns) for each in (found, other)))
    if args.json:
        against = {"against": change_facts(found, other, changed)} if compared else {}
        print(json.dumps({"window_ns": points.width_ns, "alerts": alert_facts(found), **against}, indent=2))
        return 0
    say_alerts(found, args.limit)
    if compared:
        say_changes(found, other, changed, args.limit)
    return 0


def _found(points: PointSet, rules: list[Rule]) -> Found:
    return Found(points, rules, [detect(detector_of(rule), points) for rule in rules])


def _rules(given: _Texts) -> list[Rule]:
    """Rules of a flag, which may be given again; of @FILE one a line, empty ones and what begins with # left out."""
    texts = given.split(",") if isinstance(given, str) else given or []  # text: from the environment or the file
    return [parse_rule(line) for text in texts for line in (_lines(Path(text[1:])) if text[:1] == "@" else [text])]


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}; name a file of rules, one a line") from error
    return [line for line in lines if line and not line.startswith("#")]


def _other_points(args: argparse.Namespace, points: PointSet) -> PointSet:
    """The same points in windows of --against-window; an archive is put through again where they cannot be folded."""
    if not args.against_window:
        return points
    width_ns = parse_duration_ns(args.against_window)
    if width_ns % points.width_ns and is_archive(args.points):
        again = load(argparse.Namespace(**{**vars(args), "window": args.against_window}), args.points)
        return _selected(args, again).numbered_by(points.registry)
    return points.coarser(width_ns).merged()


def _selected(args: argparse.Namespace, points: PointSet) -> PointSet:
    """The points of the series that are asked for, one for each window and series.

    Raises:
        UsageError: there are none, or they have no windows.
    """
    if points.cumulative:
        raise UsageError(f"{args.points}: cumulative points have no windows to look at; take an archive or a file")
    conditions = [
        _matcher(args.kernel, lambda series: (series.kernel, series.name)),
        _matcher(args.stage, lambda series: (series.stage,)),
        _matcher(args.gpu, lambda series: (series.gpu_uuid,)),
        _matcher(args.host, lambda series: (series.host,)),
    ]
    found = points.of_series(lambda series: all(condition(series) for condition in conditions)).merged()
    if not len(found):
        raise UsageError(f"{args.points}: no series matches; widen --kernel, --stage, --gpu and --host")
    return found


def _matcher(given: _Texts, values: Callable[[Series], tuple[str, ...]]) -> Callable[[Series], bool]:
    patterns = [given] if isinstance(given, str) else given or ["*"]
    return lambda series: any(fnmatchcase(value, pattern) for pattern in patterns for value in values(series))

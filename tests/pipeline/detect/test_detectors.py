"""Detectors: what plain loops find, and the same however windows are cut into steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spanlite.pipeline.detect.alerts import joined
from spanlite.pipeline.detect.detectors import detector_of
from spanlite.pipeline.detect.port import detect
from spanlite.pipeline.detect.ratio import RatioDetector
from spanlite.pipeline.detect.rules import parse_rule
from spanlite.pipeline.series import SeriesRegistry
from tests.pipeline.detect.conftest import Alert, Table, brute_force, points_of, rows_of, tables

OPERATORS = st.sampled_from([">", ">=", "<", "<="])


@settings(max_examples=40)
@given(tables, OPERATORS, st.integers(1, 9), st.integers(1, 4))
def test_a_threshold_finds_what_plain_loops_find(table: Table, operator: str, limit: int, windows: int) -> None:
    """An alert would begin, end, peak or be told in another window than the rule says, or be missed."""
    rule = parse_rule(f"max {operator} {limit}ns for {windows}")
    points = points_of(table)
    expected = brute_force(table, above=operator[0] == ">", strict=len(operator) == 1, value=limit, windows=windows)
    assert rows_of(detect(detector_of(rule), points), points) == expected


@settings(max_examples=40)
@given(tables, OPERATORS, st.sampled_from(["0.5", "1", "1.5"]), st.integers(1, 5), st.integers(1, 3))
def test_a_ratio_finds_what_plain_loops_find(
    table: Table, operator: str, factor: str, baseline: int, windows: int
) -> None:
    """The median of other windows than the series' last ones, or of another series, would be the baseline."""
    rule = parse_rule(f"max {operator} {factor}x of {baseline} for {windows}")
    points = points_of(table)
    expected = brute_force(
        table,
        above=operator[0] == ">",
        strict=len(operator) == 1,
        value=float(factor),
        windows=windows,
        baseline=baseline,
    )
    assert rows_of(detect(detector_of(rule), points), points) == expected


@settings(max_examples=40)
@given(tables, st.sampled_from(["max > 5ns for 2", "max < 4ns", "max >= 1.5x of 3 for 2", "max <= 1x of 1"]), st.data())
@example({(0, "a"): 9, (1, "a"): 9, (1, "b"): 9}, "max > 5ns for 2", None)
def test_window_by_window_is_all_at_once(table: Table, text: str, data: st.DataObject | None) -> None:
    """The streaming detector would tell other alerts than a backtest of the same rule has promised."""
    rule, registry = parse_rule(text), SeriesRegistry()
    points = points_of(table, registry)
    detector, ended, seen = detector_of(rule), [], []
    for window in sorted({window for window, _ in table}):
        step = {window: data.draw(st.booleans())} if data else {window: False}
        seen.append(window)
        if step[window]:  # goes with the next one
            continue
        ended.append(detector.step(points_of({k: v for k, v in table.items() if k[0] in seen}, registry)))
        seen = []
    if seen:
        ended.append(detector.step(points_of({k: v for k, v in table.items() if k[0] in seen}, registry)))
    found = joined([*ended, detector.ongoing()])
    assert rows_of(found, points) == rows_of(detect(detector_of(rule), points), points)


def test_an_alert_is_ongoing_from_the_window_that_tells_it() -> None:
    """Somebody on call would be told too early, too late, or of what is over."""
    registry = SeriesRegistry()
    detector = detector_of(parse_rule("max > 5ns for 2"))
    going, ended = [], []
    for window, value in enumerate([6, 7, 9, 1, 6]):
        points = points_of({(window, "a"): value}, registry)
        ended.append(rows_of(detector.step(points), points))
        going.append(rows_of(detector.ongoing(), points))
    assert going == [[], [Alert("a", 0, 1, 1, 7, 1, 5)], [Alert("a", 0, 2, 1, 9, 2, 5)], [], []]
    assert ended == [[], [], [], [Alert("a", 0, 2, 1, 9, 2, 5)], []]


def test_what_a_ratio_keeps_is_bounded() -> None:
    """A detector that runs for months would grow with every window."""
    registry = SeriesRegistry()
    detector = RatioDetector(parse_rule("max > 2x of 5"))
    for window in range(100):
        detector.step(points_of({(window, kernel): 1 + window for kernel in "ab"}, registry))
    assert detector._series.tolist() == [0] * 5 + [1] * 5
    assert detector._value.tolist() == [96, 97, 98, 99, 100] * 2


@pytest.mark.parametrize("text", ["max > 1ns", "max > 1x of 1"])
def test_windows_must_come_in_order(text: str) -> None:
    """Runs and baselines made of windows out of order would be wrong without a word."""
    detector, registry = detector_of(parse_rule(text)), SeriesRegistry()
    detector.step(points_of({(3, "a"): 2}, registry))
    with pytest.raises(ValueError, match="window 3 comes after window 3"):
        detector.step(points_of({(3, "b"): 2}, registry))


def test_a_figure_that_is_not_known_is_never_off() -> None:
    """Series without an occupancy would alert, or break the baseline of those that have one."""
    points = points_of({(window, "a"): 5 for window in range(6)})
    for text in ("occupancy < 50%", "occupancy < 1x of 1", "p99 > 1ns"):
        assert len(detect(detector_of(parse_rule(text)), points)) == 0


def test_many_points_take_a_median_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long baseline over many points would take all memory, or medians of the wrong places."""
    monkeypatch.setattr("spanlite.pipeline.detect.ratio._AT_ONCE", 1000)
    rng = np.random.default_rng(5)
    table = {(window, kernel): int(rng.integers(1, 1000)) for window in range(400) for kernel in "abcd"}
    rule = parse_rule("max > 1.8x of 101 for 2")
    points = points_of(table)
    expected = brute_force(table, above=True, strict=True, value=1.8, windows=2, baseline=101)
    assert len(expected) > 5
    assert rows_of(detect(detector_of(rule), points), points) == expected

"""What people read: every figure is there, and no name steers the page or the terminal."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from spanlite.contract.batch import Batch
from spanlite.replay.compare.figures import GROUPS, SIDES, Report
from spanlite.replay.compare.formats import measure_formats
from spanlite.replay.compare.gates import parse_gate
from spanlite.replay.compare.plots import bars, curves, decades, duration, linear
from spanlite.replay.compare.report_html import page
from spanlite.replay.compare.report_text import lines, number
from tests.replay.compare.made import compared, emitted, told, with_column

HOSTILE = '</script><img src=x onerror="alert(1)">\x1b[31m&amp;\'\x00\n'


@pytest.fixture
def report(small: list[Batch]) -> Report:
    """A report of a replay with everything wrong, whose names are an attack."""
    run = told(run=HOSTILE, remapped=True)
    came = emitted(small[:20], run)
    came[0] = with_column(came[0], "start_ns", 0, 5)
    came[1] = with_column(came[1], "parent", 1, 77)
    report = compared(small[:20], [*came[:-1], came[2]], run)
    report.original, report.replay = HOSTILE, HOSTILE
    report.notes.append(HOSTILE)
    report.changed[HOSTILE] = 1
    report.failed_traces.append({"trace": HOSTILE, "why": HOSTILE})
    report.formats = measure_formats(small[:2])
    report.formats[0]["format"] = HOSTILE
    report.figures.lack(HOSTILE, "late")
    report.gates = [parse_gate(text).judged(report) for text in ("missing=0", "late=0", "duplicate>0")]
    report.curves.stored_late_ns = [(0.0, 0.5), (3e6, 1.0)]
    return report


def _parsed(report: Report) -> ET.Element:
    text = page(report).removeprefix("<!DOCTYPE html>\n")
    return ET.fromstring(text)  # noqa: S314  # our own page, which must be well-formed


def _all(root: ET.Element, tag: str) -> list[ET.Element]:
    return [element for element in root.iter() if element.tag.rpartition("}")[2] == tag]


def test_the_page_is_whole_and_needs_nothing(report: Report) -> None:
    """It is well-formed, has no script, and names no other file."""
    root = _parsed(report)
    assert _all(root, "script") == _all(root, "img") == _all(root, "link") == []
    named = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in named if name.startswith("on") or name in ("href", "src", "style")}
    assert "@import" not in page(report)
    assert "url(" not in page(report)
    assert "prefers-color-scheme" in page(report)


def test_hostile_names_are_text(report: Report) -> None:
    """Markup in a run's name, a path, a column, a trace, a reason or a format stays what it says, without controls."""
    text = page(report)
    shown = '</script><img src=x onerror="alert(1)">?[31m&amp;\'??'
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\x00" not in text
    cells = ["".join(cell.itertext()) for cell in _all(_parsed(report), "td")]
    assert cells.count(shown) >= 4
    printed = "\n".join(lines(report))
    assert "\x1b" not in printed
    assert "\x00" not in printed


def test_every_figure_is_shown(report: Report) -> None:
    """Tables of both reports hold each figure with its value, or why there is none."""
    rows = [["".join(cell.itertext()) for cell in row if cell.tag == "td"] for row in _all(_parsed(report), "tr")]
    printed = list(lines(report))
    for names in GROUPS.values():
        for name in names:
            value = report.figures.value(name)
            assert [row[1] for row in rows if row and row[0] == name] == [number(value)], name
            assert any(line.startswith((f"{name} ", "no ")) and name in line for line in printed), name
    for name, called in SIDES.items():
        both = [number(report.figures.value(f"{name}_{side}")) for side in ("original", "replay")]
        assert [row[1:] for row in rows if row and row[0] == called and len(row) == 3] == [both]


def test_plots_have_titles_axes_and_both_sides(report: Report) -> None:
    """Gaps, rates, errors and lateness are drawn, each with a title and labels on its axes."""
    plots = _all(_parsed(report), "svg")
    titles = [plot.attrib["aria-label"] for plot in plots]
    assert titles[:2] == ["Errors of times", "Gaps between messages"]
    assert titles[2].startswith("Rate, in buckets of ")
    assert titles[3] == "From due to stored"
    for plot, labels in zip(plots, ("spans", "share of gaps", "spans a second", "share of messages"), strict=True):
        texts = [element.text for element in _all(plot, "text")]
        assert labels in texts
    for plot in plots[1:3]:
        assert {"line s0", "line s1"} <= {path.attrib["class"] for path in _all(plot, "path")}


def test_a_curve_stands_where_its_values_are() -> None:
    """A stair from 1 µs to 1 ms over whole decades: its corners are at the ends of the axes."""
    x, y = decades("gap", [1000.0, 1_000_000.0]), linear("share", [1.0])
    drawn = ET.fromstring(curves("t", x, y, [("a", [(1000.0, 0.5), (1_000_000.0, 1.0)])], stepped=True))  # noqa: S314
    path = next(element.attrib["d"] for element in _all(drawn, "path") if element.attrib["class"] == "line s0")
    assert path == "M84.0 252.0H84.0V143.0H648.0V34.0H648.0"
    assert [x.place(at) for at in (1000.0, 31_622.776601683792, 1_000_000.0)] == pytest.approx([0, 0.5, 1])
    assert linear("n", [10.0]).ticks() == [0, 2, 4, 6, 8, 10]
    assert [duration(ns) for ns in (1, 1500, 2e6, 3e9)] == ["1 ns", "1.5 µs", "2 ms", "3 s"]


def test_plots_of_nothing_are_drawn() -> None:
    """No value, zero, one value: named axes, and a curve that begins where its value is, if there is one."""
    for values, begin in (([], ""), ([0.0], "M84.0 252.0L"), ([7.0], "M560.6 34.0L")):
        text = curves("t", decades("x", values), linear("y", values), [("a", [(v, v) for v in values])])
        drawn = ET.fromstring(text)  # noqa: S314
        assert {"x", "y"} <= {element.text for element in _all(drawn, "text")}
        curve, _legend = [path.attrib["d"] for path in _all(drawn, "path") if path.attrib["class"] == "line s0"]
        assert curve.startswith(begin)
        assert bool(curve) == bool(values)
    empty = ET.fromstring(bars("t", "x", "y", [], []))  # noqa: S314
    assert {"x", "y"} <= {element.text for element in _all(empty, "text")}
    assert "nan" not in ET.tostring(empty, "unicode")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_it(report: Report, tmp_path: Path) -> None:
    """Chromium lays the page out and runs nothing of what names say."""
    path = tmp_path / "report.html"
    path.write_text(page(report), encoding="utf-8")
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/c", "--dump-dom"]
    done = subprocess.run([*words, path.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("<svg") == page(report).count("<svg")
    assert "<img" not in done.stdout

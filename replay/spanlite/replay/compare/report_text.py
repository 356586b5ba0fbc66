"""A report as a short table for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spanlite.replay.compare.figures import GROUPS, SIDES, Report
from spanlite.replay.compare.gates import said

_MOST_COLUMNS = 12
Row = tuple[str, float | None, str]


def number(value: float | None) -> str:
    """A figure for people."""
    if value is None:
        return "-"
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def printable(text: str) -> str:
    """Text that cannot steer a terminal: it may come from a program's own names."""
    return "".join(char if char.isprintable() else "?" for char in text)


def groups(report: Report) -> Iterator[tuple[str, list[Row]]]:
    """Title, and name, value and meaning (or why there is none), of each group of figures."""
    for title, names in GROUPS.items():
        rows: list[Row] = []
        for name, meaning in names.items():
            value, why = report.figures.value(name), report.figures.unavailable.get(name, "it was not measured")
            rows.append((name, value, meaning if value is not None else why))
        yield title, rows


def lines(report: Report) -> Iterator[str]:
    """The report, line by line."""
    return map(printable, _lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"run {report.run}: {report.replay} beside {report.original}"
    yield f"{'':28}{'to come':>16}{'came':>16}"
    for name, called in SIDES.items():
        ours, theirs = (report.figures.value(f"{name}_{side}") for side in ("original", "replay"))
        yield f"{called:28}{number(ours):>16}{number(theirs):>16}"
    for title, rows in groups(report):
        yield ""
        yield title.upper()
        yield from _figures(rows)
    for part in (_columns(report), _traces(report), format_lines(report.formats), _notes(report)):
        yield from _apart(part)
    yield from _apart(said(gate) for gate in report.gates)


def _apart(part: Iterable[str]) -> Iterator[str]:
    """An empty line before a part that is not empty."""
    for at, line in enumerate(part):
        if not at:
            yield ""
        yield line


def _figures(rows: list[Row]) -> Iterator[str]:
    whys: dict[str, list[str]] = {}
    for name, value, meaning in rows:
        if value is None:
            whys.setdefault(meaning, []).append(name)
        else:
            yield f"{name:28}{number(value):>16}  {meaning}"
    for why, names in whys.items():
        yield f"no {', '.join(names)}: {why}"


def _columns(report: Report) -> Iterator[str]:
    most = sorted(report.changed.items(), key=lambda item: (-item[1], item[0]))
    if most:
        yield "spans that differ, by column"
    for name, spans in most[:_MOST_COLUMNS]:
        yield f"  {name:22}{spans:>16,}"
    if len(most) > _MOST_COLUMNS:
        yield f"  and {len(most) - _MOST_COLUMNS} columns more"


def _traces(report: Report) -> Iterator[str]:
    if report.failed_traces:
        yield "the first traces that are not what they were"
    for trace in report.failed_traces:
        yield f"  {trace['trace']}  {trace['why']}"


def _notes(report: Report) -> Iterator[str]:
    for note in report.notes:
        yield f"note: {note}"


def format_lines(rows: list[dict[str, object]]) -> Iterator[str]:
    """The table of formats, if there is one."""
    if not rows:
        return
    yield f"{'format':36}{'B/span':>10}{'size %':>10}{'timing error ns':>17}{'topology %':>12}"
    for row in rows:
        cells = [row[name] for name in ("bytes_per_span", "size_percent", "timing_error_ns", "topology")]
        texts = [number(cell) if isinstance(cell, (int, float)) else "-" for cell in cells]
        yield f"{row['format']!s:36}{texts[0]:>10}{texts[1]:>10}{texts[2]:>17}{texts[3]:>12}"

"""A report as one page that needs nothing else: no script, no file, light and dark as the reader has it.

What a program, a broker or a person has named is text like any other and escaped, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from spanlite.replay.compare.figures import SIDES, Report, Steps
from spanlite.replay.compare.gates import said
from spanlite.replay.compare.plots import Axis, bars, curves, decades, linear
from spanlite.replay.compare.report_text import groups, number, printable

_SIDES = ("original", "replay")
_MOST_RATES = 1000
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6675; --line: #d9dee5; --page: #ffffff; --s0: #1f6fb2;
  --s1: #c2481a; --bad: #b3261e; --good: #1c7a3e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #343c48; --page: #14181e;
  --s0: #6db3f2; --s1: #ff9d6b; --bad: #ff8a80; --good: #7bd69b; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.why, .soft { color: var(--soft); }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); font-weight: 600; }
svg { width: 100%; height: auto; margin: .5rem 0 1rem; font: 11px system-ui, sans-serif; }
svg text { fill: var(--soft); } svg .title { fill: var(--ink); font-size: 13px; font-weight: 600; }
svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .axis { stroke: var(--soft); fill: none; }
svg .line { fill: none; stroke-width: 2; } svg .line.s0 { stroke: var(--s0); }
svg .line.s1 { stroke: var(--s1); stroke-dasharray: 6 4; }
svg .bar.s0 { fill: var(--s0); } svg .bar.s1 { fill: var(--s1); }
"""


def page(report: Report) -> str:
    """The whole page."""
    title = f"Replay {_text(report.run)} beside its original"
    body = "\n".join(_body(report))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"/>\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (1,)) -> str:
    """A table of cells that are markup already; columns in `right` hold numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{cell}</{tag}>' if at in right else f"<{tag}>{cell}</{tag}>"
            for at, cell in enumerate(row)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    return f"<table>\n<thead><tr>{cells('th', head)}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table>"


def _body(report: Report) -> Iterator[str]:
    yield f'<p class="soft">{_text(report.replay)} ({report.kind}) beside {_text(report.original)}</p>'
    if report.gates:
        yield "<h2>Required</h2>"
        yield _table(("", "what is required"), [_gate(gate) for gate in report.gates], ())
    yield "<h2>What came</h2>"
    value = report.figures.value
    yield _table(
        ("", "to come", "came"),
        [(called, *(number(value(f"{name}_{side}")) for side in _SIDES)) for name, called in SIDES.items()],
        (1, 2),
    )
    for title, rows in groups(report):
        yield f"<h2>{_text(title)}</h2>"
        yield _table(
            ("figure", "value", ""),
            [(_text(name), number(figure), _text(meaning)) for name, figure, meaning in rows],
        )
        if title == "Relations and times":
            yield from _differences(report)
            yield from _errors(report)
        if title == "Emitted":
            yield from _emissions(report)
        if title == "Arrived":
            yield from _arrivals(report)
    if report.formats:
        yield "<h2>The same spans in other forms</h2>"
        keys = ("bytes_per_span", "size_percent", "timing_error_ns", "topology")
        yield _table(
            ("form", "bytes a span", "size, %", "timing error, ns", "topology, %"),
            [(_text(row["format"]), *(number(row[key]) for key in keys)) for row in report.formats],
            (1, 2, 3, 4),
        )
    for note in report.notes:
        yield f'<p class="soft">{_text(note)}</p>'


def _gate(gate: dict[str, Any]) -> tuple[str, str]:
    verdict, shown = ("good", "ok") if gate["passed"] else ("bad", "failed")
    return f'<span class="{verdict}">{shown}</span>', _text(said(gate).split(maxsplit=1)[1])


def _differences(report: Report) -> Iterator[str]:
    if report.changed:
        yield "<h2>Spans that differ, by column</h2>"
        yield _table(("column", "spans"), [(_text(name), number(spans)) for name, spans in report.changed.items()])
    if report.failed_traces:
        yield "<h2>The first traces that are not what they were</h2>"
        yield _table(("trace", "why"), [(_text(one["trace"]), _text(one["why"])) for one in report.failed_traces], ())


def _errors(report: Report) -> Iterator[str]:
    errors = report.curves.errors
    if not errors:
        return
    last = max(at for counts in errors.values() for at, count in enumerate(counts) if count)
    labels = ["0", "1", *(f"{1 << (bits - 1):,}+" for bits in range(2, last + 1))]
    heights = [(labels[at], [counts[at] for counts in errors.values()]) for at in range(last + 1)]
    yield bars("Errors of times", "error, ns", "spans", heights, list(errors))


def _emissions(report: Report) -> Iterator[str]:
    yield from _gaps("Gaps between emissions", *report.curves.emitted_gaps_ns)
    yield from _lateness("From due to emitted", "later than due", report.curves.emitted_late_ns)


def _arrivals(report: Report) -> Iterator[str]:
    yield from _gaps("Gaps between messages", *report.curves.gaps_ns)
    if report.curves.rates[0]:
        width_s = report.curves.bucket_ns / 1e9
        rates = [
            (name, _thinned([(at * width_s, rate) for at, rate in enumerate(values)]))
            for name, values in zip(_SIDES, report.curves.rates, strict=True)
        ]
        time = linear("seconds since the first message", [at for _, points in rates for at, _ in points])
        height = linear("spans a second", [rate for _, points in rates for _, rate in points])
        yield curves(f"Rate, in buckets of {width_s:g} s", time, height, rates)
    yield from _lateness("From due to stored", "later than the least late message", report.curves.stored_late_ns)


def _gaps(title: str, ours: Steps, theirs: Steps) -> Iterator[str]:
    if ours and theirs:
        axis = decades("gap to the next message", [value for value, _ in (*ours, *theirs)])
        series = [("original", ours), ("replay", theirs)]
        yield curves(title, axis, Axis("share of gaps", 0, 1), series, times=True, stepped=True)


def _lateness(title: str, label: str, late: Steps) -> Iterator[str]:
    if late:
        axis = decades(label, [value for value, _ in late])
        yield curves(title, axis, Axis("share of messages", 0, 1), [("replay", late)], times=True, stepped=True)


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most so many points that a plot can show: of each stretch the highest."""
    step = -(-len(points) // _MOST_RATES)
    if step <= 1:
        return points
    return [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]

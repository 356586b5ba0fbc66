"""The report for people: findings by part, marks and colours where a terminal shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby

from spanlite.agent.doctor.finding import Finding, Level

_MARKS = {Level.OK: "✓", Level.NOTE: "·", Level.WARNING: "!", Level.FAILURE: "✗"}
_COLOURS = {Level.OK: "32", Level.NOTE: "36", Level.WARNING: "33", Level.FAILURE: "1;31"}


def lines(findings: Iterable[Finding], *, colour: bool, width: int = 120) -> Iterator[str]:
    """One block a part: mark, id, what was found; behind warnings and failures why it matters, then the fix."""
    shown = list(findings)
    broad = max((len(finding.id) for finding in shown), default=0)
    for part, group in groupby(shown, key=lambda finding: finding.part):
        yield part
        for finding in group:
            yield from _one(finding, broad, width, colour=colour)
    yield _summary(shown)


def _one(finding: Finding, broad: int, width: int, *, colour: bool) -> Iterator[str]:
    mark = _MARKS[finding.level]
    if colour:
        mark = f"\x1b[{_COLOURS[finding.level]}m{mark}\x1b[0m"
    texts = [finding.found]
    if finding.level >= Level.WARNING:
        texts.append(f"why: {finding.why}")
    if finding.fix:
        texts.append(f"fix: {finding.fix}")
    indent = " " * (broad + 6)
    room = max(40, width - len(indent))
    rows = [row for text in texts for row in textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)]
    yield f"  {mark} {finding.id:<{broad}}  {rows[0]}"
    yield from (f"{indent}{row}" for row in rows[1:])


def _summary(findings: list[Finding]) -> str:
    counts = {level: sum(finding.level == level for finding in findings) for level in Level}
    words = {Level.FAILURE: "failures", Level.WARNING: "warnings", Level.NOTE: "notes", Level.OK: "fine"}
    return ", ".join(f"{word}: {counts[level]}" for level, word in words.items()) + "; docs/doctor.md explains each"

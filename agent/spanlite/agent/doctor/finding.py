"""A finding: one thing that is so, how bad that is, why it matters, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from spanlite.agent.doctor.reasons import WHY


class Level(IntEnum):
    """How bad it is; only a failure makes the command fail."""

    OK = 0
    NOTE = 1
    WARNING = 2
    FAILURE = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is so.

    Attributes:
        id: `part.word`, stable, a key of `reasons.WHY` and a heading of docs/doctor.md.
        found: one sentence with the names and figures of this machine.
        fix: what to do; empty where there is nothing to do.
    """

    id: str
    level: Level
    found: str
    fix: str = ""

    def __post_init__(self) -> None:
        """Refuses an id that nobody can look up."""
        if self.id not in WHY:
            raise ValueError(f"{self.id} is no finding of reasons.WHY")

    @property
    def part(self) -> str:
        return self.id.partition(".")[0]

    @property
    def why(self) -> str:
        return WHY[self.id]

    def as_json(self) -> dict[str, str]:
        """The keys of docs/doctor.md."""
        texts = {"found": self.found, "why": self.why, "fix": self.fix}
        return {"id": self.id, "part": self.part, "level": self.level.name.lower(), **texts}


def ok(name: str, found: str, fix: str = "") -> Finding:
    """All is well."""
    return Finding(name, Level.OK, found, fix)


def note(name: str, found: str, fix: str = "") -> Finding:
    """Worth knowing; nothing is wrong."""
    return Finding(name, Level.NOTE, found, fix)


def warning(name: str, found: str, fix: str) -> Finding:
    """Something is lost, or will be."""
    return Finding(name, Level.WARNING, found, fix)


def failure(name: str, found: str, fix: str) -> Finding:
    """It cannot work like this."""
    return Finding(name, Level.FAILURE, found, fix)


def exit_code(findings: Iterable[Finding]) -> int:
    """1 with at least one failure, else 0."""
    return int(any(finding.level == Level.FAILURE for finding in findings))

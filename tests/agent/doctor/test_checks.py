"""The report as a whole: a check that fails, ids and their runbook, text and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.checks import CHECKS, examine
from spanlite.agent.doctor.finding import Finding, Level, exit_code, failure, note, ok, warning
from spanlite.agent.doctor.probe import Probe
from spanlite.agent.doctor.reasons import WHY
from spanlite.agent.doctor.text import lines
from tests.agent.doctor.worlds import world

ROOT = Path(__file__).parents[3]


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(tmp_path: Path) -> None:
    """What it had found by then stays; the error is named."""

    def broken(_probe: Probe, _asked: Asked) -> Iterator[Finding]:
        yield ok("clock.source", "tsc")
        raise ValueError("a form that nobody expected")

    def whole(_probe: Probe, _asked: Asked) -> Iterator[Finding]:
        yield note("gpu.mig", "on")

    told = list(examine(world(tmp_path), Asked(), [("clock", broken), ("gpu", whole)]))
    assert [finding.id for finding in told] == ["clock.source", "doctor.check_failed", "gpu.mig"]
    assert told[1].level == Level.FAILURE
    assert "the check of clock failed: ValueError: a form that nobody expected" in told[1].found


def test_an_empty_world_has_no_failing_check(tmp_path: Path) -> None:
    """Every file may be absent: each check has an answer to that."""
    told = list(examine(world(tmp_path), Asked()))
    assert [finding.found for finding in told if finding.id == "doctor.check_failed"] == []
    assert {"driver", "cupti", "counters", "socket", "clock"} <= {finding.part for finding in told}
    assert len(CHECKS) == len({part for part, _ in CHECKS})


def test_every_id_has_a_paragraph_and_is_given_somewhere() -> None:
    """The runbook and the code know the same ids."""
    page = (ROOT / "docs/doctor.md").read_text("utf-8")
    headed = re.findall(r"^\*\*`([a-z]+[.][a-z0-9_]+)`\*\*", page, re.MULTILINE)
    assert sorted(headed) == sorted(set(headed))
    assert set(headed) == set(WHY)
    sources = (ROOT / "agent/spanlite/agent/doctor").glob("*.py")
    code = "\n".join(path.read_text("utf-8") for path in sources if path.name != "reasons.py")
    assert {name for name in WHY if f'"{name}"' not in code} == set()


def test_an_id_that_nobody_can_look_up_is_refused() -> None:
    """A slip of the pen does not reach the report."""
    with pytest.raises(ValueError, match=r"clock\.sauce is no finding"):
        ok("clock.sauce", "")


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([ok("clock.source", "")], 0),
        ([warning("clock.source", "", ""), note("gpu.mig", "")], 0),
        ([failure("driver.none", "", ""), ok("clock.source", "")], 1),
    ],
)
def test_only_a_failure_fails(findings: list[Finding], code: int) -> None:
    """A warning is for people."""
    assert exit_code(findings) == code


def test_the_text_is_grouped_wrapped_and_plain_without_a_terminal() -> None:
    """Marks by level; why and fix where something is to be done; words are never cut."""
    told = [
        ok("clock.disciplined", "the clock is disciplined"),
        warning("clock.source", "clock source hpet: reading it is a system call, microseconds each", "see dmesg"),
        failure("driver.none", "no driver", "install it"),
    ]
    assert list(lines(told, colour=False, width=72)) == [
        "clock",
        "  ✓ clock.disciplined  the clock is disciplined",
        "  ! clock.source       clock source hpet: reading it is a system call,",
        "                       microseconds each",
        "                       why: collector and program read the clock often",
        "                       fix: see dmesg",
        "driver",
        "  ✗ driver.none        no driver",
        "                       why: nothing can be traced without it",
        "                       fix: install it",
        "failures: 1, warnings: 1, notes: 0, fine: 1; docs/doctor.md explains each",
    ]
    assert next(line for line in lines(told, colour=True) if "✗" in line).startswith("  \x1b[1;31m✗\x1b[0m driver.none")

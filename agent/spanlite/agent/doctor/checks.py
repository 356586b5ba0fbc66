"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spanlite.agent.doctor import (
    agent_socket,
    collector,
    counters,
    cupti,
    driver,
    host_clock,
    kafka,
    own_metrics,
    permissions,
    process,
    spool,
)
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, failure
from spanlite.agent.doctor.probe import Probe

Check = Callable[[Probe, Asked], Iterator[Finding]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("driver", driver.check),
    ("cupti", cupti.check),
    ("collector", collector.check),
    ("process", process.check),
    ("permissions", permissions.check),
    ("counters", counters.check),
    ("socket", agent_socket.check),
    ("spool", spool.check),
    ("kafka", kafka.check),
    ("metrics", own_metrics.check),
    ("clock", host_clock.check),
)


def examine(probe: Probe, asked: Asked, checks: Sequence[tuple[str, Check]] = CHECKS) -> Iterator[Finding]:
    """Findings of all checks. One that fails is a finding itself, behind what it had found by then."""
    for part, check in checks:
        yield from _guarded(part, check(probe, asked))


def _guarded(part: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except Exception as error:  # noqa: BLE001  # whatever it is, the other checks go on and it is told
        yield failure(
            "doctor.check_failed",
            f"the check of {part} failed: {type(error).__name__}: {error}",
            "look at that part by hand, and report this line: it is a fault of spanlite, or of rights",
        )

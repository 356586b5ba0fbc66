"""What a running agent says of itself on /metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, failure, ok, warning
from spanlite.agent.doctor.probe import Probe
from spanlite.contract import catalogue

_SAMPLE = re.compile(r'^([a-z_]+)(?:\{(?:[a-z_]+="([^"]*)")?[^}]*\})? ([0-9.eE+-]+)$', re.MULTILINE)
_DEGRADED = "spanlite_agent_spool_degraded"


def check(probe: Probe, asked: Asked) -> Iterator[Finding]:
    """Findings metrics.*; none without --metrics."""
    if asked.metrics is None:
        return
    try:
        text = probe.outside.fetch(asked.metrics)
    except OSError as error:
        yield failure(
            "metrics.unreachable",
            f"{asked.metrics}: {error}",
            "start the agent with --metrics-port, and --host 0.0.0.0 if it is asked from elsewhere",
        )
        return
    samples = _SAMPLE.findall(text)
    total: Counter[str] = Counter()
    for name, _, value in samples:
        total[name] += round(float(value))
    received, sent = (total[spec.name] for spec in (catalogue.AGENT_SPANS_RECEIVED, catalogue.AGENT_SPANS_SENT))
    if not any(name.startswith("spanlite_agent_") for name, _, _ in samples):
        yield failure("metrics.other", f"{asked.metrics} has no metric of an agent", "name the agent's own /metrics")
        return
    yield ok("metrics.answers", f"{asked.metrics}: {received} spans received, {sent} sent")
    dropped = {
        reason: round(float(value))
        for name, reason, value in samples
        if name == catalogue.AGENT_SPANS_DROPPED.name and float(value)
    }
    if dropped:
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        yield warning(
            "metrics.dropped", f"spans dropped since the agent started: {told}", "docs/operations.md has the reasons"
        )
    if total[_DEGRADED]:
        yield warning(
            "metrics.degraded", "the spool's disk takes nothing: batches stay in memory", "free or mend the disk"
        )

"""What the spool shows on /metrics beside its counters."""

from __future__ import annotations

from collections.abc import Mapping

from spanlite.agent.spool.spool import Spool
from spanlite.contract import catalogue


def gauges(spool: Spool) -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
    """Samples by metric, for the exporter; the oldest record's time only while one waits."""
    state = spool.state()
    values: dict[catalogue.MetricSpec, float] = {
        catalogue.AGENT_SPOOL_BYTES: state.bytes,
        catalogue.AGENT_SPOOL_LIMIT: spool.settings.limit_bytes,
        catalogue.AGENT_SPOOL_MEMORY: state.memory_bytes,
        catalogue.AGENT_SPOOL_SPANS: state.spans,
        catalogue.AGENT_SPOOL_RECORDS: state.records,
        catalogue.AGENT_SPOOL_DEGRADED: float(state.degraded),
        catalogue.AGENT_SPOOL_QUARANTINED: state.quarantined,
    }
    if state.oldest_ms is not None:
        values[catalogue.AGENT_SPOOL_OLDEST] = state.oldest_ms / 1000
    return {metric.name: [({}, value)] for metric, value in values.items()}

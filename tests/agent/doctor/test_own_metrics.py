"""What an agent's /metrics tells the doctor: served by the real exporter, and not at all."""

from __future__ import annotations

from pathlib import Path

from spanlite.agent.counts import AgentCounts
from spanlite.agent.doctor import own_metrics
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.probe import real_probe
from spanlite.contract import catalogue
from spanlite.exporters.server import MetricsServer
from spanlite.exporters.table import PointTable
from tests.agent.doctor.worlds import found, texts, world

URL = "http://127.0.0.1:9465/metrics"


def test_losses_are_read_from_the_real_endpoint() -> None:
    """Text as the exporter writes it: sums, reasons, and no loss where none was."""
    counts, table = AgentCounts(), PointTable()
    counts.add(catalogue.AGENT_SPANS_RECEIVED, 12)
    counts.add(catalogue.AGENT_SPANS_DROPPED, 0, "spool_full")
    table.set_counters(counts.counters)
    with MetricsServer(table, host="127.0.0.1", port=0, ready=lambda: True) as server:
        asked = Asked(metrics=server.url)
        assert found(own_metrics.check, real_probe({}), asked) == {"metrics.answers": Level.OK}
        counts.add(catalogue.AGENT_SPANS_SENT, 7)
        counts.add(catalogue.AGENT_SPANS_DROPPED, 5, "spool_full")
        said = texts(own_metrics.check, real_probe({}), asked)
    assert "12 spans received, 7 sent" in said
    assert "metrics.dropped: spans dropped since the agent started: 5 spool_full" in said


def test_a_page_without_an_agent_or_no_page_is_a_failure(tmp_path: Path) -> None:
    """Another program's metrics, a closed port; and nothing where nobody asked."""
    probe = world(tmp_path, pages={URL: "# HELP up\nup 1\n"})
    assert found(own_metrics.check, probe, Asked(metrics=URL)) == {"metrics.other": Level.FAILURE}
    assert found(own_metrics.check, world(tmp_path), Asked(metrics=URL)) == {"metrics.unreachable": Level.FAILURE}
    assert found(own_metrics.check, probe) == {}


def test_a_spool_whose_disk_takes_nothing_is_warned_of(tmp_path: Path) -> None:
    """The gauge of the agent."""
    probe = world(tmp_path, pages={URL: "spanlite_agent_spool_degraded 1\n"})
    assert found(own_metrics.check, probe, Asked(metrics=URL))["metrics.degraded"] == Level.WARNING

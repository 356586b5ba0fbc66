"""OTLP as a receiver decodes it: the agent's own counters and its rare spans."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from spanlite.agent.connected import Samples
from spanlite.agent.counts import AgentCounts
from spanlite.agent.otel import Telemetry, metric_name
from spanlite.contract import catalogue
from tests.agent.otlp_receiver import plain, receiver


def test_counters_arrive_as_they_stand() -> None:
    """Cumulative monotonic sums with their labels, units and descriptions; gauges as gauges; nothing else."""
    counts = AgentCounts()
    counts.add(catalogue.AGENT_SPANS_RECEIVED, 12)
    counts.add(catalogue.AGENT_SPANS_DROPPED, 5, "quota")
    counts.add(catalogue.AGENT_SPANS_DROPPED, 2, "cupti")
    counts.add(catalogue.AGENT_BATCH_BYTES, 1 << 40)

    def counters() -> Samples:
        return {**counts.counters(), catalogue.AGENT_SPOOL_BYTES.name: [({}, 4096.0)]}

    with receiver() as received:
        telemetry = Telemetry(f"{received.url}/", counters, {"host.name": "node-7"})
        counts.add(catalogue.AGENT_SPANS_RECEIVED, 30)
        telemetry.stop()
        newest = received.newest()
        assert set(newest) == {
            "spanlite_agent_spans_received",
            "spanlite_agent_spans_dropped",
            "spanlite_agent_batch_bytes",
            "spanlite_agent_spool_bytes",
        }
        assert received.points("spanlite_agent_spans_received") == {(): 42.0}
        assert received.points("spanlite_agent_spans_dropped") == {
            (("reason", "cupti"),): 2.0,
            (("reason", "quota"),): 5.0,
        }
        assert received.points("spanlite_agent_batch_bytes") == {(): float(1 << 40)}
        assert received.points("spanlite_agent_spool_bytes") == {(): 4096.0}
        sums = newest["spanlite_agent_spans_dropped"].sum
        assert sums.is_monotonic
        assert sums.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        assert (newest["spanlite_agent_batch_bytes"].unit, newest["spanlite_agent_spool_bytes"].unit) == ("By", "By")
        assert newest["spanlite_agent_batch_bytes"].description == catalogue.AGENT_BATCH_BYTES.meaning
        (resource,) = received.resources
        assert (resource["service.name"], resource["host.name"]) == ("spanlite-agent", "node-7")


def test_names_in_opentelemetry_are_told_apart() -> None:
    """Two metrics that differ by their ending alone must not become one."""
    agents = [spec for spec in catalogue.CATALOGUE.values() if spec.name.startswith("spanlite_agent_")]
    assert len({metric_name(spec) for spec in agents}) == len(agents)


def test_spans_arrive_with_their_attributes_and_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ended well and one that an exception passed; the operator's own words for the resource win."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with receiver() as received:
        telemetry = Telemetry(received.url, dict, {})
        with telemetry.span("connection", {"process.pid": 7}) as note:
            note("spanlite.collector.state", "active")
        with pytest.raises(ZeroDivisionError), telemetry.span("start", {}):
            _ = 1 // 0
        telemetry.stop()
        good, bad = received.spans()
        resource = plain(received.traces[0].resource_spans[0].resource.attributes)
    assert (good.name, plain(good.attributes)) == (
        "connection",
        {"process.pid": 7, "spanlite.collector.state": "active"},
    )
    assert good.end_time_unix_nano >= good.start_time_unix_nano > 0
    assert good.trace_id != bad.trace_id
    assert (bad.name, bad.status.code) == ("start", Status.STATUS_CODE_ERROR)
    assert resource["service.name"] == "mine"


def test_a_receiver_that_is_away_costs_nothing_but_a_line(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Nothing is raised, neither while it runs nor at its end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    telemetry = Telemetry(f"http://127.0.0.1:{port}", dict, {})
    with telemetry.span("start", {}):
        pass
    telemetry.stop()
    assert any(str(port) in record.getMessage() or "export" in record.getMessage() for record in caplog.records)

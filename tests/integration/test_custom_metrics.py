"""Custom metrics from a program's calls to a real Prometheus, through the agent's socket and the embedded pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.observe import Observer
from spanlite.agent.recorder import Recorder
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.exporters.server import MetricsServer
from spanlite.exporters.table import PointTable
from spanlite.pipeline.archive.read import scan
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.integration.test_prometheus import Prometheus, scraping, wait_until_scraped


def value(prometheus: Prometheus, promql: str) -> float:
    """Of a query that has one answer."""
    ((_, number),) = prometheus.query(promql)
    return number


@pytest.mark.prometheus
def test_from_a_call_to_a_query(tmp_path: Path) -> None:
    """Sums, counts, quantiles and the newest value are those that were observed; the archive holds each observation."""
    socket, broker = tmp_path / "a.sock", MemoryBroker()
    server = AgentServer(socket, MemoryProducer(broker), SystemClock(), AgentCounts())
    server.start()
    observer = Observer(Recorder(variables=lambda: {"SPANLITE_SOCKET": str(socket)}))
    for number in range(1, 101):
        observer.timing("rope.cosine_compute_ms", layer=number % 2).observe_ns(number * 1000)
        observer.counter("flash_attn.recompute_count", layer=3).add(number)
        observer.gauge("rope.freq_inv_max", sequence=7).set(-number / 8)
    observer.flush()
    observer.recorder.close()
    server.stop()
    broker.close()
    table, archive = PointTable(), ArchiveWriter(tmp_path / "archive")
    pipeline = EmbeddedPipeline(MemoryConsumer(broker, SPANS_TOPIC), Outputs(total_points=table.put), archive=archive)
    for _ in drain(pipeline):
        pass
    pipeline.finish()
    kinds = [row for batch in scan(tmp_path / "archive", ["kind"]) for row in batch.column("kind").to_pylist()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"timing": 100, "counter": 100, "gauge": 100}
    features = ("native-histograms", "exemplar-storage")
    with MetricsServer(table, port=0) as endpoint, scraping(endpoint.port, tmp_path, *features) as prometheus:
        wait_until_scraped(prometheus)
        family = "spanlite_custom_rope_cosine_compute_seconds"
        assert value(prometheus, "sum(spanlite_custom_flash_attn_recompute_count_total)") == 5050
        assert value(prometheus, "spanlite_custom_rope_freq_inv_max{sequence='7'}") == -12.5
        assert value(prometheus, f"histogram_count(sum({family}))") == 100
        assert value(prometheus, f"histogram_sum(sum({family}))") == pytest.approx(5050e-6)
        assert value(prometheus, f"histogram_count({family}{{layer='1'}})") == 50
        assert value(prometheus, f"histogram_quantile(0.5, sum({family}))") == pytest.approx(50e-6, rel=0.03)
        ((labels, _),) = prometheus.query("spanlite_custom_rope_freq_inv_max")
        assert labels["hostname"]

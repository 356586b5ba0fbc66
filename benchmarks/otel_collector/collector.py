"""The OpenTelemetry Collector in a process of its own: started, fed over gRPC, scraped, its CPU time read."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # it ships no types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from prometheus_client.parser import text_string_to_metric_families

from benchmarks._process import process_cpu_s
from benchmarks.otel_collector.otlp import LAUNCH, STAGE, Label
from tests.stack.process import Process, StackError, environment, free_port, wait_until

PROGRAM = Path(__file__).parents[2] / "build/otel-collector/otel-collector"
FLUSH_S = 10
_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_IN_FLIGHT = 4


class Collector:
    """OTLP over gRPC in; through span_metrics to a scrape, or to nothing where no dimensions are given.

    Set up in its own favour: no telemetry of its own, no label beyond those asked for, no queue and no processor, gRPC
    without compression or TLS. Histograms are exponential, as ours are; explicit buckets that tell kernels apart cost
    it as much, and the default ones begin at 2 ms, where most kernels have ended.

    Args:
        variables: of its environment, such as GOGC.
    """

    def __init__(self, folder: Path, dimensions: Sequence[str] | None, **variables: str) -> None:
        if not PROGRAM.exists():
            raise StackError(f"otel-collector: no {PROGRAM}; `make bench-otel` builds it")
        folder.mkdir(parents=True)
        self._otlp, self._scrape = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        config = folder / "collector.yaml"
        config.write_text(json.dumps(self._config(dimensions)))  # JSON is YAML
        self._process = Process(
            "otel-collector", [str(PROGRAM), f"--config={config}"], folder / "log", environment=environment(**variables)
        )
        self._channel = grpc.insecure_channel(self._otlp)
        self._export = self._channel.unary_unary(_EXPORT, response_deserializer=ExportTraceServiceResponse.FromString)
        ready = grpc.channel_ready_future(self._channel)
        self._process.await_ready(ready.done, 60)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._process.stop()

    def cpu_s(self) -> float:
        """User and system time of its process since it started."""
        return process_cpu_s(self._process.pid)

    def send(self, requests: Iterable[bytes]) -> None:
        """Sends them, several at a time; returns when each is answered, which is when its spans are counted.

        Raises:
            StackError: a request failed, or some of its spans were rejected.
        """
        free = threading.Semaphore(_IN_FLIGHT)
        failed: list[object] = []

        def answered(call: grpc.Future) -> None:
            error = call.exception() or call.result().partial_success.rejected_spans
            if error:
                failed.append(error)
            free.release()

        for request in requests:
            free.acquire()
            self._export.future(request).add_done_callback(answered)
        for _ in range(_IN_FLIGHT):
            free.acquire()
        if failed:
            raise StackError(f"otel-collector: {len(failed)} requests failed or were taken in part; first: {failed[0]}")

    def await_calls(self, spans: int) -> dict[tuple[str, Label], tuple[int, float]]:
        """Count and seconds of each GPU and label once all calls add up to `spans`; StackError if they do not."""
        found: dict[tuple[str, Label], tuple[int, float]] = {}

        def all_there() -> bool:
            found.clear()
            found.update(self._series())
            return sum(count for count, _ in found.values()) == spans

        # A new series is told as 0 first, so two flushes.
        if not wait_until(all_there, 3 * FLUSH_S, every_s=1):
            counted = sum(count for count, _ in found.values())
            raise StackError(f"otel-collector: it tells of {counted} of {spans} spans{self._process.tail()}")
        return found

    def _series(self) -> dict[tuple[str, Label], tuple[int, float]]:
        with urllib.request.urlopen(f"http://{self._scrape}/metrics", timeout=30) as answer:  # its own
            text = answer.read().decode()
        counts: dict[tuple[str, Label], int] = {}
        seconds: dict[tuple[str, Label], float] = {}
        executions: dict[tuple[str, Label], int] = {}
        into: dict[str, dict[tuple[str, Label], Any]] = {
            "traces_span_metrics_calls_total": counts,
            "traces_span_metrics_duration_seconds_sum": seconds,
            "traces_span_metrics_duration_seconds_count": executions,
        }
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in into:
                    labels = sample.labels
                    label = Label(labels["span_name"], labels.get(STAGE, ""), labels.get(LAUNCH, ""))
                    into[sample.name][labels["service_name"], label] = sample.value
        return {at: (int(count), seconds[at]) for at, count in counts.items() if executions[at] == count}

    def _config(self, dimensions: Sequence[str] | None) -> dict[str, Any]:
        config: dict[str, Any] = {
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": self._otlp, "max_recv_msg_size_mib": 16}}}},
            "exporters": {"nop": {}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "error"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["nop"]}},
            },
        }
        if dimensions is None:
            return config
        config["connectors"] = {
            "span_metrics": {
                "histogram": {"unit": "s", "exponential": {"max_size": 160}},
                "dimensions": [{"name": name} for name in dimensions],
                "exclude_dimensions": ["span.kind", "status.code", "collector.instance.id"],
                "metrics_flush_interval": f"{FLUSH_S}s",
            }
        }
        config["exporters"] = {"prometheus": {"endpoint": self._scrape, "without_scope_info": True}}
        config["service"]["pipelines"] = {
            "traces": {"receivers": ["otlp"], "exporters": ["span_metrics"]},
            "metrics": {"receivers": ["span_metrics"], "exporters": ["prometheus"]},
        }
        return config

"""A receiver of OTLP over HTTP that decodes what it is sent."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Points = dict[tuple[tuple[str, str], ...], float]
"""Labels in order → value."""


def plain(attributes: object) -> dict[str, object]:
    """Attributes by key."""
    found: dict[str, object] = {}
    for one in attributes:  # type: ignore[attr-defined]  # a repeated field
        assert isinstance(one, KeyValue)
        found[one.key] = getattr(one.value, one.value.WhichOneof("value") or "string_value")
    return found


@dataclass
class Received:
    """What came so far."""

    url: str
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    resources: list[dict[str, object]] = field(default_factory=list)

    def spans(self) -> list[Span]:
        """All, in order of arrival."""
        requests = list(self.traces)
        return [
            span for one in requests for res in one.resource_spans for scope in res.scope_spans for span in scope.spans
        ]

    def newest(self) -> dict[str, Metric]:
        """Each metric as it was told last."""
        requests = list(self.metrics)
        return {
            metric.name: metric
            for one in requests
            for res in one.resource_metrics
            for scope in res.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> Points:
        """A metric's newest values by their labels; empty while it has not come."""
        metric = self.newest().get(name)
        if metric is None:
            return {}
        data = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
        return {
            tuple((k, str(v)) for k, v in sorted(plain(point.attributes).items())): float(
                getattr(point, point.WhichOneof("value") or "as_int")
            )
            for point in data
        }


@contextmanager
def receiver() -> Iterator[Received]:
    """Listens on a free port of loopback while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/metrics":
                found.metrics.append(ExportMetricsServiceRequest.FromString(body))
                found.resources += [plain(one.resource.attributes) for one in found.metrics[-1].resource_metrics]
            elif self.path == "/v1/traces":
                found.traces.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200 if self.path in ("/v1/metrics", "/v1/traces") else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Received(f"http://127.0.0.1:{server.server_address[1]}")
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()

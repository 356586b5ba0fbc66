"""The agent's own metrics and traces over OTLP/HTTP. What a traced program needs of the SDK is otel_spans.py.

The agent's counters stay what they are; the SDK asks for them when it exports. Its own settings (OTEL_SERVICE_NAME,
OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRIC_EXPORT_INTERVAL, OTEL_TRACES_SAMPLER, …) count as
everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from spanlite.agent.tracing import Note, Value
from spanlite.contract.catalogue import CATALOGUE, MetricSpec, MetricType

Counters = Callable[[], Mapping[str, Iterable[tuple[Mapping[str, str], float]]]]
_NAME = "spanlite.agent"
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "": "1"}
_TIMEOUT_S = 2.0
"""Of an export: the agent's end waits for one."""


class Telemetry:
    """Exports until it is stopped. A collector that cannot be reached costs a line in the log, and nothing else.

    Args:
        endpoint: base URL, to which /v1/metrics and /v1/traces are added.
        counters: by name in the catalogue, asked at each export for each metric; quick, callable by any thread.
        resource: who exports, beside what OTEL_RESOURCE_ATTRIBUTES says.
    """

    def __init__(self, endpoint: str, counters: Counters, resource: Mapping[str, str]) -> None:
        base = endpoint.rstrip("/")
        who = Resource({"service.name": "spanlite-agent", **resource}).merge(OTELResourceDetector().detect())
        self._counters = counters
        self._metrics = MeterProvider(
            [PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}/v1/metrics", timeout=_TIMEOUT_S))],
            who,
            shutdown_on_exit=False,
        )
        self._traces = TracerProvider(resource=who, shutdown_on_exit=False)
        self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces", timeout=_TIMEOUT_S)))
        self._tracer = self._traces.get_tracer(_NAME)
        meter = self._metrics.get_meter(_NAME)
        for spec in CATALOGUE.values():
            if spec.name.startswith("spanlite_agent_"):
                create = (
                    meter.create_observable_counter
                    if spec.type is MetricType.COUNTER
                    else meter.create_observable_gauge
                )
                create(metric_name(spec), [partial(self._observe, spec.name)], _UNITS[spec.unit], spec.meaning)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Value]) -> Iterator[Note]:
        """A span of its own trace; an exception that passes it is entered and makes it a failed one."""
        with self._tracer.start_as_current_span(name, attributes=dict(attributes)) as span:
            yield span.set_attribute

    def stop(self) -> None:
        """Exports what is left, for a few seconds at most."""
        self._traces.shutdown()
        self._metrics.shutdown(_TIMEOUT_S * 1000)

    def _observe(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        for labels, value in self._counters().get(name, ()):
            yield Observation(value, dict(labels))


def metric_name(spec: MetricSpec) -> str:
    """A metric's name in OpenTelemetry: the catalogue's, without the ending of counters, which Prometheus puts back."""
    return spec.name.removesuffix("_total")

"""A recorded run as OTLP: export requests, serialised, with the labels that our series have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Kind, Table
from spanlite.contract.names import stage_label
from spanlite.contract.points import Launch

STAGE, LAUNCH = "stage", "launch"
"""Attributes of a span, and labels of its series."""


class Label(NamedTuple):
    """What tells one GPU's series apart: the bounded kernel id, the stage, the launch configuration in short."""

    kernel: str
    stage: str
    launch: str

    def only(self, attributes: Iterable[str]) -> Label:
        """The label of a series that does without the other attributes."""
        return self._replace(**{name: "" for name in (STAGE, LAUNCH) if name not in attributes})


class Work(NamedTuple):
    """Executions, and their nanoseconds together."""

    calls: int
    sum_ns: int


def launch_text(launch: Launch) -> str:
    """Grid, block and cluster, registers and shared memory: the least that tells apart what our series tell apart."""
    shapes = (",".join(map(str, shape)) for shape in launch[:3])
    return "/".join([*shapes, str(launch.registers_per_thread), str(launch.dynamic_shared_memory)])


def counted(batches: Iterable[Batch]) -> dict[Label, Work]:
    """What any metrics of these batches' GPU work must say, counted span by span."""
    counts: Counter[Label] = Counter()
    sums: defaultdict[Label, int] = defaultdict(int)
    for batch in batches:
        for label, duration_ns in zip(_labels(batch), batch.columns.duration_ns.tolist(), strict=True):
            if label is not None:
                counts[label] += 1
                sums[label] += duration_ns
    return {label: Work(count, sums[label]) for label, count in counts.items()}


def merged(work: Mapping[Label, Work], attributes: Iterable[str]) -> dict[Label, Work]:
    """The same by the labels of fewer attributes."""
    made: dict[Label, Work] = {}
    for label, (calls, sum_ns) in work.items():
        had = made.get(label.only(attributes), Work(0, 0))
        made[label.only(attributes)] = Work(had.calls + calls, had.sum_ns + sum_ns)
    return made


def requests(batches: Iterable[Batch], gpus: Iterable[str], attributes: Iterable[str]) -> list[bytes]:
    """A request for each batch and GPU: GPU work alone, one resource whose service.name is the GPU.

    The span's name is the kernel's bounded id, which is shorter than its full name and no less telling.
    """
    wanted = tuple(attributes)
    scopes = [ScopeSpans(spans=_spans(batch, wanted)) for batch in batches]
    return [
        ExportTraceServiceRequest(
            resource_spans=[
                ResourceSpans(resource=Resource(attributes=[_text("service.name", gpu)]), scope_spans=[scope])
            ]
        ).SerializeToString()
        for scope in scopes
        for gpu in gpus
    ]


def _spans(batch: Batch, attributes: tuple[str, ...]) -> list[Span]:
    columns = batch.columns
    traces = [bytes(each) for each in columns.traces["id"]]
    made: list[Span] = []
    for label, trace, span_id, parent, start_ns, end_ns in zip(
        _labels(batch),
        columns.trace.tolist(),
        batch.span_ids.tolist(),
        batch.parent_span_ids.tolist(),
        columns.start_ns.tolist(),
        batch.end_ns.tolist(),
        strict=True,
    ):
        if label is None:
            continue
        text = label._asdict()
        span = Span(
            trace_id=traces[trace] if trace >= 0 else b"",
            span_id=span_id.to_bytes(8, "big"),
            parent_span_id=parent.to_bytes(8, "big") if parent else b"",
            name=label.kernel,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start_ns,
            end_time_unix_nano=end_ns,
            attributes=[_text(name, text[name]) for name in attributes if text[name]],
        )
        made.append(span)
    return made


def _labels(batch: Batch) -> list[Label | None]:
    """The label of each row; None for ranges, of which there are no metrics."""
    columns = batch.columns
    kernels = [columns.strings[at] for at in columns.configs["kernel"].tolist()]
    launches = _launches(columns.configs)
    stages = [stage_label(text) for text in columns.strings]
    return [
        None if kind == Kind.RANGE else Label(kernels[config], stages[stage], launches[config])
        for kind, config, stage in zip(
            columns.kind.tolist(), columns.config.tolist(), columns.stage.tolist(), strict=True
        )
    ]


def _launches(configs: Table) -> list[str]:
    shapes = [[f"{what}_{axis}" for axis in "xyz"] for what in Launch._fields[:3]]
    made: list[str] = []
    for entry in configs:
        grid, block, cluster = ((int(entry[x]), int(entry[y]), int(entry[z])) for x, y, z in shapes)
        rest = [int(entry[name]) for name in Launch._fields[3:]]
        made.append(launch_text(Launch(grid, block, cluster, *rest)))
    return made


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))

"""Spans one by one as SpanLite messages: what people and other languages reason about, not what travels.

Everything that repeats is said again for each span, so it serves to look at single spans and to measure against. What a
SpanLite has no field for is not in it: the start of a trace and its parent in another process, and what a batch says of
itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from spanlite.contract.batch import Batch
from spanlite.contract.columns import CONFIG, PLACE
from spanlite.contract.errors import BatchError
from spanlite.v1 import span_pb2

_CONFIG_FIELDS = [name for name in CONFIG.names or () if name not in ("kernel", "name")]
_PLACE_FIELDS = [name for name in PLACE.names or () if name != "gpu"]
_BITS = (1 << 64) - 1


def encode_rows(batch: Batch) -> Iterator[bytes]:
    """One serialised SpanLite message for each row, in order."""
    columns, texts = batch.columns, batch.columns.strings
    configs = [
        span_pb2.LaunchConfig(**{name: int(entry[name]) for name in _CONFIG_FIELDS})  # type: ignore[arg-type]
        for entry in columns.configs
    ]
    kernels = [(texts[entry["kernel"]], texts[entry["name"]]) for entry in columns.configs]
    uuids = ["", *(gpu.uuid for gpu in batch.gpus)]
    places = [
        span_pb2.Place(gpu_uuid=uuids[entry["gpu"]], **{name: int(entry[name]) for name in _PLACE_FIELDS})
        for entry in columns.places
    ]
    nodes = [(int(entry["graph_id"]), int(entry["graph_node_id"])) for entry in columns.nodes]
    traces = [*(entry.tobytes() for entry in columns.traces["id"]), b""]  # -1, no trace, is the last
    rows = (batch.span_ids, batch.parent_span_ids, columns.kind, columns.start_ns, columns.duration_ns, columns.config)
    more = (columns.place, columns.node, columns.stage, columns.trace, columns.correlation, columns.bytes)
    for span, parent, kind, start, duration, config, place, node, stage, trace, correlation, size, weight in zip(
        *(values.tolist() for values in (*rows, *more, columns.weight)), strict=True
    ):
        yield span_pb2.SpanLite(
            trace_id=traces[trace],
            span_id=span,
            parent_span_id=parent,
            kind=kind,
            start_unix_ns=start,
            duration_ns=duration,
            kernel=kernels[config][0],
            name=kernels[config][1],
            config=configs[config],
            place=places[place],
            correlation_id=correlation,
            graph_id=nodes[node][0],
            graph_node_id=nodes[node][1],
            stage=texts[stage],
            bytes=size & _BITS,
            weight=weight,
        ).SerializeToString()


def decode_row(data: bytes) -> span_pb2.SpanLite:
    """A message that `encode_rows` made.

    Raises:
        BatchError: reason not_protobuf.
    """
    message = span_pb2.SpanLite()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BatchError("not_protobuf", f"a span: {error}") from error
    return message

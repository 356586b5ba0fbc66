"""The load itself: spans, what agents need, metric points."""

from __future__ import annotations

from spanlite.pipeline.sizing.request import Request
from spanlite.pipeline.sizing.sheet import Sheet


def load(s: Sheet, r: Request) -> None:
    """Spans, processes, batches, bytes."""
    s.section("Load")
    s.product("spans", "spans", "spans/s", ["gpus", "kernels_per_second"])
    s.product("producers", "traced processes", "", ["gpus", "processes_per_gpu"])
    s.product("process_spans", "spans of a process", "spans/s", ["kernels_per_second"], ["processes_per_gpu"])
    batch = max(1.0, min(r.batch_spans, s["process_spans"] * r.flush_s))
    formula = "at least 1, least of batch_spans and process_spans × flush_s"
    s.line("batch", "spans of a batch", "", batch, formula)
    s.product("batches", "batches", "batches/s", ["spans"], ["batch"])
    if r.bytes_per_span is None:
        size = s["wire_bytes_per_span"] + s["trace_bytes_per_span"] + s["wire_bytes_per_batch"] / s["batch"]
        formula = "wire_bytes_per_span + trace_bytes_per_span + wire_bytes_per_batch / batch"
        s.line("span_bytes", "a span on the wire", "B", size, formula)
    else:
        s.total("span_bytes", "a span on the wire", "B", ["bytes_per_span"])
    s.product("ingress", "spans into Kafka", "B/s", ["spans", "span_bytes"])


def agents(s: Sheet, r: Request) -> None:
    """Cores and network of a node."""
    s.section("Agents")
    s.product("nodes", "agents, one a node", "", ["gpus"], ["gpus_per_node"], whole=True)
    spans = min(r.gpus, r.gpus_per_node) * r.kernels_per_second
    s.line(
        "node_spans", "spans of a node", "spans/s", spans, "( least of gpus and gpus_per_node ) × kernels_per_second"
    )
    s.product("agent_cores", "busy on a node", "cores", ["node_spans"], ["agent_spans_per_core_second"])
    s.product("node_bytes", "network of a node", "B/s", ["node_spans", "span_bytes"])


def points(s: Sheet, r: Request) -> None:
    """What the metrics job tells: one record per series that changed in a window."""
    s.section("Metric points")
    s.product("series", "series", "", ["gpus", "series_per_gpu"])
    changed = min(r.series_per_gpu, r.kernels_per_second * r.window_s)
    formula = "least of series_per_gpu and kernels_per_second × window_s"
    s.line("changed", "series of a GPU that a window changes", "", changed, formula)
    s.product("point_records", "records", "records/s", ["gpus", "changed"], ["window_s"])
    s.total("record_bytes", "a record with its key", "B", ["point_bytes", "point_key_bytes"])
    s.product("points_in", "points into Kafka", "B/s", ["point_records", "record_bytes", "point_compressed_share"])

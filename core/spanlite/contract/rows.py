"""Spans one by one as JSON values, in the shape of proto SpanLite: for people who look, not for pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.columns import CONFIG, OBSERVATIONS, Kind, Limiter


def span_rows(batch: Batch) -> Iterator[dict[str, Any]]:
    """A dictionary for each row, in order; ids as hex, times in nanoseconds."""
    columns, strings = batch.columns, batch.columns.strings
    trace_ids = [bytes(entry).hex() for entry in columns.traces["id"]]
    configs = [_config(entry) for entry in columns.configs]
    places = [dict(zip(columns.places.dtype.names or (), entry.tolist(), strict=True)) for entry in columns.places]
    occupancy = columns.occupancy
    span_ids, parents = batch.span_ids, batch.parent_span_ids
    for row in range(len(columns)):
        config, place = columns.configs[columns.config[row]], places[columns.place[row]]
        node = columns.nodes[columns.node[row]]
        trace = int(columns.trace[row])
        parent = int(parents[row])
        kind = Kind(int(columns.kind[row]))
        span: dict[str, Any] = {
            "trace_id": trace_ids[trace] if trace >= 0 else "",
            "span_id": f"{int(span_ids[row]):016x}",
            "parent_span_id": f"{parent:016x}" if parent else "",
            "kind": kind.name.lower(),
            "start_unix_ns": int(columns.start_ns[row]),
            "duration_ns": int(columns.duration_ns[row]),
            "kernel": strings[config["kernel"]],
            "name": strings[config["name"]],
            "stage": strings[columns.stage[row]],
            "correlation_id": int(columns.correlation[row]),
            "graph_id": int(node["graph_id"]),
            "graph_node_id": int(node["graph_node_id"]),
            "bytes": int(columns.bytes[row]),
            "weight": int(columns.weight[row]),
            "config": None if kind == Kind.RANGE or kind in OBSERVATIONS else configs[columns.config[row]],
            "theoretical_occupancy": None if np.isnan(occupancy[row]) else float(occupancy[row]),
        }
        gpu = place.get("gpu", 0)
        if kind == Kind.GAUGE:  # its bytes are no bytes
            span["bytes"], span["value"] = 0, _value(columns.bytes[row])
        span["place"] = {**place, "gpu": batch.gpus[gpu - 1].uuid if gpu else ""}
        yield span


def _value(bits: np.int64) -> float | str:
    """A gauge's value; JSON has no numbers for those that are not finite."""
    value = float(bits.view(np.float64))
    return value if np.isfinite(value) else str(value)


def _config(entry: np.void) -> dict[str, Any]:
    names = (CONFIG.names or ())[2:-1]
    return {name: int(entry[name]) for name in names} | {"limiter": Limiter(int(entry["limiter"])).name.lower()}

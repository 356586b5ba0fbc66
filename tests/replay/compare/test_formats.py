"""Forms of the same spans: each is decoded and held against what went in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.contract.errors import BatchError, ReplayError
from spanlite.contract.row_codec import decode_row, encode_rows
from spanlite.contract.rows import span_rows
from spanlite.replay.compare.formats import measure_formats


def test_rows_come_back(small: list[Batch]) -> None:
    """A SpanLite message says of a span what `spanlite cat` prints, all but what only batches know."""
    for batch in small[:3]:
        for data, row in zip(encode_rows(batch), span_rows(batch), strict=True):
            message = decode_row(data)
            assert message.trace_id.hex() == row["trace_id"]
            assert f"{message.span_id:016x}" == row["span_id"]
            assert (f"{message.parent_span_id:016x}" if message.parent_span_id else "") == row["parent_span_id"]
            for name in ("start_unix_ns", "duration_ns", "kernel", "name", "stage", "correlation_id", "graph_node_id"):
                assert getattr(message, name) == row[name]
            assert message.place.gpu_uuid == row["place"]["gpu"]
            assert message.place.stream_id == row["place"]["stream_id"]
            if row["config"]:
                assert message.config.grid_x == row["config"]["grid_x"]
                assert message.config.max_warps == row["config"]["max_warps"]
    with pytest.raises(BatchError, match="not_protobuf"):
        decode_row(b"\x0a\xff")


def test_sizes_are_those_of_the_bytes(small: list[Batch]) -> None:
    """JSON lines and batches have the sizes of what is written; doubles lose nanoseconds, nothing else does."""
    rows = {row["format"]: row for row in measure_formats(small[:4])}
    spans = sum(len(batch.columns) for batch in small[:4])
    lines = [json.dumps(row, separators=(",", ":")) for batch in small[:4] for row in span_rows(batch)]
    assert rows["raw JSON, one object a span"]["bytes_per_span"] == sum(len(line) + 1 for line in lines) / spans
    assert rows["SpanBatch"]["bytes_per_span"] == sum(len(encode_batch(batch)) for batch in small[:4]) / spans
    starts = [row["start_unix_ns"] for batch in small[:4] for row in span_rows(batch)]
    doubles = rows.pop("the same, numbers read as doubles")
    assert doubles["timing_error_ns"] == max(abs(int(float(start)) - start) for start in starts) > 0
    assert {row["timing_error_ns"] for row in rows.values()} == {0}
    assert {row["topology"] for row in rows.values()} == {100}


def test_parents_in_other_processes_only_batches_tell(small: list[Batch]) -> None:
    """A trace whose parent is elsewhere does not come out of forms that have no room for it."""
    batch = replace(small[0], columns=replace(small[0].columns, traces=small[0].columns.traces.copy()))
    batch.columns.traces["remote_parent"] = 5
    topology = {row["format"]: row["topology"] for row in measure_formats([batch])}
    assert topology.pop("SpanBatch") == 100
    assert set(topology.values()) == {0}


def test_a_sample_is_cut(small: list[Batch]) -> None:
    """So many spans are measured and no more; none at all is an error."""
    assert {row["spans"] for row in measure_formats(small, most_spans=150)} == {150}
    with pytest.raises(ReplayError):
        measure_formats([])

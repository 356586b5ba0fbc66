"""Bytes a span on the wire, beside other ways to write the same spans, and spans a second on one core.

    SPANLITE_RECORDINGS=FOLDER python benchmarks/bench_codec.py [--json FILE]

Takes serve_steady.parquet of that folder, else the slice in tests/data, and the CUPTI recordings in tests/data/h200, in
batches of 65,536 spans as the agent cuts them. A kernel table has no ranges: its spans have no trace, parent or stage;
the recordings' have. Times include zstd; sizes include headers and all names, in full. Every batch is compared after
its round trip.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard
from google.protobuf.internal import api_implementation

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / part) for part in ("proto", "core", "agent"))]

from benchmarks._table import Figure, best_s, json_path, show  # noqa: E402 - the source roots come first
from spanlite.agent.counts import AgentCounts  # noqa: E402
from spanlite.agent.feeder import WHOLE_BYTES, hello  # noqa: E402
from spanlite.agent.frames import Clock, Frame, Header, pack_clock, pack_names, pack_text  # noqa: E402
from spanlite.agent.process import TracedProcess  # noqa: E402
from spanlite.agent.recording import chunks, read_recording  # noqa: E402
from spanlite.agent.tables import KernelTable  # noqa: E402
from spanlite.contract.batch import Batch  # noqa: E402
from spanlite.contract.codec import decode_batch, encode_batch  # noqa: E402
from spanlite.contract.columns import ROW_COLUMNS, Limiter, equal  # noqa: E402
from spanlite.contract.rows import span_rows  # noqa: E402
from spanlite.runtime.clock import ManualClock  # noqa: E402
from spanlite.v1 import batch_pb2, span_pb2  # noqa: E402

_TIMED, _COMPARED = 32, 8
"""Batches that are timed, and batches that are also written span by span: those take a second each."""


def table_batches() -> tuple[str, list[Batch]]:
    """Name and batches of the kernel table."""
    path = Path(os.environ.get("SPANLITE_RECORDINGS", "")) / "serve_steady.parquet"
    if not path.is_file():
        path = _ROOT / "tests" / "data" / "serve_slice.parquet"
    return path.stem, list(KernelTable(path).batches(ManualClock(1)))


def recorded_batches(path: Path) -> Iterator[Batch]:
    """What the agent makes of a recording; each buffer's spans are cut on their own, as in production."""
    recording = read_recording(path)
    first = pack_text(hello(recording, {"workload": recording.scenario, "host.name": "recorded"}))
    header = Header(Frame.HELLO, len(first), 0)
    process = TracedProcess.from_hello(header, first, 1, ManualClock(recording.unix_ns[1]), AgentCounts())
    before, after = recording.unix_ns
    reading = Clock(recording.cupti_ts, (before + after) // 2, (after - before) // 2)
    frames: list[tuple[Frame, bytes]] = [
        (Frame.CLOCK, pack_clock(reading)),
        (Frame.NAMES, pack_names(recording.names)),
        *((Frame.BUFFER, bytes(piece)) for piece in chunks(recording, WHOLE_BYTES)),
    ]
    for number, (kind, payload) in enumerate(frames, start=1):
        yield from process.take(Header(kind, len(payload), number), payload)
    yield from process.finish()


def largest_error(batch: Batch, decoded: Batch) -> int:
    """Largest difference in any row column; the tables must be equal, too."""
    worst = 0
    for name in ROW_COLUMNS:
        sent, got = (getattr(b.columns, name).astype(object) for b in (batch, decoded))
        worst = max(worst, int(np.abs(sent - got).max(initial=0)))
    assert worst or equal(batch.columns, decoded.columns)
    return worst


def measure(name: str, batches: list[Batch]) -> dict[str, Figure]:
    """Size, speed and error of one recording."""
    encoded = [encode_batch(batch) for batch in batches]
    spans = sum(len(batch.columns) for batch in batches)
    part, part_encoded = batches[:_TIMED], encoded[:_TIMED]
    timed = sum(len(batch.columns) for batch in part)
    return {
        "recording": name,
        "spans": spans,
        "spans/batch": round(spans / len(batches)),
        "B/span": sum(map(len, encoded)) / spans,
        "encode M/s": timed / best_s(lambda: [encode_batch(batch) for batch in part]) / 1e6,
        "decode M/s": timed / best_s(lambda: [decode_batch(data) for data in part_encoded]) / 1e6,
        "max |Δ|": max(largest_error(batch, decode_batch(data)) for batch, data in zip(batches, encoded, strict=True)),
    }


def span_message(row: dict[str, Any]) -> span_pb2.SpanLite:
    """A row of span_rows as proto SpanLite."""
    known = {field.name for field in span_pb2.Place.DESCRIPTOR.fields}
    place = {name: value for name, value in row["place"].items() if name in known}
    config = row["config"]
    if config:
        config = span_pb2.LaunchConfig(**{**config, "limiter": Limiter[config["limiter"].upper()].value})
    plain = ("start_unix_ns", "duration_ns", "kernel", "name", "stage", "correlation_id", "graph_id", "graph_node_id")
    return span_pb2.SpanLite(
        trace_id=bytes.fromhex(row["trace_id"]),
        span_id=int(row["span_id"], 16),
        parent_span_id=int(row["parent_span_id"] or "0", 16),
        kind=f"SPAN_KIND_{row['kind'].upper()}",
        config=config,
        place=span_pb2.Place(gpu_uuid=row["place"]["gpu"], **place),
        bytes=row["bytes"],
        weight=row["weight"],
        **{name: row[name] for name in plain},
    )


def compare(batches: list[Batch]) -> list[dict[str, Figure]]:
    """Bytes a span of each way to write the same batches; compressed ones a batch at a time."""
    sizes: dict[str, int] = {}
    spans = sum(len(batch.columns) for batch in batches)
    snappy, zstd = pa.Codec("snappy"), {level: zstandard.ZstdCompressor(level=level) for level in (1, 3, 6)}

    def add(name: str, size: int) -> None:
        sizes[name] = sizes.get(name, 0) + size

    for batch in batches:
        rows = list(span_rows(batch))
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
        add("JSON lines", len(lines))
        add("JSON lines, zstd-3", len(zstd[3].compress(lines)))
        messages = [span_message(row).SerializeToString() for row in rows]
        add("SpanLite, one message a span", sum(map(len, messages)))
        together = b"".join(len(message).to_bytes(2, "little") + message for message in messages)
        add("SpanLite, one batch", len(together))
        add("SpanLite, one batch, Snappy", len(snappy.compress(together)))
        add("SpanLite, one batch, zstd-3", len(zstd[3].compress(together)))
        message = batch_pb2.SpanBatch.FromString(encode_batch(batch))
        body, header = zstandard.ZstdDecompressor().decompress(message.body), message.ByteSize() - len(message.body)
        add("SpanBatch, plain", header + len(body))
        add("SpanBatch, Snappy", header + len(snappy.compress(body)))
        for level, compressor in zstd.items():
            add(f"SpanBatch, zstd-{level}", header + len(compressor.compress(body)))
    wire = sizes["SpanBatch, zstd-3"]
    return [{"form": name, "B/span": size / spans, "times": size / wire} for name, size in sizes.items()]


def main() -> None:
    """Measures every recording, prints two tables and, if asked, writes the figures as JSON."""
    path = json_path("bytes a span on the wire, and spans a second on one core")
    assert api_implementation.Type() == "upb"
    name, batches = table_batches()
    measured = [measure(name, batches)]
    compared = {name: compare(batches[:_COMPARED])}
    for source in sorted((_ROOT / "tests" / "data" / "h200").glob("*.bin.xz")):
        label, recorded = source.name.removesuffix(".bin.xz"), list(recorded_batches(source))
        measured.append(measure(label, recorded))
        if label == "serve-cupti130500":
            compared[label] = compare(recorded[:_COMPARED])
    show("SpanBatch: sizes, and speed with zstd on one core", measured)
    for label, rows in compared.items():
        show(f"\n{label}: the same spans in other forms", rows)
    if path:
        path.write_text(json.dumps({"measured": measured, "compared": compared}, indent=1) + "\n")


if __name__ == "__main__":
    main()

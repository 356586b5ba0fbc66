"""The same spans in other forms: each is encoded and decoded, and what comes out is held against what went in.

Three of the forms have an object for each span, so this goes span by span, over some spans only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.errors import ReplayError
from spanlite.contract.row_codec import decode_row, encode_rows
from spanlite.contract.rows import span_rows

MOST_SPANS = 100_000
_Encoded = list[bytes]
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """What is compared of one span: times in ns, ids as numbers, 0 for none; None for what a form does not say."""

    span: int
    parent: int
    trace: bytes
    remote: int | None
    start_ns: float
    duration_ns: float


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write the spans of a batch as messages, and to read them."""

    name: str
    encode: Callable[[Batch], _Encoded]
    decode: Callable[[_Encoded], Iterator[Seen]]


def seen(batch: Batch) -> Iterator[Seen]:
    """The spans of a batch."""
    columns = batch.columns
    traces = [(entry["id"].tobytes(), int(entry["remote_parent"])) for entry in columns.traces]
    traces.append((b"", 0))  # -1, no trace, is the last
    rows = (batch.span_ids, batch.parent_span_ids, columns.trace, columns.start_ns, columns.duration_ns)
    for span, parent, trace, start, duration in zip(*(values.tolist() for values in rows), strict=True):
        name, remote = traces[trace]
        yield Seen(span, parent, name, remote, start, duration)


def json_encoded(batch: Batch) -> _Encoded:
    """A line for each span: the fields of `spanlite cat`, times as whole nanoseconds, no spaces."""
    return [json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in span_rows(batch)]


def _json_decoded(lines: _Encoded, number: Callable[[str], Any] = int) -> Iterator[Seen]:
    for line in lines:
        row = json.loads(line, parse_int=number)
        parent = int(row["parent_span_id"] or "0", 16)
        trace = bytes.fromhex(row["trace_id"])
        yield Seen(int(row["span_id"], 16), parent, trace, None, row["start_unix_ns"], row["duration_ns"])


def _of_row(data: bytes) -> Seen:
    row = decode_row(data)
    return Seen(row.span_id, row.parent_span_id, row.trace_id, None, row.start_unix_ns, row.duration_ns)


def _snappy(data: bytes) -> bytes:
    compressed: bytes = pa.compress(data, codec="snappy", asbytes=True)
    return compressed


def _unsnappy(data: bytes) -> bytes:
    plain: bytes = pa.decompress(data, decompressed_size=_snappy_size(data), codec="snappy", asbytes=True)
    return plain


def _snappy_size(data: bytes) -> int:
    """Length of what Snappy has compressed: a varint before all else."""
    size = 0
    for at, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            break
    return size


def _together(batch: Batch) -> _Encoded:
    return [b"".join(len(row).to_bytes(_LENGTH_BYTES, "little") + row for row in encode_rows(batch))]


def _apart(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        begin = at + _LENGTH_BYTES
        at = begin + int.from_bytes(data[at:begin], "little")
        yield data[begin:at]


FORMS = (
    Form("raw JSON, one object a span", json_encoded, _json_decoded),
    Form("the same, numbers read as doubles", json_encoded, lambda lines: _json_decoded(lines, float)),
    Form("SpanLite rows", lambda batch: list(encode_rows(batch)), lambda rows: map(_of_row, rows)),
    Form(
        "SpanLite rows + Snappy",
        lambda batch: [_snappy(row) for row in encode_rows(batch)],
        lambda rows: (_of_row(_unsnappy(row)) for row in rows),
    ),
    Form(
        "SpanLite rows, Snappy over a batch",
        lambda batch: [_snappy(data) for data in _together(batch)],
        lambda parts: (_of_row(row) for part in parts for row in _apart(_unsnappy(part))),
    ),
    Form(
        "SpanBatch",
        lambda batch: [encode_batch(batch)],
        lambda parts: (one for part in parts for one in seen(decode_batch(part))),
    ),
)
"""JSON first: sizes are told in per cent of it."""


def measure_formats(batches: Iterable[Batch], *, most_spans: int = MOST_SPANS) -> list[dict[str, Any]]:
    """A row for each form: name, bytes a span, size in % of JSON, largest error of a time in ns, traces kept in %.

    Args:
        batches: as they are sent; what is beyond `most_spans` is left out.
        most_spans: how many spans are measured.

    Raises:
        ReplayError: there is no span.
    """
    sample = list(_first(batches, most_spans))
    spans = sum(len(batch.columns) for batch in sample)
    if not spans:
        raise ReplayError("there is no span to measure formats with")
    before = [one for batch in sample for one in seen(batch)]
    rows: list[dict[str, Any]] = []
    for form in FORMS:
        size = 0
        after: list[Seen] = []
        for batch in sample:
            encoded = form.encode(batch)
            size += sum(map(len, encoded))
            after += form.decode(encoded)
        rows.append(
            {
                "format": form.name,
                "spans": spans,
                "bytes_per_span": size / spans,
                "size_percent": 100 * size / spans / (rows[0]["bytes_per_span"] if rows else size / spans),
                "timing_error_ns": _timing_error(before, after),
                "topology": _topology(before, after),
            }
        )
    return rows


def _first(batches: Iterable[Batch], most: int) -> Iterator[Batch]:
    for batch in batches:
        part = batch.columns.take(slice(0, most))
        most -= len(part)
        yield replace(batch, columns=part)
        if most <= 0:
            return


def _timing_error(before: Sequence[Seen], after: Sequence[Seen]) -> int:
    """Largest difference of a start or a duration, spans taken in order; in whole nanoseconds."""
    pairs = zip(before, after, strict=True)
    return max(
        max(abs(int(a.start_ns) - int(b.start_ns)), abs(int(a.duration_ns) - int(b.duration_ns))) for a, b in pairs
    )


def _topology(before: Sequence[Seen], after: Sequence[Seen]) -> float | None:
    """Share of traces in % whose spans, their parents and the trace's parent elsewhere came out; None without any.

    Where a form has no room for a parent elsewhere, a trace that has one does not come out.
    """
    ours, theirs = _relations(before), _relations(after)
    if not ours:
        return None
    return 100 * sum(theirs.get(trace) == relation for trace, relation in ours.items()) / len(ours)


def _relations(spans: Iterable[Seen]) -> dict[bytes, set[tuple[int, int, int]]]:
    """Span, parent and parent elsewhere (0 for none, or not told) of each trace's spans."""
    found: dict[bytes, set[tuple[int, int, int]]] = {}
    for one in spans:
        if one.trace:
            found.setdefault(one.trace, set()).add((one.span, one.parent, one.remote or 0))
    return found

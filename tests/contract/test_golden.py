"""Batches that were written by the first version stay readable, and the layout is the one that the .proto tells."""

from __future__ import annotations

import struct
from pathlib import Path

import zstandard
from google.protobuf.message import Message

from spanlite.contract.body import encode_body
from spanlite.contract.codec import decode_batch
from spanlite.v1 import batch_pb2

_GOLDEN = Path(__file__).parents[1] / "golden" / "batch_v1.bin"
_FIRST = 1_795_958_731_643_646_670


def _body(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(batch_pb2.SpanBatch.FromString(data).body)


def _raw(column: Message, rows: int) -> list[int]:
    """A column as batch.proto describes it, one value after the other and without numpy."""
    assert isinstance(column, batch_pb2.Column)
    planes = [column.planes[at * rows : (at + 1) * rows] for at in range(column.width)]
    return [sum(plane[row] << (8 * at) for at, plane in enumerate(planes)) for row in range(rows)]


def _plain(column: batch_pb2.Column, rows: int) -> list[int]:
    return [column.base + raw for raw in _raw(column, rows)]


def _zigzag(column: batch_pb2.Column, rows: int) -> list[int]:
    return [(raw >> 1) if raw % 2 == 0 else -((raw + 1) >> 1) for raw in _raw(column, rows)]


def _sums(steps: list[int]) -> list[int]:
    return [sum(steps[: at + 1]) for at in range(len(steps))]


def test_the_first_version_s_batch_decodes_to_the_values_it_was_made_of() -> None:
    """A batch in a topic for a year reads as on its first day: every value is told here once more."""
    batch = decode_batch(_GOLDEN.read_bytes())
    columns = batch.columns
    assert (columns.start_ns - _FIRST).tolist() == [0, 1500, 4000, 3000, 9000, 70000, 80000]
    assert columns.duration_ns.tolist() == [90000, 2000, 500, 700, 60000, 1, 1000]
    assert columns.kind.tolist() == [4, 1, 1, 1, 2, 3, 1]
    assert columns.config.tolist() == [1, 0, 2, 0, 0, 0, 2]
    assert columns.place.tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert columns.node.tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert [columns.strings[at] for at in columns.stage] == ["", "decode", "decode", "decode", "", "", ""]
    assert columns.trace.tolist() == [0, 0, 0, 0, 0, -1, -1]
    assert columns.parent.tolist() == [-1, 5, 5, 5, 5, -1, -1]
    assert columns.range_number.tolist() == [5, -1, -1, -1, -1, -1, -1]
    assert columns.correlation.tolist() == [0, 101, 102, 102, 110, 111, 4294967295]
    assert columns.bytes.tolist() == [0, 0, 0, 0, 1048576, 64, 0]
    assert columns.weight.tolist() == [1, 1, 1, 1, 1, 1, 8]
    assert columns.strings == ("", "gemm", "_Z4gemmILi1EEvPf", "decode", "request:7", "µ-norm")
    assert columns.configs["grid_x"].tolist() == [132, 0, 4000000000]
    assert columns.configs["limiter"].tolist() == [3, 0, 1]
    assert columns.places["priority"].tolist() == [-5, 0]
    assert columns.places["thread_id"].tolist() == [0, 18446744073709551610]
    assert columns.nodes["graph_node_id"].tolist() == [0, 8589934593]
    assert columns.traces["id"].tobytes().hex() == "00112233445566778899aabbccddeeff"
    assert columns.traces["remote_parent"].tolist() == [0xFEDCBA9876543210]
    assert columns.traces["start_ns"].tolist() == [_FIRST]


def test_the_first_version_s_header_decodes_to_the_values_it_was_made_of() -> None:
    """Names, order, clock, owner and GPU of an old batch are kept as well."""
    batch = decode_batch(_GOLDEN.read_bytes())
    assert batch.producer == bytes(range(16))
    assert (batch.sequence, batch.session, batch.first_row) == (3, 0x0123456789ABCDEF, 8192)
    assert batch.emit_ns == 1_795_958_731_700_000_000
    assert batch.resource == {"host.name": "node-1", "process.pid": "4242"}
    assert (batch.gpus[0].uuid, batch.gpus[0].name, batch.gpus[0].multiprocessors) == (
        "GPU-12345678",
        "NVIDIA H200",
        132,
    )
    assert (batch.clock.cupti_ns, batch.clock.unix_ns, batch.clock.uncertainty_ns) == (_FIRST, _FIRST + 230, 120)
    assert batch.sampling == 1


def test_encoding_the_same_columns_gives_the_same_body_bytes() -> None:
    """The layout has not moved: today's encoder writes the old body to the byte; zstd's own output may change."""
    data = _GOLDEN.read_bytes()
    assert encode_body(decode_batch(data).columns, _FIRST) == _body(data)


def test_a_reader_made_from_the_proto_s_words_alone_finds_the_same_spans() -> None:
    """What batch.proto says is all that a reader in another language needs."""
    data = _GOLDEN.read_bytes()
    header = batch_pb2.SpanBatch.FromString(data)
    body, rows = batch_pb2.SpanColumns.FromString(_body(data)), header.rows
    kinds, durations = _plain(body.kind, rows), _plain(body.duration, rows)
    cursor, starts = header.first_start_unix_ns, []
    for gap, duration, kind in zip(_zigzag(body.gap, rows), durations, kinds, strict=True):
        starts.append(cursor + gap)
        cursor = starts[-1] + (0 if kind == 4 else duration)
    columns = decode_batch(data).columns
    assert starts == columns.start_ns.tolist()
    assert [value - 1 for value in _sums(_zigzag(body.parent, rows))] == columns.parent.tolist()
    assert _sums(_zigzag(body.correlation, rows)) == columns.correlation.tolist()
    assert [value - 1 for value in _plain(body.trace, rows)] == columns.trace.tolist()
    assert _plain(body.bytes, 2) == [1048576, 64]
    assert _plain(body.range_number, 1) == [5]


def test_the_header_s_times_let_a_consumer_order_a_batch_without_its_body() -> None:
    """first_start is the earliest start, last_end the latest end of GPU work: ranges do not count."""
    header = batch_pb2.SpanBatch.FromString(_GOLDEN.read_bytes())
    assert (header.format, header.rows) == (1, 7)
    assert header.first_start_unix_ns == _FIRST
    assert header.last_end_unix_ns == _FIRST + 81_000


def test_the_body_is_one_zstd_frame_with_content_size_and_checksum() -> None:
    """A reader can refuse a bomb by the frame's first bytes, and finds flipped bits: RFC 8878, frame header."""
    header = batch_pb2.SpanBatch.FromString(_GOLDEN.read_bytes())
    magic, descriptor = struct.unpack_from("<IB", header.body)
    assert magic == 0xFD2FB528
    assert descriptor & 0b100, "checksum flag"
    assert descriptor >> 6 or descriptor & 0b100000, "content size is told"
    assert zstandard.frame_content_size(header.body) == header.body_size

"""Batch to SpanBatch bytes and back, vectorised both ways, every limit checked before memory is taken."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import zstandard
from google.protobuf.message import DecodeError

from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.body import decode_body, encode_body
from spanlite.contract.columns import SamplingMode, SpanColumns
from spanlite.contract.errors import BatchError
from spanlite.contract.ids import RANGE_BIT
from spanlite.contract.wire import check_field_count
from spanlite.v1 import batch_pb2

FORMAT = 1
ZSTD_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader accepts; a batch beyond them is rejected with the limit's name as the reason.

    Attributes:
        message_bytes: of the whole message as it arrived.
        body_bytes: of the body once decompressed.
        rows: spans a batch.
        table_rows: entries of each dictionary.
        string_bytes: of one text in UTF-8.
    """

    message_bytes: int = 8 << 20
    body_bytes: int = 32 << 20
    rows: int = 1 << 16
    table_rows: int = 1 << 16
    string_bytes: int = 1 << 20


DEFAULT_LIMITS = Limits()
_HEADER_FIELDS = 4096
"""Most fields of a header, resource attributes and GPUs included."""
_GPU_FIELDS = tuple(field.name for field in fields(Gpu))
_local = threading.local()


def encode_batch(batch: Batch) -> bytes:
    """One Kafka value: header in the clear, columns as one zstd frame."""
    columns = batch.columns
    rows = len(columns)
    first = int(columns.start_ns.min()) if rows else 0
    facts = Facts(
        producer=batch.producer,
        sequence=batch.sequence,
        session=batch.session,
        first_row=batch.first_row,
        rows=rows,
        emit_ns=batch.emit_ns,
        first_start_ns=first,
        last_end_ns=_last_end(columns),
    )
    origin = encode_origin(batch.clock, batch.sampling, batch.resource, batch.gpus)
    return encode_message(facts, origin, encode_body(columns, first))


class Facts(NamedTuple):
    """What a header says of a batch's name and rows; `last_end_ns` is of GPU work, of all rows if there is none."""

    producer: bytes
    sequence: int
    session: int
    first_row: int
    rows: int
    emit_ns: int
    first_start_ns: int
    last_end_ns: int


def encode_message(facts: Facts, origin: bytes, body: bytes | memoryview) -> bytes:
    """One Kafka value, of what `encode_origin` gave and a body that is not compressed."""
    head = batch_pb2.SpanBatch(
        format=FORMAT,
        producer=facts.producer,
        sequence=facts.sequence,
        session=facts.session,
        first_row=facts.first_row,
        rows=facts.rows,
        emit_unix_ns=facts.emit_ns,
        first_start_unix_ns=facts.first_start_ns,
        last_end_unix_ns=facts.last_end_ns,
    )
    tail = batch_pb2.SpanBatch(body_size=len(body), body=_compressor().compress(body))
    # Fields come in the order of their numbers, so that the parts are the whole.
    return b"".join((head.SerializeToString(), origin, tail.SerializeToString()))


def encode_origin(
    clock: ClockAnchor, sampling: SamplingMode, resource: Mapping[str, str], gpus: Sequence[Gpu]
) -> bytes:
    """The part of a message that many batches share, between their rows' facts and their bodies."""
    message = batch_pb2.SpanBatch(
        clock=batch_pb2.ClockAnchor(
            cupti_ns=clock.cupti_ns, unix_ns=clock.unix_ns, uncertainty_ns=clock.uncertainty_ns
        ),
        sampling=batch_pb2.Sampling(mode=int(sampling), weight=1),  # type: ignore[arg-type]  # an enum's number
        resource=resource,
        gpus=[batch_pb2.Gpu(**{name: getattr(gpu, name) for name in _GPU_FIELDS}) for gpu in gpus],
        compression=batch_pb2.COMPRESSION_ZSTD,
    )
    return message.SerializeToString(deterministic=True)


def decode_header(data: bytes, limits: Limits = DEFAULT_LIMITS) -> batch_pb2.SpanBatch:
    """The message with its body still compressed: enough to name, order and drop it.

    Raises:
        BatchError: reasons message_bytes, fields, not_protobuf, format, producer, rows, first_row, body_bytes.
    """
    if len(data) > limits.message_bytes:
        raise BatchError("message_bytes", f"{len(data)} bytes, the limit is {limits.message_bytes}")
    check_field_count(data, _HEADER_FIELDS, "the header")
    message = batch_pb2.SpanBatch()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BatchError("not_protobuf", str(error)) from error
    if message.format != FORMAT:
        raise BatchError("format", f"layout revision {message.format}; this reader knows {FORMAT}")
    if len(message.producer) != 16:
        raise BatchError("producer", f"the producer id has {len(message.producer)} bytes, not 16")
    if message.rows > limits.rows:
        raise BatchError("rows", f"{message.rows} rows declared, the limit is {limits.rows}")
    if message.first_row + message.rows > RANGE_BIT:
        raise BatchError("first_row", f"rows from {message.first_row} on; row numbers end at 2^63")
    if message.body_size > limits.body_bytes:
        raise BatchError("body_bytes", f"{message.body_size} bytes declared, the limit is {limits.body_bytes}")
    return message


def decode_batch(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Batch:
    """What `encode_batch` was given.

    Raises:
        BatchError: anything about the message that is not as it must be.
    """
    message = decode_header(data, limits)
    columns = decode_body(
        _decompress(message),
        message.rows,
        message.first_start_unix_ns,
        limits=limits,
        weight=message.sampling.weight or 1,
    )
    _check_gpus(columns, len(message.gpus))
    try:
        sampling = SamplingMode(message.sampling.mode)
    except ValueError as error:
        raise BatchError("sampling", f"sampling mode {message.sampling.mode} is not known") from error
    clock = message.clock
    return Batch(
        producer=message.producer,
        sequence=message.sequence,
        session=message.session,
        first_row=message.first_row,
        emit_ns=message.emit_unix_ns,
        columns=columns,
        resource=dict(message.resource),
        gpus=tuple(Gpu(**{name: getattr(gpu, name) for name in _GPU_FIELDS}) for gpu in message.gpus),
        clock=ClockAnchor(clock.cupti_ns, clock.unix_ns, clock.uncertainty_ns),
        sampling=sampling,
    )


def _decompress(message: batch_pb2.SpanBatch) -> bytes:
    if message.compression == batch_pb2.COMPRESSION_NONE:
        if len(message.body) != message.body_size:
            raise BatchError("body_size", f"{len(message.body)} bytes of body, {message.body_size} declared")
        return message.body
    if message.compression != batch_pb2.COMPRESSION_ZSTD:
        raise BatchError("compression", f"compression {message.compression} is not known")
    try:
        size = zstandard.frame_content_size(message.body)
        if size != message.body_size:
            raise BatchError("body_size", f"the zstd frame holds {size} bytes, {message.body_size} declared")
        return _decompressor().decompress(message.body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BatchError("zstd", str(error)) from error


def _check_gpus(columns: SpanColumns, gpus: int) -> None:
    used = columns.places["gpu"]
    if len(used) and not (used.min() >= 0 and used.max() <= gpus):
        raise BatchError("index", f"a place names GPU {int(used.max())} of {gpus}")


def _last_end(columns: SpanColumns) -> int:
    if not len(columns):
        return 0
    ends = columns.start_ns + columns.duration_ns
    gpu_work = ~columns.is_range
    return int((ends[gpu_work] if gpu_work.any() else ends).max())


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(
            level=ZSTD_LEVEL, write_content_size=True, write_checksum=True, write_dict_id=False
        )
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor(max_window_size=64 << 20)
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor

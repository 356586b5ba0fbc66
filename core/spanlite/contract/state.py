"""What the streaming jobs keep between batches, as bytes: partial aggregates, and how far a producer has come.

Both are protobuf with a format number, so that a job of a later version reads what an earlier one has kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from spanlite.contract.errors import StateError
from spanlite.v1 import state_pb2

FORMAT = 1

ROW_DTYPES: dict[str, np.dtype[Any]] = {
    "window": np.dtype("<i8"),
    "series_index": np.dtype("<u4"),
    "count": np.dtype("<i8"),
    "spans": np.dtype("<i8"),
    "sum_ns": np.dtype("<i8"),
    "min_ns": np.dtype("<i8"),
    "max_ns": np.dtype("<i8"),
    "warp_ns": np.dtype("<i8"),
    "bytes": np.dtype("<i8"),
    "exemplar_trace": np.dtype("V16"),
    "exemplar_span": np.dtype("<u8"),
    "exemplar_start_ns": np.dtype("<i8"),
    "buckets": np.dtype("<u4"),
}
"""Columns of PartialAggregate with one value a row."""
BUCKET_DTYPES: dict[str, np.dtype[Any]] = {"bucket_index": np.dtype("<i4"), "bucket_count": np.dtype("<i8")}
"""Columns with one value a bucket."""


class Progress(NamedTuple):
    """How far a producer has come.

    Attributes:
        taken: sequences that were taken, as ascending runs (first, last).
        newest_ns: newest start of its GPU work; None before the first.
        closed_before: windows with a lower number are closed; None while none is.
    """

    taken: tuple[tuple[int, int], ...] = ()
    newest_ns: int | None = None
    closed_before: int | None = None


def encode_partial(series: Sequence[bytes], columns: Mapping[str, NDArray[Any]]) -> bytes:
    """A PartialAggregate.

    Args:
        series: encoded Series that `series_index` points at.
        columns: every name of ROW_DTYPES and BUCKET_DTYPES.
    """
    dtypes = {**ROW_DTYPES, **BUCKET_DTYPES}
    values: dict[str, Any] = {
        name: np.ascontiguousarray(columns[name], dtype=dtype).tobytes() for name, dtype in dtypes.items()
    }
    return state_pb2.PartialAggregate(format=FORMAT, series=series, **values).SerializeToString()


def decode_partial(data: bytes) -> tuple[list[bytes], dict[str, NDArray[Any]]]:
    """What `encode_partial` was given; the arrays are read-only.

    Raises:
        StateError: not such bytes, or of a later version.
    """
    message = state_pb2.PartialAggregate()
    _parse(message, data)
    columns = {
        name: _column(getattr(message, name), dtype, name) for name, dtype in (ROW_DTYPES | BUCKET_DTYPES).items()
    }
    rows, buckets = len(columns["window"]), int(columns["buckets"].sum())
    if any(len(columns[name]) != rows for name in ROW_DTYPES) or any(len(columns[n]) != buckets for n in BUCKET_DTYPES):
        raise StateError("a partial aggregate's columns are not equally long; restore from an earlier savepoint")
    if rows and int(columns["series_index"].max()) >= len(message.series):
        raise StateError("a partial aggregate names a series that it does not hold; restore from an earlier savepoint")
    return list(message.series), columns


def encode_progress(progress: Progress) -> bytes:
    """A ProducerProgress."""
    message = state_pb2.ProducerProgress(format=FORMAT, taken=[number for run in progress.taken for number in run])
    if progress.newest_ns is not None:
        message.newest_unix_ns = progress.newest_ns
    if progress.closed_before is not None:
        message.closed_before = progress.closed_before
    return message.SerializeToString()


def decode_progress(data: bytes) -> Progress:
    """What `encode_progress` was given.

    Raises:
        StateError: not such bytes, or of a later version.
    """
    message = state_pb2.ProducerProgress()
    _parse(message, data)
    numbers = list(message.taken)
    firsts, lasts = numbers[::2], numbers[1::2]
    # Sequences between two runs are missing, or it would be one run.
    gaps = all(last < first - 1 for last, first in zip(lasts, firsts[1:], strict=False))
    if len(firsts) != len(lasts) or not gaps or any(first > last for first, last in zip(firsts, lasts, strict=True)):
        raise StateError("a producer's progress has sequences out of order; restore from an earlier savepoint")
    return Progress(
        taken=tuple(zip(firsts, lasts, strict=True)),
        newest_ns=message.newest_unix_ns if message.HasField("newest_unix_ns") else None,
        closed_before=message.closed_before if message.HasField("closed_before") else None,
    )


def _parse(message: state_pb2.PartialAggregate | state_pb2.ProducerProgress, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise StateError(f"the job's state cannot be read ({error}); restore from an earlier savepoint") from error
    if message.format != FORMAT:
        raise StateError(
            f"the job's state has format {message.format}, this version knows {FORMAT}; "
            "restore it with the version that wrote it, or a later one"
        )


def _column(data: bytes, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if len(data) % dtype.itemsize:
        raise StateError(f"column {name} of a partial aggregate ends inside a value; restore from an earlier savepoint")
    return np.frombuffer(data, dtype=dtype)

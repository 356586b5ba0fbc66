"""Point to MetricPoint bytes and back, every limit checked before memory is taken.

A point's series comes first in its bytes and is the same in every point of that series, so both ways keep the series
that they have seen last: what is left to do for a point is its numbers and buckets.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from google.protobuf.message import DecodeError

from spanlite.contract.errors import PointError
from spanlite.contract.histogram import LOWEST_INDEX, SCHEMA, bounds_ns
from spanlite.contract.points import Exemplar, Point, Series
from spanlite.contract.series_codec import (
    DEFAULT_POINT_LIMITS,
    SERIES_TAG,
    PointLimits,
    decode_series,
    encode_series,
    read_series,
    series_field,
    series_key,
)
from spanlite.v1 import point_pb2

__all__ = [
    "DEFAULT_POINT_LIMITS",
    "PointLimits",
    "decode_point",
    "decode_series",
    "encode_point",
    "encode_series",
    "series_key",
]

_MOST = 2**63 - 1


def encode_point(point: Point) -> bytes:
    """One Kafka value; equal points give equal bytes.

    Raises:
        PointError: reason value: a number does not fit its field, such as a sum that has wrapped around.
    """
    try:
        rest = point_pb2.MetricPoint(
            window_start_unix_ns=point.window_start_ns,
            window_end_unix_ns=point.window_end_ns,
            cumulative=point.cumulative,
            count=point.count,
            spans=point.spans,
            sum_ns=point.sum_ns,
            min_ns=point.min_ns,
            max_ns=point.max_ns,
            warp_ns=point.warp_ns,
            bytes=point.bytes,
            schema=SCHEMA,
            bucket_index=point.bucket_index.tolist(),
            bucket_count=point.bucket_count.tolist(),
            exemplar=_exemplar_message(point.exemplar) if point.exemplar else None,
            epoch=point.epoch,
        )
        return series_field(encode_series(point.series)) + rest.SerializeToString(deterministic=True)
    except ValueError as error:
        raise PointError(
            "value", f"a point of kernel {point.series.kernel[:80]!r} cannot be encoded: {error}"
        ) from error


def decode_point(data: bytes, limits: PointLimits = DEFAULT_POINT_LIMITS) -> Point:
    """What `encode_point` was given.

    Raises:
        PointError: reasons message_bytes, not_protobuf, text_bytes, kind, schema, window, value, buckets, bucket_index,
            bucket_count, count, exemplar.
    """
    if len(data) > limits.message_bytes:
        raise PointError("message_bytes", f"{len(data)} bytes, the limit is {limits.message_bytes}")
    message, series = _parse(data, limits)
    if message.schema != SCHEMA:
        raise PointError("schema", f"histogram schema {message.schema}; this reader knows {SCHEMA}")
    start_ns, end_ns = message.window_start_unix_ns, message.window_end_unix_ns
    if start_ns > end_ns:
        raise PointError("window", f"the window begins {start_ns - end_ns} ns after its end")
    index, bucket_count, count = _buckets(message, limits)
    spans, min_ns, max_ns = message.spans, message.min_ns, message.max_ns
    if spans > count:
        raise PointError("count", f"{spans} spans stand for {count} executions")
    if min_ns > max_ns:
        raise PointError("value", f"the shortest execution took {min_ns} ns, the longest {max_ns}")
    sum_ns, warp_ns, moved = message.sum_ns, message.warp_ns, message.bytes
    most = max(count, sum_ns, max_ns, warp_ns, moved)
    if most > _MOST:
        raise PointError("value", f"{most} is more than an int64 holds")
    return Point(
        series,
        start_ns,
        end_ns,
        count,
        spans,
        sum_ns,
        min_ns,
        max_ns,
        warp_ns,
        moved,
        np.fromiter(index, np.int32, len(index)),
        np.fromiter(bucket_count, np.int64, len(index)),
        _exemplar(message.exemplar) if message.HasField("exemplar") else None,
        message.cumulative,
        message.epoch,
    )


def _parse(data: bytes, limits: PointLimits) -> tuple[point_pb2.MetricPoint, Series]:
    """The message and its series, which is looked up where it comes first and once, as `encode_point` writes it."""
    series, rest = _split(data)
    try:
        message = point_pb2.MetricPoint.FromString(rest)
        if series and not message.HasField("series"):
            return message, decode_series(series, limits)
        message = point_pb2.MetricPoint.FromString(data)
    except DecodeError as error:
        raise PointError("not_protobuf", str(error)) from error
    return message, read_series(message.series, limits)


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Bytes of a series of 1 to 16,383 bytes at the front, and what follows; none and all where there is no such."""
    if len(data) < 3 or data[0] != SERIES_TAG:
        return b"", data
    size, start = data[1], 2
    if size > 0x7F:
        if data[2] > 0x7F:
            return b"", data
        size, start = size & 0x7F | data[2] << 7, 3
    end = start + size
    return (data[start:end], data[end:]) if end <= len(data) else (b"", data)


def _buckets(message: point_pb2.MetricPoint, limits: PointLimits) -> tuple[list[int], list[int], int]:
    """Indexes, ascending; counts, none 0; and what these add up to, which is the point's count and fits an int64."""
    index, count = message.bucket_index, message.bucket_count
    if len(index) > limits.buckets or len(count) != len(index):
        raise PointError("buckets", f"{len(index)} indexes and {len(count)} counts, the limit is {limits.buckets}")
    indexes, counts = index[:], count[:]
    total = sum(counts)
    if total != message.count:
        raise PointError("count", f"the buckets hold {total} executions of {message.count}")
    if indexes and (indexes[0] < LOWEST_INDEX or indexes[-1] > _highest_index()):
        raise PointError("bucket_index", f"buckets {indexes[0]} to {indexes[-1]} hold no int64 of nanoseconds")
    if indexes != sorted(set(indexes)):
        raise PointError("bucket_index", "the bucket indexes do not ascend")
    if 0 in counts:
        raise PointError("bucket_count", f"bucket {indexes[counts.index(0)]} is empty")
    return indexes, counts, total


@lru_cache(maxsize=1)
def _highest_index() -> int:
    return LOWEST_INDEX + len(bounds_ns())


def _exemplar(message: point_pb2.Exemplar) -> Exemplar:
    if len(message.trace_id) not in (0, 16):
        raise PointError("exemplar", f"its trace id has {len(message.trace_id)} bytes, not 16")
    if message.duration_ns > _MOST:
        raise PointError("exemplar", f"its duration of {message.duration_ns} ns is more than an int64 holds")
    return Exemplar(message.trace_id, message.span_id, message.duration_ns, message.start_unix_ns)


def _exemplar_message(exemplar: Exemplar) -> point_pb2.Exemplar:
    return point_pb2.Exemplar(
        trace_id=exemplar.trace_id,
        span_id=exemplar.span_id,
        duration_ns=exemplar.duration_ns,
        start_unix_ns=exemplar.start_ns,
    )

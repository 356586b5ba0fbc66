"""Series to bytes and back, and the key under which a topic keeps a series' points.

A series is the same in every point of it, so those seen last are kept, both ways.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.message import DecodeError

from spanlite.contract.columns import Kind
from spanlite.contract.errors import PointError
from spanlite.contract.points import Launch, Series
from spanlite.v1 import point_pb2, span_pb2

KEY_BYTES = 16
SERIES_TAG = 0x0A
"""Field 1 of a point, length-delimited."""
KEPT_SERIES = 32_768
"""Series that either way keeps."""
_KEPT_BYTES = 2048
"""Longest encoded series that is kept: with the number above, what hostile ones can take is bounded."""
_NUMBERS = struct.Struct("<20I")
_LENGTHS = struct.Struct("<9I")
_SHAPES = tuple(f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz")
_REST = Launch._fields[3:-1]
_KINDS = frozenset(int(kind) for kind in Kind)


@dataclass(frozen=True, slots=True)
class PointLimits:
    """What a reader accepts; a point beyond them is rejected with the limit's name as the reason.

    Attributes:
        message_bytes: of the whole message, as the topic of points has it. Parsing takes at most ten times that.
        buckets: of the histogram.
        text_bytes: of one text in UTF-8.
    """

    message_bytes: int = 2 << 20
    buckets: int = 4096
    text_bytes: int = 64 << 10


DEFAULT_POINT_LIMITS = PointLimits()


@lru_cache(maxsize=KEPT_SERIES)
def series_key(series: Series) -> bytes:
    """16 bytes that name a series, the same in every process, version and language: the key in a compacted topic.

    BLAKE2b-128, personalised "spanlite.series", of: kind and the launch's numbers in the order of Launch, 20 uint32;
    the lengths of the nine texts in the order of Series, 9 uint32; the texts in UTF-8; all little-endian. What a later
    version adds to a series joins the end only where it is not empty, so that keys stay as they are.
    """
    launch = series.launch
    numbers = _NUMBERS.pack(series.kind, *launch.grid, *launch.block, *launch.cluster, *launch[3:])
    texts = [text.encode("utf-8", "surrogatepass") for text in _texts(series)]
    data = b"".join([numbers, _LENGTHS.pack(*map(len, texts)), *texts])
    return hashlib.blake2b(data, digest_size=KEY_BYTES, person=b"spanlite.series").digest()


@lru_cache(maxsize=KEPT_SERIES)
def encode_series(series: Series) -> bytes:
    """A proto Series; equal series give equal bytes.

    Raises:
        ValueError: a number does not fit its field.
    """
    launch = series.launch
    config = span_pb2.LaunchConfig(
        **dict(zip(_SHAPES, (*launch.grid, *launch.block, *launch.cluster), strict=True)),
        **dict(zip(_REST, launch[3:-1], strict=True)),
        limiter=_signed(launch.limiter),  # type: ignore[arg-type]  # an enum's number
    )
    message = point_pb2.Series(
        gpu_uuid=series.gpu_uuid,
        kind=series.kind,  # type: ignore[arg-type]  # likewise
        kernel=series.kernel,
        name=series.name,
        config=config if config.ByteSize() else None,
        stage=series.stage,
        workload=series.workload,
        namespace=series.namespace,
        pod=series.pod,
        container=series.container,
        host=series.host,
    )
    return message.SerializeToString(deterministic=True)


def series_field(series: bytes) -> bytes:
    """An encoded series as field 1 of a point, which is how each of its points begins."""
    size = len(series)
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([SERIES_TAG, *length, size]) + series


def decode_series(data: bytes, limits: PointLimits = DEFAULT_POINT_LIMITS) -> Series:
    """What `encode_series` was given.

    Raises:
        PointError: reasons message_bytes, not_protobuf, text_bytes, kind.
    """
    if len(data) > limits.message_bytes:
        raise PointError("message_bytes", f"{len(data)} bytes of series, the limit is {limits.message_bytes}")
    return _kept_series(data, limits) if len(data) <= _KEPT_BYTES else _decode_series(data, limits)


def _triple(numbers: list[int], at: int) -> tuple[int, int, int]:
    return numbers[at], numbers[at + 1], numbers[at + 2]


def _texts(series: Series) -> tuple[str, ...]:
    return (series.gpu_uuid, *series[2:4], *series[5:])


def _decode_series(data: bytes, limits: PointLimits) -> Series:
    try:
        message = point_pb2.Series.FromString(data)
    except DecodeError as error:
        raise PointError("not_protobuf", str(error)) from error
    return read_series(message, limits)


@lru_cache(maxsize=KEPT_SERIES)
def _kept_series(data: bytes, limits: PointLimits) -> Series:
    return _decode_series(data, limits)


def read_series(message: point_pb2.Series, limits: PointLimits) -> Series:
    """A parsed series.

    Raises:
        PointError: reasons text_bytes, kind.
    """
    config = message.config
    shape = [getattr(config, name) for name in _SHAPES]
    rest = [*(getattr(config, name) for name in _REST), config.limiter & 0xFFFFFFFF]
    launch = Launch(_triple(shape, 0), _triple(shape, 3), _triple(shape, 6), *rest)
    if message.kind not in _KINDS:
        raise PointError("kind", f"kind {message.kind} of a series is not known")
    series = Series(
        message.gpu_uuid,
        int(message.kind),
        message.kernel,
        message.name,
        launch,
        message.stage,
        message.workload,
        message.namespace,
        message.pod,
        message.container,
        message.host,
    )
    longest = max(len(text.encode()) for text in _texts(series))
    if longest > limits.text_bytes:
        raise PointError("text_bytes", f"a text of the series has {longest} bytes, the limit is {limits.text_bytes}")
    return series


def _signed(number: int) -> int:
    """A uint32 as the int32 with the same bits, which is what an enum's field takes."""
    return number - 2**32 if number >= 2**31 else number

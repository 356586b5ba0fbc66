"""The collector's protocol on the unix socket: a fixed header, then bytes that cost the traced process nothing to make.

Every frame is a 16-byte little-endian header and its payload:

    magic    4 bytes  "SPLF"
    type     u8       Frame
    version  u8       1
    flags    u16      0
    length   u32      bytes of payload
    sequence u32      0, 1, 2, … of this connection: a gap is a loss

Payloads: HELLO, STATS, BYE and KERNEL_SOURCE are `key=value` lines in UTF-8, each ended by a line feed. NAMES is a run
of (u64 pointer, u32 length, bytes). BUFFER is one CUPTI activity buffer as it came. RANGES is a run of 32-byte boundary
stamps (STAMP). CLOCK is one reading of both clocks (i64 CUPTI ns, i64 Unix ns, u32 uncertainty ns). OBSERVATIONS is a
run of 32-byte records of custom metrics (OBSERVATION).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.errors import FrameError

MAGIC = b"SPLF"
VERSION = 1
HEADER = struct.Struct("<4sBBHII")
DONE = b"\x06"
"""The agent's only answer, to a BYE: all that came before it is worked off."""
MOST_BYTES = 64 << 20
"""Longest payload that is accepted; CUPTI buffers are 8 MiB at most in practice."""
_NAME = struct.Struct("<QI")
_ESCAPES = {"\\": r"\\", "\n": r"\n"}
_UNESCAPED = {written: char for char, written in _ESCAPES.items()}
_ESCAPED = re.compile(r"[\\\n]")
_ESCAPE = re.compile(r"\\.?")
_CLOCK = struct.Struct("<qqI")
STAMP = np.dtype([("thread", "<u8"), ("name", "<u8"), ("time_ns", "<i8"), ("correlation", "<u4"), ("delta", "<i4")])
"""A range boundary: thread, name pointer (0 at a pop), time, last correlation id before it, +1 push or -1 pop."""

OBSERVATION = np.dtype([("name", "<u8"), ("time_ns", "<i8"), ("value", "<i8"), ("kind", "<u4"), ("device", "<u4")])
"""An observation: its series' number, Unix time, value (of gauges a float64's bits), Kind, 0 or 1 + device id."""


class Frame(IntEnum):
    """Type of a frame."""

    HELLO = 1
    NAMES = 2
    BUFFER = 3
    RANGES = 4
    CLOCK = 5
    STATS = 6
    BYE = 7
    OBSERVATIONS = 8
    WINDOWS = 9
    KERNEL_SOURCE = 10


class Header(NamedTuple):
    """A checked header."""

    type: Frame
    length: int
    sequence: int


class Clock(NamedTuple):
    """One reading of both clocks."""

    cupti_ns: int
    unix_ns: int
    uncertainty_ns: int


def pack_frame(kind: Frame, payload: bytes | memoryview, sequence: int) -> bytes:
    """Header and payload."""
    return HEADER.pack(MAGIC, kind, VERSION, 0, len(payload), sequence & 0xFFFFFFFF) + payload


def unpack_header(data: bytes) -> Header:
    """The header in 16 bytes.

    Raises:
        FrameError: reasons magic, version, type, length.
    """
    magic, kind, version, _flags, length, sequence = HEADER.unpack(data)
    if magic != MAGIC:
        raise FrameError("magic", f"a frame starts with {magic!r}, not {MAGIC!r}: the peer speaks another protocol")
    if version != VERSION:
        raise FrameError("version", f"protocol version {version}; this agent speaks {VERSION}")
    if kind not in Frame.__members__.values():
        raise FrameError("type", f"frame type {kind} is not known")
    if length > MOST_BYTES:
        raise FrameError("length", f"a frame of {length} bytes; the limit is {MOST_BYTES}")
    return Header(Frame(kind), length, sequence)


def pack_text(values: Mapping[str, str]) -> bytes:
    """`key=value` lines; in values a backslash is written `\\\\`, a line feed `\\n`."""
    lines = (f"{key}={_ESCAPED.sub(lambda found: _ESCAPES[found[0]], value)}\n" for key, value in values.items())
    return "".join(lines).encode("utf-8", "replace")


def unpack_text(payload: bytes) -> dict[str, str]:
    """The values of `pack_text`.

    Raises:
        FrameError: reason text.
    """
    values: dict[str, str] = {}
    try:
        *lines, rest = payload.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise FrameError("text", f"the payload is no UTF-8 ({error})") from error
    if rest:
        raise FrameError("text", f"the last line does not end: {rest[:80]!r}")
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals:
            raise FrameError("text", f"a line without '=': {line[:80]!r}")
        values[key] = _ESCAPE.sub(_unescaped, value)
    return values


def _unescaped(found: re.Match[str]) -> str:
    if found[0] not in _UNESCAPED:
        raise FrameError("text", f"{found[0]!r} in a value: a backslash stands before n or another backslash only")
    return _UNESCAPED[found[0]]


def pack_names(names: Mapping[int, str]) -> bytes:
    """Pointer and text of each name."""
    parts: list[bytes] = []
    for pointer, name in names.items():
        data = name.encode("utf-8", "replace")
        parts += (_NAME.pack(pointer, len(data)), data)
    return b"".join(parts)


def unpack_names(payload: bytes) -> Iterator[tuple[int, str]]:
    """Pointer and text of each name; bytes that are no UTF-8 are replaced.

    Raises:
        FrameError: reason names.
    """
    at = 0
    while at < len(payload):
        if at + _NAME.size > len(payload):
            raise FrameError("names", f"the payload ends inside an entry at byte {at}")
        pointer, length = _NAME.unpack_from(payload, at)
        at += _NAME.size
        if at + length > len(payload):
            raise FrameError("names", f"a name of {length} bytes at byte {at} of {len(payload)}")
        yield pointer, payload[at : at + length].decode("utf-8", "replace")
        at += length


def pack_clock(clock: Clock) -> bytes:
    """One reading of both clocks."""
    return _CLOCK.pack(*clock)


def unpack_clock(payload: bytes) -> Clock:
    """The reading of `pack_clock`.

    Raises:
        FrameError: reason clock.
    """
    if len(payload) != _CLOCK.size:
        raise FrameError("clock", f"a clock frame has {len(payload)} bytes, not {_CLOCK.size}")
    return Clock(*_CLOCK.unpack(payload))


def unpack_stamps(payload: bytes) -> NDArray[np.void]:
    """Boundary stamps of dtype STAMP.

    Raises:
        FrameError: reason ranges.
    """
    if len(payload) % STAMP.itemsize:
        raise FrameError("ranges", f"{len(payload)} bytes are not a whole number of {STAMP.itemsize}-byte stamps")
    return np.frombuffer(payload, dtype=STAMP)

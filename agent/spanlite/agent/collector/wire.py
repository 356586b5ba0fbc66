"""Frames as docs/frames.md has them, written with the standard library alone; the agent's side is agent/frames.py."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

HELLO, NAMES, BUFFER, RANGES, CLOCK, STATS, BYE = 1, 2, 3, 4, 5, 6, 7
KERNEL_SOURCE = 10
_HEADER = struct.Struct("<4sBBHII")
_NAME = struct.Struct("<QI")
_CLOCK = struct.Struct("<qqI")
STAMP = struct.Struct("<QQqIi")


def header(kind: int, length: int, sequence: int) -> bytes:
    """The 16 bytes before a payload."""
    return _HEADER.pack(b"SPLF", kind, 1, 0, length, sequence & 0xFFFFFFFF)


def text(values: Mapping[str, str]) -> bytes:
    """`key=value` lines; a key has neither `=` nor a line feed."""
    lines = (f"{_key(key)}={_value(value)}\n" for key, value in values.items())
    return "".join(lines).encode("utf-8", "replace")


def _key(key: str) -> str:
    return key.replace("=", "?").replace("\n", "?")


def _value(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def names(entries: Iterable[tuple[int, bytes]]) -> bytes:
    """Pointer and text of each name."""
    return b"".join(_NAME.pack(pointer, len(name)) + name for pointer, name in entries)


def clock(cupti_ns: int, unix_ns: int, uncertainty_ns: int) -> bytes:
    """One reading of both clocks."""
    return _CLOCK.pack(cupti_ns, unix_ns, uncertainty_ns)

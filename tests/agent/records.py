"""Activity records made and read one by one with `struct`: the tests' own idea of CUPTI's bytes."""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parents[1] / "data" / "h200"
RECORDINGS = (
    "serve-cupti130001",
    "serve-cupti130500",
    "graph-cupti130500",
    "streams-cupti130500",
    "stages-cupti130401",
)
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, MARKER, EXTERNAL = 1, 2, 4, 5, 10, 12, 39
SIZES = {1: 112, 2: 104, 4: 40, 5: 40, 10: 248, 12: 56, 38: 56, 39: 24}
"""Bytes by kind from CUPTI 13.4 on."""
OLD_SIZES = {**SIZES, 1: 96, 2: 88, 10: 216}
PROCESS, THREAD = 77, 1

# Offsets written down from cupti_activity.h.
_KERNEL = struct.Struct("<4x2xH8xQQ8xIIIiiiiiiiiI4xI8xQ24xB3xIQ4xI8xIiIII")
_COPY = struct.Struct("<4xB3xQQQIIII16xQIIi")  # memcpy: kind, bytes, start, end, device, context, stream, correlation
_SET = struct.Struct("<8xQQQIIII4x12xQIIi")
_MARKER = struct.Struct("<iiQIiII8xqq")
_API = struct.Struct("<iIQQIIII")
_EXTERNAL = struct.Struct("<iiQII")


class Kernel(NamedTuple):
    """The fields of a kernel record that reach a span, in the order of the record."""

    registers: int
    start: int
    end: int
    device: int
    context: int
    stream: int
    grid_x: int
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int
    static_shared: int
    dynamic_shared: int
    local_per_thread: int
    correlation: int
    name: int
    launch_type: int
    shared_executed: int
    graph_node: int
    graph: int
    channel: int
    channel_type: int
    cluster_x: int
    cluster_y: int
    cluster_z: int


@cache
def load(name: str) -> tuple[bytes, dict[str, Any]]:
    """Bytes and description of a recording."""
    with lzma.open(DATA / f"{name}.bin.xz") as file:
        return file.read(), json.loads((DATA / f"{name}.json").read_text())


def walk(name: str) -> Iterator[tuple[int, int]]:
    """(kind, offset) of each record of a recording, one after the other."""
    data, about = load(name)
    sizes = SIZES if about["cupti_version"] >= 130400 else OLD_SIZES
    at = 0
    while at < len(data):
        kind = struct.unpack_from("<i", data, at)[0]
        yield kind, at
        at += sizes[kind]


@cache
def kernels(name: str) -> list[Kernel]:
    """Every kernel of a recording."""
    data, _ = load(name)
    return [Kernel(*_KERNEL.unpack_from(data, at)) for kind, at in walk(name) if kind == KERNEL]


def copies(name: str) -> list[tuple[str, int, int, int, int, int]]:
    """(name, start, end, bytes, stream, correlation) of every copy and memory set of a recording."""
    data, _ = load(name)
    kinds = {1: "memcpy_host_to_device", 2: "memcpy_device_to_host", 8: "memcpy_device_to_device"}
    found = []
    for kind, at in walk(name):
        if kind == MEMCPY:
            copy, size, start, end, _, _, stream, correlation, *_ = _COPY.unpack_from(data, at)
            found.append((kinds[copy], start, end, size, stream, correlation))
        elif kind == MEMSET:
            size, start, end, _, _, stream, correlation, *_ = _SET.unpack_from(data, at)
            found.append(("memset", start, end, size, stream, correlation))
    return found


def external_ids(name: str) -> dict[int, int]:
    """The external id of each correlation id."""
    data, _ = load(name)
    rows = (_EXTERNAL.unpack_from(data, at) for kind, at in walk(name) if kind == EXTERNAL)
    return {correlation: external for _, _, external, correlation, _ in rows}


@cache
def markers(name: str) -> list[tuple[int, int, int, int]]:
    """(time, flags, id, name) of every marker of a recording."""
    data, _ = load(name)
    rows = (_MARKER.unpack_from(data, at) for kind, at in walk(name) if kind == MARKER)
    return [(time, flags, number, name) for _, flags, time, number, _, _, _, name, _ in rows]


@cache
def calls(name: str) -> dict[int, int]:
    """Start of each recorded API call by its correlation id."""
    data, _ = load(name)
    rows = (_API.unpack_from(data, at) for kind, at in walk(name) if kind in (DRIVER, RUNTIME))
    return {correlation: start for _, _, start, _, _, _, correlation, _ in rows}


@cache
def nested(name: str) -> list[tuple[int, str]]:
    """(range number, range name) of the innermost range of each kernel, by replaying calls and markers with a stack.

    Range numbers count openings from 0; (-1, "") is outside all ranges.
    """
    called, names = calls(name), load(name)[1]["names"]
    events = [(time, flags, text) for time, flags, _, text in markers(name)]
    events += [(called[kernel.correlation], 0, row) for row, kernel in enumerate(kernels(name))]
    stack, opened = [(-1, "")], 0
    found = [(-1, "")] * len(kernels(name))
    for _, flags, what in sorted(events):
        if flags == 2:
            stack.append((opened, names[str(what)]))
            opened += 1
        elif flags == 4:
            stack.pop()
        else:
            found[what] = stack[-1]
    return found


def kernel(start: int, end: int, correlation: int, *, stream: int = 7, device: int = 0, name: int = 0x10) -> bytes:
    """A kernel record of CUPTI 13.5: one block of 32 threads with 16 registers."""
    values = Kernel(16, start, end, device, 1, stream, 1, 1, 1, 32, 1, 1, 0, 0, 0, correlation, name, 0, 0, *[0] * 7)
    data = bytearray(_KERNEL.pack(*values).ljust(SIZES[KERNEL], b"\0"))
    struct.pack_into("<i", data, 0, KERNEL)
    return bytes(data)


def call(start: int, correlation: int, *, thread: int = THREAD) -> bytes:
    """A record of a runtime call."""
    return _API.pack(RUNTIME, 211, start, start + 1, PROCESS, thread, correlation, 0)


def external(correlation: int, external_id: int) -> bytes:
    """A record of an external-correlation id."""
    return _EXTERNAL.pack(EXTERNAL, 3, external_id, correlation, 0)


def opening(time: int, number: int, name: int, *, thread: int = THREAD) -> bytes:
    """The marker record of the start of a range."""
    return _MARKER.pack(MARKER, 2, time, number, 2, PROCESS, thread, name, 0)


def closing(time: int, number: int, *, thread: int = THREAD) -> bytes:
    """The marker record of the end of a range."""
    return _MARKER.pack(MARKER, 4, time, number, 2, PROCESS, thread, 0, 0)

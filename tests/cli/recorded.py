"""Recordings read once more without spanlite: record by record, and what the commands must make of them.

Offsets are those of cupti_activity.h; they are the same in all versions recorded, whose structures differ behind them.
"""

from __future__ import annotations

import bisect
import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

DATA = Path(__file__).parents[1] / "data"
RECORDINGS = (
    "serve-cupti130001",
    "serve-cupti130500",
    "graph-cupti130500",
    "streams-cupti130500",
    "stages-cupti130401",
)
SLICE = DATA / "serve_slice.parquet"
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, MARKER, SYNCHRONIZATION = 1, 2, 4, 5, 10, 12, 38
COPY_NAMES = {1: "memcpy_host_to_device", 2: "memcpy_device_to_host", 8: "memcpy_device_to_device"}
UNKNOWN = "unknown"
SHAPES = tuple(f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz")
CONFIG = (
    *SHAPES,
    "registers_per_thread",
    "static_shared_memory",
    "dynamic_shared_memory",
    "shared_memory_executed",
    "local_memory_per_thread",
    "launch_type",
)

_KERNEL = {
    "registers_per_thread": ("<u2", 6),
    "start": ("<u8", 16),
    "end": ("<u8", 24),
    "stream_id": ("<u4", 48),
    **{name: ("<u4", 52 + 4 * at) for at, name in enumerate(SHAPES[:6])},
    "static_shared_memory": ("<u4", 76),
    "dynamic_shared_memory": ("<u4", 80),
    "local_memory_per_thread": ("<u4", 84),
    "correlation_id": ("<u4", 92),
    "name": ("<u8", 104),
    "queued": ("<u8", 120),
    "launch_type": ("u1", 136),
    "shared_memory_executed": ("<u4", 140),
    "graph_node_id": ("<u8", 144),
    "graph_id": ("<u4", 156),
    **{name: ("<u4", 176 + 4 * at) for at, name in enumerate(SHAPES[6:])},
}
_MOVE = {
    "copy_kind": ("u1", 4),
    "bytes": ("<u8", 8),
    "start": ("<u8", 16),
    "end": ("<u8", 24),
    "stream_id": ("<u4", 40),
    "correlation_id": ("<u4", 44),
    "graph_node_id": ("<u8", 64),
    "graph_id": ("<u4", 72),
}
_API = {"start": ("<u8", 8), "correlation_id": ("<u4", 32)}
_FIELDS: dict[int, dict[str, tuple[str, int]]] = {
    KERNEL: _KERNEL,
    MEMCPY: _MOVE,
    MEMSET: _MOVE,
    DRIVER: _API,
    RUNTIME: _API,
    MARKER: {
        "flags": ("<u4", 4),
        "time": ("<u8", 8),
        "id": ("<u4", 16),
        "object": ("<u4", 20),
        "thread": ("<u8", 24),
        "name": ("<u8", 40),
    },
    SYNCHRONIZATION: {"start": ("<u8", 8), "correlation_id": ("<u4", 24)},
}


class Work(NamedTuple):
    """One execution; `launch` holds the values of CONFIG, `place` correlation, stream, graph and node."""

    kind: str
    name: str
    start_ns: int
    duration_ns: int
    stage: str = ""
    launch: tuple[int, ...] = (0,) * len(CONFIG)
    copy_kind: int = 0
    bytes: int = 0
    place: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class Raw:
    """A recording: the bytes, its description, and the records of each kind as structured arrays."""

    data: bytes
    about: dict[str, Any]
    records: Mapping[int, NDArray[np.void]]
    offsets: Mapping[int, list[int]]

    @property
    def spans(self) -> int:
        """Executions and ranges."""
        ended = self.records[MARKER]["flags"] & 4 != 0
        return sum(len(self.records[kind]) for kind in (KERNEL, MEMCPY, MEMSET)) + int(ended.sum())


@cache
def raw(name: str) -> Raw:
    """A recording of tests/data/h200, walked record by record."""
    about = json.loads((DATA / "h200" / f"{name}.json").read_text())
    data = lzma.decompress((DATA / "h200" / f"{name}.bin.xz").read_bytes())
    sizes = {int(kind): size for kind, (size,) in about["sizes"].items()}
    offsets: dict[int, list[int]] = {kind: [] for kind in {*sizes, *_FIELDS}}
    at = 0
    while at < len(data):
        kind = int.from_bytes(data[at : at + 4], "little")
        offsets[kind].append(at)
        at += sizes[kind]
    return Raw(data, about, {kind: _records(data, kind, sizes, offsets[kind]) for kind in _FIELDS}, offsets)


def _records(data: bytes, kind: int, sizes: Mapping[int, int], offsets: list[int]) -> NDArray[np.void]:
    names, fields = list(_FIELDS[kind]), list(_FIELDS[kind].values())
    size = sizes.get(kind, 256)
    forms, places = [form for form, _ in fields], [offset for _, offset in fields]
    dtype = np.dtype({"names": names, "formats": forms, "offsets": places, "itemsize": size})
    records: NDArray[np.void] = np.frombuffer(b"".join(data[at : at + size] for at in offsets), dtype=dtype)
    return records


@dataclass(frozen=True)
class Timeline:
    """What the one thread that marks ranges was in: boundaries in order, and the stage after each."""

    times: list[int]
    stages: list[str]
    ranges: list[tuple[str, int, int]]

    def between(self, low: int, high: int) -> str:
        """The stage if no boundary lies in (low, high], else UNKNOWN."""
        first, last = bisect.bisect_right(self.times, low), bisect.bisect_right(self.times, high)
        return self.stages[first] if first == last else UNKNOWN


def timeline(recording: Raw) -> Timeline:
    """Replays the markers as a stack; the recordings mark on one thread."""
    names = recording.about["names"]
    markers = recording.records[MARKER]
    assert len(set(markers["thread"].tolist())) <= 1
    stack: list[tuple[int, str, int]] = []
    times: list[int] = []
    stages, ranges = [""], []
    ordered = sorted(zip(*(markers[n].tolist() for n in ("time", "id", "flags", "name")), strict=True))
    for time, number, flags, name in ordered:
        if flags & 2:
            stack.append((number, names[str(name)], time))
        else:
            opened, text, began = stack.pop()
            assert opened == number
            ranges.append((text, began, time - began))
        times.append(time)
        stages.append(stack[-1][1] if stack else "")
    return Timeline(times, stages, ranges)


def stages_of(recording: Raw, correlation: list[int], start: list[int]) -> list[str]:
    """The stage of each launch, as far as recorded calls bound the moment of its launch.

    A launch happened at its own call, or after the call with the next smaller id, before the one with the next larger
    id, and before the GPU began it or any later launch.
    """
    line = timeline(recording)
    calls: dict[int, int] = {}
    kernels = recording.records[KERNEL]
    queued = kernels[kernels["queued"] != 0]
    for ids, times in (
        (queued["correlation_id"], queued["queued"]),
        *((recording.records[k]["correlation_id"], recording.records[k]["start"]) for k in (38, 4, 5)),
    ):
        calls.update(zip(ids.tolist(), times.tolist(), strict=True))
    known = sorted(calls)
    earliest: dict[int, int] = {}
    soonest = 1 << 63
    for number, began in sorted(zip(correlation, start, strict=True), reverse=True):
        soonest = min(soonest, began)
        earliest[number] = soonest
    found = []
    for number in correlation:
        if number in calls:
            found.append(line.between(calls[number], calls[number]))
            continue
        at = bisect.bisect_left(known, number)
        low = calls[known[at - 1]] if at else -1
        high = min(calls[known[at]] if at < len(known) else 1 << 63, earliest[number])
        found.append(line.between(low, high))
    return found


@cache
def works(name: str) -> list[Work]:
    """Every kernel, copy and memory set of a recording."""
    recording = raw(name)
    made: list[Work] = []
    for kind, word in ((KERNEL, "kernel"), (MEMCPY, "memcpy"), (MEMSET, "memset")):
        records = recording.records[kind]
        made += [_work(record, word, recording.about["names"]) for record in records]
    stages = stages_of(recording, [work.place[0] for work in made], [work.start_ns for work in made])
    return [work._replace(stage=stage) for work, stage in zip(made, stages, strict=True)]


def _work(record: np.void, kind: str, names: Mapping[str, str]) -> Work:
    value = dict(zip(record.dtype.names or (), record.tolist(), strict=True))
    copy_kind = value["copy_kind"] if kind == "memcpy" else 0
    return Work(
        kind=kind,
        name=names[str(value["name"])] if kind == "kernel" else COPY_NAMES.get(copy_kind, kind),
        start_ns=value["start"],
        duration_ns=value["end"] - value["start"],
        launch=tuple(value.get(name, 0) for name in CONFIG),
        copy_kind=copy_kind,
        bytes=value.get("bytes", 0),
        place=(value["correlation_id"], value["stream_id"], value["graph_id"], value["graph_node_id"]),
    )


@cache
def table_works() -> list[Work]:
    """The rows of the kernel table."""
    table = pq.read_table(SLICE).to_pydict()
    rows = len(table["start_ns"])
    columns = [table.get(name, [0] * rows) for name in CONFIG]
    return [
        Work("kernel", kernel, start, duration, launch=tuple(column[row] for column in columns))
        for row, (kernel, start, duration) in enumerate(
            zip(table["kernel"], table["start_ns"], table["duration_ns"], strict=True)
        )
    ]

"""Recorded buffers as another process would be given them: names at addresses of its own, times of today."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spanlite.runtime.clock import SystemClock
from tests.agent.records import DRIVER, KERNEL, MARKER, MEMCPY, MEMSET, OLD_SIZES, RUNTIME, SIZES, load, walk

_NAME = 104
_TIMES = {KERNEL: (16, 24), MEMCPY: (16, 24), MEMSET: (16, 24), DRIVER: (8, 16), RUNTIME: (8, 16), MARKER: (8,)}


@dataclass(frozen=True)
class Fired:
    """What is fired, and what must come of it.

    Attributes:
        records: the bytes.
        arena: names, each ended by a zero, from address `at` on.
        names: of kernels, by address.
        spans: kernels, copies and memory sets among the records.
        version: of the CUPTI that lays records out like this.
    """

    records: bytes
    arena: bytes
    at: int
    names: dict[int, str]
    spans: int
    version: int

    def put(self, folder: Path) -> tuple[str, str]:
        """Writes both into files.

        Returns:
            The commands that map the names and fire the records once.
        """
        (folder / "names").write_bytes(self.arena)
        (folder / "records").write_bytes(self.records)
        return f"arena {self.at} {folder / 'names'}", f"fire {folder / 'records'}"


def spans_in(records: bytes, version: int) -> int:
    """Kernels, copies and memory sets among whole records."""
    sizes = SIZES if version >= 130400 else OLD_SIZES
    at, spans = 0, 0
    while at < len(records):
        spans += records[at] in (KERNEL, MEMCPY, MEMSET)
        at += sizes[records[at]]
    return spans


@cache
def fired(name: str, at: int) -> Fired:
    """A recording, its newest record an hour old."""
    data, about = load(name)
    records, arena = bytearray(data), bytearray()
    moved: dict[int, int] = {}
    newest = max(struct.unpack_from("<Q", data, offset + 24)[0] for kind, offset in walk(name) if kind == KERNEL)
    later = SystemClock().unix_ns() - 3600 * 10**9 - newest
    spans = 0
    for kind, offset in walk(name):
        for place in _TIMES.get(kind, ()):
            (time,) = struct.unpack_from("<Q", records, offset + place)
            struct.pack_into("<Q", records, offset + place, time + later)
        spans += kind in (KERNEL, MEMCPY, MEMSET)
        if kind == KERNEL:
            (pointer,) = struct.unpack_from("<Q", records, offset + _NAME)
            if pointer not in moved:
                moved[pointer] = at + len(arena)
                arena += about["names"][str(pointer)].encode() + b"\0"
            struct.pack_into("<Q", records, offset + _NAME, moved[pointer])
    names = {address: about["names"][str(pointer)] for pointer, address in moved.items()}
    return Fired(bytes(records), bytes(arena), at, names, spans, about["cupti_version"])

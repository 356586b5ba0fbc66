"""Kernels made up for firing, and what of them arrived."""

from __future__ import annotations

from pathlib import Path

from spanlite.runtime.clock import SystemClock
from tests.agent.collector.program import Program
from tests.agent.collector.tap import Tap
from tests.agent.records import SIZES, kernel

KERNEL_BYTES = SIZES[10]
SMALL = {"SPANLITE_BUFFER_KIB": "64", "SPANLITE_POOL_KIB": "256"}
"""Four buffers of 64 KiB, each of 264 kernels."""
PER_BUFFER = (64 << 10) // KERNEL_BYTES


def kernels(count: int, *, first: int = 1, name: int = 0) -> bytes:
    """So many kernels of now, with correlation ids from `first` on."""
    now = SystemClock().unix_ns()
    return b"".join(kernel(now + 10 * at, now + 10 * at + 5, first + at, name=name) for at in range(count))


def put(folder: Path, records: bytes) -> str:
    """A file of its own with these bytes."""
    path = folder / f"records{len(list(folder.iterdir()))}"
    path.write_bytes(records)
    return str(path)


def delivered(tap: Tap) -> int:
    """Kernels in all buffers that arrived."""
    return sum(len(connection.bytes) for connection in tap.connections) // KERNEL_BYTES


def ended_quietly(program: Program) -> None:
    """The program ends well, and nothing was done that no client of CUPTI may do."""
    assert program.ask("get violations") == "0"
    program.ended_well()


def told(tap: Tap, key: str) -> bool:
    """Whether a STATS frame has come with that key."""
    return key in tap.dropped()

"""What the system says of a process: processor time and memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Bytes of a process that are in memory now, and the most that were since `forget_peak`."""

    now: int
    peak: int


def cpu_s(stat: Path) -> float:
    """User and system time by a `stat` file of a process, its children left out, or of a thread."""
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def process_cpu_s(pid: int) -> float:
    """Processor time of a process, its children left out."""
    return cpu_s(Path(f"/proc/{pid}/stat"))


def memory(pid: int) -> Memory:
    """What a process holds in memory."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Memory(*(1024 * int(lines[name].split()[0]) for name in ("VmRSS", "VmHWM")))


def forget_peak(pid: int) -> None:
    """Lets VmHWM begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")

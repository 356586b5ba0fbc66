"""Who else reads the GPU's hardware counters, or profiles programs, on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, note, ok
from spanlite.agent.doctor.probe import Probe
from spanlite.agent.doctor.programs import processes

_DCGM = ("nv-hostengine", "dcgm-exporter")
_PROFILERS = ("nsys", "ncu", "nsys-launcher", "compute-sanitize", "cuda-gdb")


def check(probe: Probe, _asked: Asked) -> Iterator[Finding]:
    """Findings counters.*."""
    seen = [f"{name} ({pid})" for pid, name in processes(probe.files) if name in _DCGM]
    if seen:
        yield note(
            "counters.dcgm",
            f"{', '.join(seen)} may hold the hardware counters: one reader a GPU",
            "to read them with another tool for a while: dcgmi profile --pause, then --resume",
        )
    profilers = [f"{name} ({pid})" for pid, name in processes(probe.files) if name in _PROFILERS]
    if profilers:
        yield note(
            "counters.profiler",
            f"{', '.join(profilers)} runs: in the programs that it profiles the collector stands aside",
            "profile and trace by turns",
        )
    if not seen and not profilers:
        yield ok("counters.free", "no DCGM and no profiler is seen among the processes here")

"""A program that runs: whether it is traced, and who else looks into it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.collector import CUDA, variables
from spanlite.agent.doctor.finding import Finding, failure, note, ok, warning
from spanlite.agent.doctor.probe import Probe
from spanlite.agent.doctor.programs import Running, running
from spanlite.agent.native import LIBRARY

_PROFILERS = {
    "libToolsInjection": "Nsight Systems",
    "libnvperf": "Nsight Compute or another reader of hardware counters",
    "libcuda-injection": "Nsight Compute",
    "libsanitizer": "Compute Sanitizer",
    "libcudadebugger": "cuda-gdb",
    "libparcagpucupti": "Parca",
}
_FRAMEWORKS = ("libtorch_cpu", "libkineto", "_pywrap_profiler", "libtensorflow_cc")


def check(probe: Probe, asked: Asked) -> Iterator[Finding]:
    """Findings process.*; none without --pid."""
    if asked.pid is None:
        return
    try:
        program = running(probe.files, asked.pid)
    except PermissionError:
        yield failure(
            "process.unreadable", f"process {asked.pid} is another user's", "run the doctor as that user, or as root"
        )
        return
    if program is None:
        yield failure("process.gone", f"there is no process {asked.pid}", "name the pid of the program that runs")
        return
    yield from _traced(program)
    yield from variables(program.environment, f"process {program.pid}")
    yield from _others(program)
    yield from _socket(program, probe)


def _traced(program: Running) -> Iterator[Finding]:
    told = f"process {program.pid} ({program.command[:60]})"
    collector, libcuda = program.mapping(LIBRARY), program.mapping("libcuda.so")
    only = program.environment.get("SPANLITE_PID", str(program.pid))
    if only != str(program.pid):
        yield warning(
            "process.left_out",
            f"{told} was started by a traced program that traces itself alone (SPANLITE_PID={only})",
            "start it without --no-children",
        )
    elif collector:
        yield ok("process.traced", f"{told} has loaded {collector[0]}")
    elif not program.environment.get(CUDA):
        yield failure(
            "process.not_injected",
            f"{told} was started without {CUDA}",
            "start it anew with `spanlite run -- …`; a running program cannot be joined",
        )
    elif Path(program.environment[CUDA]).name == LIBRARY and not libcuda:
        yield note("process.no_cuda_yet", f"{told} has not loaded libcuda yet: the collector comes with its first call")
    elif Path(program.environment[CUDA]).name == LIBRARY:
        yield failure(
            "process.not_loaded",
            f"{told} has loaded libcuda but not {program.environment[CUDA]}",
            "see that the program has called cuInit, that the file is there inside its container, and that the "
            "library loads on its C library (`ldd -v` there)",
        )


def _others(program: Running) -> Iterator[Finding]:
    for beginning, tool in _PROFILERS.items():
        for path in program.mapping(beginning):
            yield warning(
                "process.other_profiler",
                f"{tool} is loaded in process {program.pid}: {path}",
                "trace with one of them at a time: while the other has CUPTI the collector stands aside",
            )
    if frameworks := program.mapping(*_FRAMEWORKS):
        yield ok(
            "process.framework",
            f"{frameworks[0]} can use CUPTI too (torch.profiler): fine, the collector gives way while it records",
        )
    libraries = program.mapping("libcupti.so")
    if len(libraries) > 1:
        yield warning(
            "process.two_cuptis",
            f"process {program.pid} has loaded {len(libraries)} libcuptis: {', '.join(libraries)}",
            "remove one of the packages: two copies do not know of each other, so the collector cannot give way",
        )


def _socket(program: Running, probe: Probe) -> Iterator[Finding]:
    """The socket that the program's collector looks for, as seen in the program's own files."""
    path = program.environment.get("SPANLITE_SOCKET")
    if not path:
        return
    inside = probe.files.at(f"{program.root}{path}")
    if not inside.exists() or not stat.S_ISSOCK(inside.stat().st_mode):
        yield failure(
            "process.socket",
            f"process {program.pid} looks for the agent at {path}, and there is no socket in its files",
            "start the agent there; in a container mount the folder of the socket into it",
        )

"""The collector: whether its library is there and loads here, and what the environment says to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.elf import needs
from spanlite.agent.doctor.finding import Finding, failure, note, ok, warning
from spanlite.agent.doctor.probe import Probe
from spanlite.agent.native import LIBRARY, find_collector
from spanlite.contract.errors import UsageError

CUDA, NVTX = "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"


def check(probe: Probe, asked: Asked) -> Iterator[Finding]:
    """Findings collector.*, of the library and of the environment that programs would inherit from here."""
    try:
        library = find_collector(asked.collector)
    except UsageError as error:
        yield failure("collector.missing", str(error), "make native")
    else:
        yield from _library(library, probe)
    yield from variables(probe.environment, "this environment")


def _library(library: Path, probe: Probe) -> Iterator[Finding]:
    try:
        needed = needs(library.read_bytes())
    except ValueError as error:
        yield failure("collector.broken", f"{library}: {error}", "make -C agent/native clean all")
        return
    floor = ".".join(map(str, needed.glibc))
    have = re.fullmatch(r"glibc ([0-9.]+)", probe.libc)
    if needed.machine != probe.machine:
        yield failure(
            "collector.machine",
            f"{library} is for {needed.machine}, this is {probe.machine}",
            "build it on this kind of machine: make native",
        )
    elif not have:
        yield failure(
            "collector.libc",
            f"{library} needs glibc {floor}; the C library here is {probe.libc or 'another one (musl?)'}",
            "trace programs in an image with glibc",
        )
    elif tuple(map(int, have[1].split("."))) < needed.glibc:
        yield failure(
            "collector.libc",
            f"{library} needs glibc {floor}, this is {have[1]}",
            "build it on the oldest system: make native",
        )
    else:
        yield ok("collector.library", f"{library}: {needed.machine}, glibc {floor} or newer (here {have[1]})")


def variables(environment: Mapping[str, str], whose: str) -> Iterator[Finding]:
    """What the variables of docs/collector.md would do."""
    if environment.get("SPANLITE_DISABLE") == "1":
        yield warning(
            "collector.disabled", f"SPANLITE_DISABLE=1 in {whose}: nothing is traced", "unset SPANLITE_DISABLE"
        )
    other = environment.get(CUDA, "")
    if other and Path(other).name != LIBRARY:
        yield failure(
            "collector.injection_taken",
            f"{CUDA} in {whose} names {other}{_who(other)}: CUDA loads that one and not the collector",
            f"unset {CUDA}, and trace either with the other tool or with spanlite",
        )
    tool = environment.get(NVTX, "")
    if tool and Path(tool).name != LIBRARY:
        yield note(
            "collector.nvtx_taken",
            f"{NVTX} in {whose} names {tool}{_who(tool)}: `spanlite run` lets it go first, and it keeps the ranges if "
            "it takes them; stages are then unknown",
        )
    if environment.get("SPANLITE_STAGES") == "0":
        yield note("collector.stages_off", f"SPANLITE_STAGES=0 in {whose}: no stages are told")
    if budget := environment.get("SPANLITE_BUDGET"):
        share = "all of the time" if budget == "full" else f"as much as may cost {budget} percent"
        yield note("collector.budget", f"SPANLITE_BUDGET={budget} in {whose}: {share} is traced")
    if duty := environment.get("SPANLITE_DUTY"):
        yield _duty(duty, whose)


def _duty(duty: str, whose: str) -> Finding:
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", duty)
    if found is None or not 0 < int(found[1]) < int(found[2]) <= 3600000:
        return warning(
            "collector.duty",
            f"SPANLITE_DUTY={duty} in {whose} is no share: the collector is always on",
            "write milliseconds as ON/PERIOD, such as 20/200",
        )
    share = int(found[1]) / int(found[2])
    return note("collector.duty", f"SPANLITE_DUTY={duty} in {whose}: {share:.0%} of the time is traced")


def _who(path: str) -> str:
    """The tool that a library belongs to, where its name tells."""
    tools = {"ToolsInjection": "Nsight Systems", "sanitizer": "Compute Sanitizer", "nvperf": "Nsight Compute"}
    tools |= {"parcagpu": "Parca", "cupti": "CUPTI itself (NVTX marker records)"}
    found = next((tool for part, tool in tools.items() if part.lower() in path.lower()), "")
    return f" ({found})" if found else ""

"""CUPTI: every libcupti that could be taken, the one that would be, and whether it will work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.cupti_known import cuda_of, first_cuda, issues, named, why_unreadable
from spanlite.agent.doctor.cupti_places import LOADER, NAMED, Place, places
from spanlite.agent.doctor.driver import chips, cuda_version
from spanlite.agent.doctor.finding import Finding, failure, note, ok, warning
from spanlite.agent.doctor.probe import Probe
from spanlite.agent.doctor.programs import Running, running

_INSTALL = (
    "install CUPTI (the CUDA toolkit, or `pip install nvidia-cuda-cupti` and name its libcupti.so.13 in SPANLITE_CUPTI)"
)


class Candidate(NamedTuple):
    """A place, and what opening it told: the answer of `loading.cupti`."""

    place: Place
    told: Mapping[str, Any]

    @property
    def opens(self) -> bool:
        return "error" not in self.told

    @property
    def version(self) -> int:
        """0 where it does not say: some releases refuse where there is no driver."""
        return self.told["version"] if self.opens and self.told["result"] == 0 else 0

    def __str__(self) -> str:
        if not self.opens:
            return f"{self.place.library} ({self.place.how}): cannot be opened: {self.told['error']}"
        version = f"version {named(self.version)}" if self.version else f"tells no version ({self.told['result']})"
        return f"{self.told['file']} ({self.place.how}): {version}"


def check(probe: Probe, asked: Asked) -> Iterator[Finding]:
    """Findings cupti.*."""
    program = _program(probe, asked)
    environment = program.environment if program else probe.environment
    found = candidates(probe, program, environment)
    taken = _taken(found)
    for candidate in found:
        if candidate is not taken and candidate.opens:
            yield note("cupti.candidate", str(candidate))
    if taken is None:
        yield _none(found, program)
        return
    yield from _judge(taken, cuda_version(probe), environment)
    yield from _knows(taken.version, chips(probe))


def candidates(probe: Probe, program: Running | None, environment: Mapping[str, str]) -> list[Candidate]:
    """What is there, each file once, in the collector's order."""
    changed = {"LD_LIBRARY_PATH": environment["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in environment else {}
    found: dict[str, Candidate] = {}
    for place in places(probe, program, environment):
        told = probe.load("cupti", place.library, **changed)
        absent = "error" in told and not told.get("crashed") and place.how == LOADER
        if not absent:
            found.setdefault(str(told.get("file", place.library)), Candidate(place, told))
    return list(found.values())


def _program(probe: Probe, asked: Asked) -> Running | None:
    try:
        return running(probe.files, asked.pid) if asked.pid is not None else None
    except PermissionError:  # the part `process` says so
        return None


def _taken(found: list[Candidate]) -> Candidate | None:
    """Who names one means that one; else the first that opens, as dlopen would have it."""
    if found and found[0].place.how == NAMED:
        return found[0]
    searched = [candidate for candidate in found if candidate.place.searched]
    return next((one for one in searched if one.opens or one.told.get("crashed")), None)


def _none(found: list[Candidate], program: Running | None) -> Finding:
    bring = [candidate for candidate in found if candidate.opens]
    if bring and program is None:
        return warning(
            "cupti.brought",
            f"the collector finds no libcupti by itself; a program that loads {bring[0].told['file']} before its first "
            "CUDA call brings it along, as PyTorch does",
            f"for other programs set SPANLITE_CUPTI={bring[0].told['file']}",
        )
    broken = "; ".join(str(candidate) for candidate in found if not candidate.opens)
    return failure("cupti.none", f"no libcupti is found{': ' if broken else ''}{broken}", _INSTALL)


def _judge(taken: Candidate, driver: tuple[int, int] | None, environment: Mapping[str, str]) -> Iterator[Finding]:
    told = taken.told
    if not taken.opens:
        name = "cupti.crashed" if told.get("crashed") else "cupti.broken"
        yield failure(name, f"the collector would take {taken}", f"repair or remove it; {_INSTALL}")
        return
    yield ok("cupti.taken", str(taken))
    if told["lacking"]:
        lacking = ", ".join(told["lacking"])
        yield failure("cupti.incomplete", f"it lacks {lacking}: it is too old, or no CUPTI", _INSTALL)
    elif not taken.version:
        yield _untold(taken, driver)
    else:
        if reason := why_unreadable(taken.version):
            yield failure("cupti.unknown_version", reason, "name another libcupti in SPANLITE_CUPTI")
        yield from _against(driver, taken.version)
        yield from issues(taken.version, environment)


def _knows(version: int, gpus: list[int]) -> Iterator[Finding]:
    """GPUs that are newer than the library."""
    cuda = cuda_of(version)
    unknown = [chip for chip in sorted(set(gpus)) if cuda and first_cuda(chip) > cuda]
    for chip in unknown:
        first = first_cuda(chip)
        yield failure(
            "cupti.older_than_gpu",
            f"CUPTI {named(version)} does not know GPUs of compute capability {chip // 10}.{chip % 10}",
            f"take the libcupti of CUDA {first[0]}.{first[1]} or later",
        )


def _untold(taken: Candidate, driver: tuple[int, int] | None) -> Finding:
    said = f"cuptiGetVersion gives {taken.told['result']} instead of a version"
    if driver is None:
        return note("cupti.version_untold", f"{said}: this release tells it only where a driver is")
    return failure(
        "cupti.refuses",
        f"{said}, with a driver for CUDA {driver[0]}.{driver[1]}: it is newer than the driver, or broken",
        "take the libcupti of the driver's CUDA, or update the driver",
    )


def _against(driver: tuple[int, int] | None, version: int) -> Iterator[Finding]:
    cuda = cuda_of(version)
    if driver is None or cuda is None or cuda <= driver:
        return
    told = f"CUPTI of CUDA {cuda[0]}.{cuda[1]} on a driver for CUDA {driver[0]}.{driver[1]}"
    if cuda[0] > driver[0]:
        yield failure(
            "cupti.newer_than_driver",
            f"{told}: its calls will give CUPTI_ERROR_NOT_INITIALIZED (15)",
            f"take the libcupti of CUDA {driver[0]}, or update the driver",
        )
    else:
        yield note("cupti.newer_minor", f"{told}: works by CUDA's minor-version compatibility")

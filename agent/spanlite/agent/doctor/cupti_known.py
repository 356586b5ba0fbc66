"""CUPTI by its version: which CUDA it belongs to, whether the agent can read it, and what is known to be wrong with it.

Each entry names where it is told. It is a warning only where the way in which spanlite uses CUPTI meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from spanlite.agent.doctor.finding import Finding, note, warning
from spanlite.agent.layouts import layout_for
from spanlite.contract.errors import LayoutError

_CUDA_12 = {19: 0, 20: 2, 21: 3, 22: 4, 23: 5, 24: 6, 26: 8, 27: 9, 28: 9}
_CUDA_11 = {13: 0, 14: 1, 15: 2, 16: 5, 17: 6, 18: 8}
Environment = Mapping[str, str]


class Issue(NamedTuple):
    """Something that is wrong with versions first to last.

    Attributes:
        applies: whether spanlite meets it under an environment.
        fix: where it does.
    """

    id: str
    first: int
    last: int
    what: str
    applies: Callable[[Environment], bool]
    meets: str
    fix: str


def _never(_: Environment) -> bool:
    return False


def _by_turns(environment: Environment) -> bool:
    return "SPANLITE_DUTY" in environment or environment.get("SPANLITE_BUDGET", "1") != "full"


def _always(_: Environment) -> bool:
    return True


ISSUES = (
    Issue(
        "cupti.no_kernels",
        22,
        22,
        "CUPTI of CUDA 12.4 update 1 traces no kernels (JuliaGPU/CUDA.jl issue 2328)",
        _always,
        "nothing would be collected",
        "take libcupti of CUDA 12.6 or later, with SPANLITE_CUPTI",
    ),
    Issue(
        "cupti.first_records",
        24,
        130099,
        "registering a clock anew spoils the first kernel records after it (pytorch issue 192021; CUDA 12.6 update 2 "
        "to 13.0)",
        _never,
        "spanlite registers a clock only after another client (torch.profiler) has; then the first records of that "
        "turn may have wrong times, and are counted where they cannot be true",
        "",
    ),
    Issue(
        "cupti.null_buffers",
        0,
        26,
        "a request for a buffer that is answered with none crashes (pytorch/kineto pull request 1534; before 12.9)",
        _never,
        "the collector always answers with memory",
        "",
    ),
    Issue(
        "cupti.graph_correlation",
        0,
        130100,
        "correlation ids of CUDA graphs are wrong in all sessions but the first (pytorch/kineto issue 1165; before "
        "CUDA 13.1 update 1)",
        _by_turns,
        "where kinds are enabled by turns (SPANLITE_DUTY, SPANLITE_BUDGET) each turn is a session: stages and traces "
        "of kernels in graphs cannot be told and are unknown; else only after another profiler has been in the process",
        "take libcupti of CUDA 13.1 update 1 or later, or trace such programs with SPANLITE_BUDGET=full",
    ),
    Issue(
        "cupti.unloading",
        130000,
        130199,
        "unloading the library leaves pointers into it behind (icl-utk-edu/papi pull request 594; CUDA 13.0 and 13.1)",
        _never,
        "the collector never finalizes or unloads it",
        "",
    ),
    Issue(
        "cupti.hardware_events",
        130000,
        130400,
        "hardware event tracing leaks memory, and names go stale when a module is loaded anew (release notes of CUDA "
        "13.4 update 1)",
        _never,
        "hardware event tracing is never switched on, and names are copied when their records come",
        "",
    ),
    Issue(
        "cupti.mig_uuids",
        130300,
        130300,
        "MIG instances that the process does not see get wrong UUIDs (release notes of CUDA 13.3 update 1)",
        _never,
        "the collector takes UUIDs from libcuda",
        "",
    ),
)


FIRST_CUDA = ((90, (11, 8)), (100, (12, 8)), (103, (12, 9)), (110, (13, 0)), (120, (12, 8)), (121, (12, 9)))
"""Compute capability, times ten, and the first CUDA that knows it, from 9.0 on."""


def first_cuda(chip: int) -> tuple[int, int]:
    """The first CUDA whose CUPTI knows a GPU, (0, 0) for one older than all that the agent reads."""
    return next((cuda for capability, cuda in reversed(FIRST_CUDA) if capability <= chip), (0, 0))


def cuda_of(version: int) -> tuple[int, int] | None:
    """The CUDA that a CUPTI version came with, such as (12, 8); None for one that nobody has told of."""
    if version >= 130000:
        return version // 10000, version // 100 % 100
    if version in _CUDA_12:
        return 12, _CUDA_12[version]
    return (11, _CUDA_11[version]) if version in _CUDA_11 else None


def named(version: int) -> str:
    """As people say it: `130001 (CUDA 13.0)`."""
    cuda = cuda_of(version)
    return f"{version} (CUDA {cuda[0]}.{cuda[1]})" if cuda else str(version)


def why_unreadable(version: int) -> str:
    """Why the agent cannot read its records; empty where it can."""
    try:
        layout_for(version)
    except LayoutError as error:
        return str(error)
    return ""


def issues(version: int, environment: Environment) -> Iterator[Finding]:
    """What is known of a version; a warning where a program with that environment meets it."""
    for issue in ISSUES:
        if issue.first <= version <= issue.last:
            text = f"{issue.what}: {issue.meets}"
            yield warning(issue.id, text, issue.fix) if issue.applies(environment) else note(issue.id, text)

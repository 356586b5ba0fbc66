"""What came of a trial, judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from spanlite.agent.counts import AgentCounts
from spanlite.agent.doctor.cupti_known import issues, named
from spanlite.agent.doctor.finding import Finding, failure, note, ok, warning
from spanlite.agent.doctor.listening import Heard
from spanlite.agent.native import LIBRARY
from spanlite.contract import catalogue

_STATES = {
    "subscriber_conflict": "another tool has CUPTI (nsys, ncu, cuda-gdb, the program's own): end that one",
    "cupti_error_15": "CUPTI is newer than the driver, or there is none: take the libcupti of the driver's CUDA",
    "cupti_error_35": "the driver lets only administrators profile: RmProfilingAdminOnly, or CAP_SYS_ADMIN",
    "no_cupti": "install CUPTI, or name it in SPANLITE_CUPTI",
    "unknown_cupti_version": "name a libcupti of CUDA 12.6, 12.8, 12.9 or 13.0 to 13.5 in SPANLITE_CUPTI",
    "disabled": "unset SPANLITE_DISABLE",
}
_CALM = ("active", "paused", "leaving", "waiting", "")
_FEW_UNKNOWN = 0.01


def verdict(
    heard: Sequence[Heard], counts: AgentCounts, libraries: Set[str], environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Findings trial.* of what traced processes told.

    Args:
        libraries: libcuda.so, libcupti.so and the collector, as far as they were seen in the program.
    """
    telling = [one for one in heard if one.collects]
    for one in heard:
        if one.fault:
            yield failure("trial.fault", f"process {one.pid}: {one.fault}", "report it, with the version of spanlite")
    if not telling:
        yield _silent(libraries, environment)
        return
    for one in telling:
        yield from _process(one, environment)
    yield from _losses(counts)


def _silent(libraries: Set[str], environment: Mapping[str, str]) -> Finding:
    """Nobody connected: how far did it come?"""
    if environment.get("SPANLITE_DISABLE") == "1":
        return failure("trial.silent", "SPANLITE_DISABLE=1 is set: the collector did nothing", "unset SPANLITE_DISABLE")
    if "libcuda.so" not in libraries and LIBRARY not in libraries:
        return failure(
            "trial.no_cuda",
            "no process of the program was seen to load libcuda: it has not used the GPU in this time",
            "give it work, or a longer --seconds; programs that clear their environment lose the collector",
        )
    if LIBRARY not in libraries:
        return failure(
            "trial.not_loaded",
            "libcuda was loaded, the collector was not",
            "see part `collector`; libcuda loads it in cuInit, so a program that only loads the library does not count",
        )
    if "libcupti.so" not in libraries:
        return failure("trial.no_cupti", "the collector was loaded and found no libcupti", "see part `cupti`")
    return failure(
        "trial.silent",
        "collector and libcupti were loaded, but no context was made, or the collector does not take this libcupti",
        "see part `cupti` for its version; give the program work, or a longer --seconds",
    )


def _process(one: Heard, environment: Mapping[str, str]) -> Iterator[Finding]:
    who = f"process {one.pid} ({one.hello.get('resource.process.executable.name', 'unknown')})"
    version = int(one.hello["cupti_version"]) if one.hello.get("cupti_version", "").isdigit() else 0
    yield ok("trial.cupti", f"{who}: CUPTI {named(version)}, {one.hello.get('resource.cupti.path', 'path unknown')}")
    yield from issues(version, environment)
    if one.state not in _CALM:
        yield failure(
            "trial.state",
            f"{who}: the collector's state is {one.state}",
            _STATES.get(one.state, "see docs/collector.md"),
        )
    else:
        yield ok("trial.state", f"{who}: the collector's state is {one.state or 'not told'}")
    if one.kernels:
        yield _kernels(one, who)
    elif one.calls > one.stamps:
        yield failure(
            "trial.no_records",
            f"{who}: at least {one.calls - one.stamps} CUDA calls, but CUPTI gave no record of a kernel",
            "another libcupti: one that matches the driver and knows the GPU (part `cupti`); see that no other tool "
            "registers for activity in the program",
        )
    elif one.state in _CALM:
        yield failure(
            "trial.no_kernels",
            f"{who}: connected, and no record of a kernel came ({one.others} copies and memory sets)",
            "either it launched none: give it work, or a longer --seconds; or CUPTI gives none: see part `cupti`",
        )


def _kernels(one: Heard, who: str) -> Finding:
    took_s = (one.last_ns - one.first_ns) / 1e9
    rate = f", {one.kernels / took_s:,.0f} a second over {took_s:.1f} s" if took_s > 0 else ""
    told = f"{one.kernels:,} kernels of {len(one.names):,} names{rate}"
    return ok("trial.kernels", f"{who}: {told}; {one.others:,} copies and memory sets, {one.ranges:,} ranges")


def _losses(counts: AgentCounts) -> Iterator[Finding]:
    dropped = counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    if told := ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()) if count):
        yield warning(
            "trial.dropped", f"spans dropped: {told}", "docs/collector.md has the reasons (Memory, and what is lost)"
        )
    else:
        yield ok("trial.dropped", "no span was dropped")
    received = counts.value(catalogue.AGENT_SPANS_RECEIVED)
    unknown = counts.value(catalogue.AGENT_SPANS_UNSTAGED)
    if unknown:
        share = unknown / max(1, received)
        told = f"the stage of {unknown:,} spans ({share:.1%}) is unknown"
        fix = "threads that share a stream, or ranges opened before the program was traced (docs/traces.md)"
        yield (
            note("trial.unknown_stages", told, fix)
            if share < _FEW_UNKNOWN
            else warning("trial.unknown_stages", told, fix)
        )

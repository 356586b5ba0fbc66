"""The host's clock: spans of several machines are compared by it."""

from __future__ import annotations

from collections.abc import Iterator

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, note, ok, warning
from spanlite.agent.doctor.probe import Probe

_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_GOOD = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
_UNSYNC = 0x40
"""STA_UNSYNC of linux/timex.h."""
_MOST_ERROR_US = 1_000_000
"""Jobs take a producer for silent after some seconds: clocks within half of that do no harm."""
_STEP_NS = 1_000_000


def check(probe: Probe, _asked: Asked) -> Iterator[Finding]:
    """Findings clock.*. It runs last, so that a step of the clock meanwhile shows."""
    yield _discipline(probe)
    source = (probe.files.text(_SOURCE) or "").strip()
    if not source:
        yield note("clock.source", "the kernel does not tell its clock source")
    elif source in _GOOD:
        yield ok("clock.source", f"clock source {source}")
    else:
        yield warning(
            "clock.source",
            f"clock source {source}: reading it is a system call, microseconds each",
            "see `dmesg | grep -i clocksource` why tsc is not used",
        )
    moved = probe.clock.unix_ns() - probe.clock.monotonic_ns() - probe.drift_ns
    if abs(moved) > _STEP_NS:
        yield warning(
            "clock.stepped",
            f"the wall clock was set by {moved / 1e6:+.1f} ms while the doctor looked",
            "let one daemon slew the clock (chrony without makestep after the start)",
        )


def _discipline(probe: Probe) -> Finding:
    said = probe.load("clock", "")
    if "error" in said:
        return note("clock.unknown", f"whether the clock is disciplined is unknown: {said['error']}")
    most, estimated = said["maxerror_us"] / 1e3, said["esterror_us"] / 1e3
    if said["status"] & _UNSYNC:
        return warning(
            "clock.undisciplined",
            "nobody disciplines this clock (STA_UNSYNC)",
            "run chrony or systemd-timesyncd on the host; it serves its containers too",
        )
    told = f"at most {most:g} ms off, {estimated:g} ms estimated"
    if said["maxerror_us"] > _MOST_ERROR_US:
        return warning(
            "clock.error", f"the clock is disciplined, but {told}", "see `chronyc tracking`: a nearer time server"
        )
    return ok("clock.disciplined", f"the clock is disciplined: {told}")

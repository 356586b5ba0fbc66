"""Permissions that matter: tracing needs none beyond the GPU itself, hardware counters do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, note, ok
from spanlite.agent.doctor.probe import Probe

_PARAMS = "/proc/driver/nvidia/params"
_SYS_ADMIN = 21
_SECCOMP = {0: "no system call is filtered", 1: "strict seccomp", 2: "system calls are filtered by seccomp"}


def check(probe: Probe, _asked: Asked) -> Iterator[Finding]:
    """Findings permissions.*."""
    yield from _counters(probe)
    yield from _container(probe)


def _counters(probe: Probe) -> Iterator[Finding]:
    """Who may read hardware counters; nothing where there is no driver."""
    params = probe.files.text(_PARAMS)
    if params is None:
        return
    only = re.search(r"^RmProfilingAdminOnly: ([01])$", params, re.MULTILINE)
    if only is None:
        yield note("permissions.counters", f"{_PARAMS} does not say who may read hardware counters")
    elif only[1] == "0":
        yield ok("permissions.counters", "hardware counters may be read by everybody (RmProfilingAdminOnly: 0)")
    elif _capable(probe):
        yield ok("permissions.counters", "hardware counters are for administrators, and this user is one")
    else:
        yield note(
            "permissions.counters",
            "hardware counters are for administrators (RmProfilingAdminOnly: 1); tracing kernels is not affected",
            "for counters: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, or CAP_SYS_ADMIN",
        )


def _capable(probe: Probe) -> bool:
    status = probe.files.text("/proc/self/status") or ""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(effective and int(effective[1], 16) >> _SYS_ADMIN & 1)


def _container(probe: Probe) -> Iterator[Finding]:
    """What a container hides from the other checks."""
    group = probe.files.text("/proc/1/cgroup") or ""
    marks = [path for path in ("/.dockerenv", "/run/.containerenv") if probe.files.glob(path)]
    inside = marks or probe.environment.get("KUBERNETES_SERVICE_HOST") or re.search("docker|kubepods|containerd", group)
    if not inside:
        return
    status = probe.files.text("/proc/self/status") or ""
    filtered = re.search(r"^Seccomp:\s*([0-9])$", status, re.MULTILINE)
    seccomp = _SECCOMP.get(int(filtered[1]), "") if filtered else "seccomp is unknown"
    yield note(
        "permissions.container",
        f"this is a container ({seccomp}): processes, sockets and devices of the host may be hidden from it",
    )

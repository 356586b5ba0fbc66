"""Permissions, readers of hardware counters, the host's clock."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from spanlite.agent.doctor import counters, host_clock, permissions
from spanlite.agent.doctor.finding import Level
from tests.agent.doctor.worlds import found, texts, world

PARAMS, STATUS = "/proc/driver/nvidia/params", "/proc/self/status"
SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
GOOD = {"state": 0, "status": 0x2001, "maxerror_us": 4500, "esterror_us": 12}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({PARAMS: "A: 1\nRmProfilingAdminOnly: 0\n"}, {"permissions.counters": Level.OK}),
        ({PARAMS: "RmProfilingAdminOnly: 1\n"}, {"permissions.counters": Level.NOTE}),
        (
            {PARAMS: "RmProfilingAdminOnly: 1\n", STATUS: "CapEff:\t0000000000200000\n"},
            {"permissions.counters": Level.OK},
        ),
        (
            {PARAMS: "RmProfilingAdminOnly: 1\n", STATUS: "CapEff:\t000001ffffdfffff\n"},
            {"permissions.counters": Level.NOTE},
        ),
        ({PARAMS: "Other: 1\n"}, {"permissions.counters": Level.NOTE}),
        ({"/.dockerenv": "", STATUS: "Seccomp:\t2\n"}, {"permissions.container": Level.NOTE}),
        ({"/proc/1/cgroup": "0::/kubepods/burstable/pod1\n"}, {"permissions.container": Level.NOTE}),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}),
    ],
)
def test_only_hardware_counters_need_a_right(tmp_path: Path, files: dict[str, str], expected: dict[str, Level]) -> None:
    """CAP_SYS_ADMIN is bit 21: that alone is enough, and all others are not."""
    assert found(permissions.check, world(tmp_path, files)) == expected


def test_readers_of_counters_are_named_with_their_pids(tmp_path: Path) -> None:
    """DCGM holds counters, nsys holds CUPTI; other programs are nobody's business."""
    files = {"/proc/7/comm": "nv-hostengine\n", "/proc/8/comm": "nsys\n", "/proc/9/comm": "bash\n"}
    probe = world(tmp_path, files)
    assert found(counters.check, probe) == {"counters.dcgm": Level.NOTE, "counters.profiler": Level.NOTE}
    said = texts(counters.check, probe)
    assert "nv-hostengine (7) may hold" in said
    assert "nsys (8) runs" in said
    assert found(counters.check, world(tmp_path / "other")) == {"counters.free": Level.OK}


@pytest.mark.parametrize(
    ("answer", "source", "expected"),
    [
        (GOOD, "tsc\n", {"clock.disciplined": Level.OK, "clock.source": Level.OK}),
        ({**GOOD, "status": 0x40}, "hpet\n", {"clock.undisciplined": Level.WARNING, "clock.source": Level.WARNING}),
        ({**GOOD, "maxerror_us": 1_500_000}, "tsc", {"clock.error": Level.WARNING, "clock.source": Level.OK}),
        ({"error": "adjtimex: not permitted"}, "", {"clock.unknown": Level.NOTE, "clock.source": Level.NOTE}),
    ],
)
def test_a_clock_that_nobody_disciplines_is_warned_of(
    tmp_path: Path, answer: dict[str, int], source: str, expected: dict[str, Level]
) -> None:
    """STA_UNSYNC, a large error, a slow source."""
    assert found(host_clock.check, world(tmp_path, {SOURCE: source}, libraries={("clock", ""): answer})) == expected


def test_a_step_of_the_clock_meanwhile_is_seen(tmp_path: Path) -> None:
    """Two seconds back between the doctor's start and its end."""
    probe = dataclasses.replace(world(tmp_path, libraries={("clock", ""): GOOD}), drift_ns=10**18 + 2 * 10**9)
    assert "clock.stepped: the wall clock was set by -2000.0 ms" in texts(host_clock.check, probe)

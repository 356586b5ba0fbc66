"""A program that runs, by its files below /proc."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from spanlite.agent.doctor import process
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.probe import Files, Probe
from spanlite.agent.doctor.programs import running
from tests.agent.doctor.worlds import found, world

OURS = "CUDA_INJECTION64_PATH=/opt/libspanlite_collector.so"
COLLECTOR, LIBCUDA = "/opt/libspanlite_collector.so", "/usr/lib/libcuda.so.580.159"


def program(root: Path, environ: str, *mapped: str) -> Probe:
    maps = "".join(f"7f{at:02}-7f{at + 1:02} r-xp 0000 fe:00 {at} {path}\n" for at, path in enumerate(mapped))
    files = {"cmdline": "python\0serve.py\0", "environ": environ.replace(" ", "\0") + "\0", "maps": maps}
    return world(root, {f"/proc/42/{name}": text for name, text in files.items()})


def levels(probe: Probe) -> dict[str, Level]:
    return found(process.check, probe, Asked(pid=42))


@pytest.mark.parametrize(
    ("environ", "mapped", "expected"),
    [
        (OURS, (COLLECTOR, LIBCUDA), {"process.traced": Level.OK}),
        (OURS, (), {"process.no_cuda_yet": Level.NOTE}),
        (OURS, (LIBCUDA,), {"process.not_loaded": Level.FAILURE}),
        ("A=b", (LIBCUDA,), {"process.not_injected": Level.FAILURE}),
        (f"{OURS} SPANLITE_PID=41", (COLLECTOR,), {"process.left_out": Level.WARNING}),
        ("CUDA_INJECTION64_PATH=/opt/libToolsInjection64.so", (), {"collector.injection_taken": Level.FAILURE}),
        (f"{OURS} SPANLITE_DISABLE=1", (COLLECTOR,), {"process.traced": Level.OK, "collector.disabled": Level.WARNING}),
        (
            OURS,
            (COLLECTOR, "/opt/nsys/libToolsInjection64.so"),
            {"process.traced": Level.OK, "process.other_profiler": Level.WARNING},
        ),
        (
            OURS,
            (COLLECTOR, "/venv/torch/lib/libtorch_cpu.so"),
            {"process.traced": Level.OK, "process.framework": Level.OK},
        ),
        (
            OURS,
            (COLLECTOR, "/a/libcupti.so.12", "/b/libcupti.so.13"),
            {"process.traced": Level.OK, "process.two_cuptis": Level.WARNING},
        ),
    ],
)
def test_how_far_the_collector_came_is_seen_from_outside(
    tmp_path: Path, environ: str, mapped: tuple[str, ...], expected: dict[str, Level]
) -> None:
    """Environment and mapped files tell whether a program is traced, and who else is in it."""
    assert levels(program(tmp_path, environ, *mapped)) == expected


def test_a_socket_that_the_program_cannot_see_is_a_failure(tmp_path: Path) -> None:
    """The agent's folder is not mounted into the container; then it is."""
    probe = program(tmp_path, f"{OURS} SPANLITE_SOCKET=/run/agent.sock", COLLECTOR)
    assert levels(probe)["process.socket"] == Level.FAILURE
    inside = tmp_path / "proc/42/root/run"
    inside.mkdir(parents=True)
    here = Path.cwd()
    os.chdir(inside)  # the whole path may be too long for a socket
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("agent.sock")
    finally:
        os.chdir(here)
    assert levels(probe) == {"process.traced": Level.OK}


def test_a_process_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    """It may have ended."""
    assert levels(world(tmp_path)) == {"process.gone": Level.FAILURE}


def test_a_process_of_another_user_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel refuses is no absence."""

    def refused(_: Files, path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(Files, "text", refused)
    assert levels(world(tmp_path)) == {"process.unreadable": Level.FAILURE}


def test_without_a_pid_nothing_is_said(tmp_path: Path) -> None:
    """The part is about a program."""
    assert found(process.check, world(tmp_path)) == {}


def test_this_very_process_can_be_read() -> None:
    """The real /proc has the form that the recorded ones have."""
    me = running(Files(), os.getpid())
    assert me is not None
    assert "python" in me.command
    assert me.mapping("libc.so")
    assert me.environment["PATH"]

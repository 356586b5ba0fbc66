"""The unit of systemd: what systemd itself says of it, and that its command line is one that the agent takes."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from spanlite.cli.commands import agent

UNIT = Path(__file__).parents[2] / "agent/systemd/spanlite-agent.service"
_PROGRAM = "/opt/spanlite/bin/spanlite"


def _settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in UNIT.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[key].append(value)
    return found


def _analyze(tmp_path: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """systemd-analyze on the unit, with a program that exists."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(_PROGRAM, sys.executable))
    return subprocess.run([program, *words, unit], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """No unknown setting, no value that it cannot read: each of these would be ignored at start."""
    done = _analyze(tmp_path, "verify", "--man=no")
    mine = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert mine == []
    assert done.returncode == 0, done.stderr


def test_systemd_rates_the_unit_as_safe(tmp_path: Path) -> None:
    """Its exposure, from 0 to 10, stays below 3: "OK" by systemd's words."""
    done = _analyze(tmp_path, "security", "--offline=true", "--threshold=30")
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_the_command_line_is_one_that_the_agent_takes() -> None:
    """A flag that was renamed would let the unit start nothing."""
    (line,) = _settings()["ExecStart"]
    program, *words = line.split()
    assert program == _PROGRAM
    command = words[words.index("agent") + 1 :]
    parser = argparse.ArgumentParser(exit_on_error=False)
    agent.add_arguments(parser)
    args = parser.parse_args(command)
    assert str(args.socket) == "${RUNTIME_DIRECTORY}/agent.sock"
    assert args.socket_group == _settings()["Group"][0]


def test_its_bounds_leave_room_for_the_agents_own() -> None:
    """Ten seconds to end, descriptors and threads for every connection that is admitted."""
    found = _settings()
    assert int(found["TimeoutStopSec"][0]) > 10
    assert int(found["LimitNOFILE"][0]) >= 3 * 4096  # a connection: its socket and a hold on its process
    assert int(found["TasksMax"][0]) > 4096
    assert found["RuntimeDirectory"] == ["spanlite"]
    assert found["RestartPreventExitStatus"] == ["2"]

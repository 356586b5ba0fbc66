"""One agent a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spanlite.agent.lock import NodeLock
from spanlite.contract.errors import UsageError

_HOLDER = """
import sys
from pathlib import Path
from spanlite.agent.lock import NodeLock
with NodeLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_agent_is_refused_by_the_pid_of_the_first(tmp_path: Path) -> None:
    """Until the first ends, by SIGKILL too: the file that it leaves is no problem, whatever stands in it."""
    socket = tmp_path / "agent.sock"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(socket)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout
        assert first.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {first.pid}, serves this node"), NodeLock(socket):
            pass
        first.kill()
    lock = tmp_path / "agent.sock.lock"
    assert lock.read_text() == f"{first.pid}\n"
    with NodeLock(socket):
        assert lock.read_text() == f"{os.getpid()}\n"
    assert lock.read_text() == ""
    with NodeLock(socket):
        pass


def test_a_lock_is_not_inherited(tmp_path: Path) -> None:
    """A program that an agent starts must not keep its node locked after it."""
    with NodeLock(tmp_path / "s") as held:
        assert held._fd is not None
        assert not os.get_inheritable(held._fd)


def test_a_place_that_cannot_be_locked_is_said(tmp_path: Path) -> None:
    """No folder; and a link, through which another file would be emptied."""
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "s.lock").symlink_to(tmp_path / "victim")
    for socket in (tmp_path / "none" / "s", tmp_path / "s"):
        with pytest.raises(UsageError, match="choose another socket path"), NodeLock(socket):
            pass
    assert (tmp_path / "victim").read_text() == "mine"

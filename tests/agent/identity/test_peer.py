"""The process at the other end of a socket, held on to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanlite.agent.identity import peer
from spanlite.agent.identity.peer import Credentials, Hold, credentials

_CHILD = """
import socket, sys
end = socket.socket(socket.AF_UNIX)
end.connect(sys.argv[1])
sys.stdin.read()
"""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A child process and our end of its connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        command = [sys.executable, "-c", _CHILD, str(tmp_path / "s")]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
            end, _ = listener.accept()
            with end:
                yield child, end
            child.kill()


@pytest.mark.parametrize("peerpidfd", [True, False])
def test_a_peer_is_alive_until_it_ends(
    connection: tuple[subprocess.Popen[bytes], socket.socket], peerpidfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by the socket's own descriptor, and by the pid where the kernel is older; no descriptor is left open."""
    child, end = connection
    if not peerpidfd:
        monkeypatch.setattr(peer, "_SO_PEERPIDFD", 9999)
    assert credentials(end) == Credentials(child.pid, os.getuid(), os.getgid())
    before = len(list(Path("/proc/self/fd").iterdir()))
    with Hold(end, child.pid) as hold:
        assert hold.alive()
        child.kill()
        child.wait()
        assert not hold.alive()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_peer_that_went_before_it_was_held_is_gone(
    connection: tuple[subprocess.Popen[bytes], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another process's by now."""
    child, end = connection
    child.kill()
    child.wait()
    monkeypatch.setattr(peer, "_SO_PEERPIDFD", 9999)
    with Hold(end, child.pid) as hold:
        assert not hold.alive()


def test_where_holding_is_forbidden_the_start_has_to_do(
    connection: tuple[subprocess.Popen[bytes], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old kernel in a strict sandbox: nothing is claimed of the process's end."""
    child, end = connection

    def forbidden(_pid: int) -> int:
        raise PermissionError(1, "no")

    monkeypatch.setattr(peer, "_SO_PEERPIDFD", 9999)
    monkeypatch.setattr(os, "pidfd_open", forbidden)
    with Hold(end, child.pid) as hold:
        assert hold.alive()

"""The agent's socket, with real ones."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.doctor import agent_socket
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.probe import Files, Outside, Probe
from spanlite.agent.server import AgentServer
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryProducer
from tests.agent.doctor.worlds import found, texts, world


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def levels(path: Path, outside: Outside | None = None) -> dict[str, Level]:
    probe = Probe(files=Files(), outside=outside or Outside())
    return found(agent_socket.check, probe, Asked(socket=path))


def test_an_agent_that_listens_is_seen_and_not_disturbed(folder: Path) -> None:
    """The real server takes the visit for nothing: no failure, no process."""
    counts = AgentCounts()
    server = AgentServer(folder / "a.sock", MemoryProducer(MemoryBroker()), SystemClock(), counts)
    server.start()
    assert levels(folder / "a.sock") == {"socket.listens": Level.OK}
    server.stop()
    assert server.failures == []
    assert dict(counts.counters()) == {}


def test_what_is_no_agent_is_a_failure_where_it_was_named(folder: Path) -> None:
    """Nothing, a file, a socket that a killed agent left, a name that is too long."""
    assert levels(folder / "none.sock") == {"socket.missing": Level.FAILURE}
    (folder / "file").touch()
    assert levels(folder / "file") == {"socket.other": Level.FAILURE}
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "left.sock"))
    assert levels(folder / "left.sock") == {"socket.dead": Level.FAILURE}
    assert levels(folder / ("a" * 108)) == {"socket.long": Level.FAILURE}


@pytest.mark.parametrize(
    ("error", "finding"),
    [(PermissionError(13, "Permission denied"), "socket.forbidden"), (TimeoutError("timed out"), "socket.unanswered")],
)
def test_an_agent_that_does_not_take_this_user_is_a_failure(folder: Path, error: OSError, finding: str) -> None:
    """The socket is there, and the system says why it cannot be used."""

    class Refusing(Outside):
        def dial(self, path: Path) -> None:  # noqa: ARG002  # the probe's signature
            raise error

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "a.sock"))
        assert levels(folder / "a.sock", Refusing()) == {finding: Level.FAILURE}


def test_without_a_name_the_collector_s_places_are_looked_at(tmp_path: Path) -> None:
    """Nobody asked for an agent: a warning, of the last place, with the command that starts one there."""
    probe = world(tmp_path, environment={"XDG_RUNTIME_DIR": "/run/user/7"})
    assert found(agent_socket.check, probe) == {"socket.missing": Level.WARNING}
    said = texts(agent_socket.check, probe)
    assert "/run/user/7/spanlite/agent.sock is not there" in said
    assert "[spanlite agent --socket /run/user/7/spanlite/agent.sock " in said
    probe = world(tmp_path, environment={"SPANLITE_SOCKET": "/x.sock", "XDG_RUNTIME_DIR": "/run/user/7"})
    assert "/x.sock is not there" in texts(agent_socket.check, probe)

"""What `make stack-down` may end: the processes that `make stack` started, and no other that has their number."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stack.daemons import Daemon, load, save


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is told to end."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_daemon_is_stopped_and_forgotten(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Servers would stay behind, or a second call would find them running."""
    file = tmp_path / "run/daemons.json"
    daemon = Daemon.of("kafka", 9092, server.pid)
    save(file, [daemon])
    assert load(file) == [daemon]
    daemon.stop()
    assert server.wait(10) == -15
    assert load(file) == []
    daemon.stop()


def test_another_process_of_the_same_number_is_left_alone(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """After a reboot, somebody else's process would be ended."""
    earlier = replace(Daemon.of("kafka", 9092, server.pid), began=1)
    save(tmp_path / "daemons.json", [earlier])
    assert load(tmp_path / "daemons.json") == []
    earlier.stop()
    assert server.poll() is None


def test_a_process_that_has_ended_is_no_daemon(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """A server that died at its start would be listed as running."""
    server.kill()
    server.wait()
    with pytest.raises(ProcessLookupError, match="kafka"):
        Daemon.of("kafka", 9092, server.pid)
    assert load(tmp_path / "absent.json") == []

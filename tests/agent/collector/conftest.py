"""What the collector's tests share: the built libraries, a place for the agent."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.collector.building import Built, build
from tests.agent.collector.tap import Tap


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which everything is built once."""
    return tmp_path_factory.mktemp("collector")


@pytest.fixture(scope="session")
def built(workshop: Path) -> Built:
    return build(workshop)


@pytest.fixture
def place() -> Iterator[Path]:
    """A path for the agent's socket, short enough for one."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "agent.sock"


@pytest.fixture
def tap(place: Path) -> Iterator[Tap]:
    listener = Tap(place)
    yield listener
    listener.stop()

"""What the collector's tests share: the built libraries, a place for the agent."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.collector.building import Built, build
from tests.agent.collector.tap import Tap


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which everything is built once."""
    return tmp_path_factory.mktemp("collector")


@pytest.fixture(scope="session")
def native_built(workshop: Path) -> Built:
    """For what the native collector alone does: NVTX, other clients' entries, sanitizers, the library itself."""
    return build(workshop)


@pytest.fixture(scope="session", params=["native", "python"])
def built(native_built: Built, request: pytest.FixtureRequest) -> Built:
    """Each collector in turn: what is tested with it holds for both."""
    return replace(native_built, twin=request.param == "python")


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

"""What tests of re-enacting share: the built libraries, and an imitated GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.cuda.building import build
from tests.replay.cuda.imitated import Gpu


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which everything is built once."""
    return tmp_path_factory.mktemp("enact")


@pytest.fixture(scope="session")
def gpu(workshop: Path) -> Gpu:
    """An imitated GPU; each test opens it for itself."""
    return Gpu(build(workshop), workshop)

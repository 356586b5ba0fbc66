"""Lets the tests import the helpers that lie beside them, as `tests.agent.…`, and starts the cluster of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

_ROOT = str(Path(__file__).parents[2])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

if TYPE_CHECKING:
    from tests.stack.flink import Flink


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """One TaskManager with room for both jobs, and a memory of them that outlives the JobManager."""
    from tests.stack.cluster import VENV
    from tests.stack.flink import Flink

    if not VENV.exists():
        pytest.skip("PyFlink is not installed: make flink-venv")
    settings = {"execution.checkpointing.interval": "2 s"}
    with Flink(tmp_path_factory.mktemp("flink"), venv=VENV, slots=3, ha=True, settings=settings) as cluster:
        yield cluster

"""Recorded batches, and archives of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spanlite.cli.embedded import Embedded, open_source
from spanlite.contract.batch import Batch
from spanlite.pipeline.embedded import Outputs
from spanlite.pipeline.windows import WindowPolicy
from tests.pipeline.archive.conftest import Facts, facts_of
from tests.replay.archives import cut, write_archive

DATA = Path(__file__).parents[1] / "data" / "h200"
NAMES = ("stages-cupti130401", "graph-cupti130500", "streams-cupti130500")


def _play(name: str) -> list[Batch]:
    batches: list[Batch] = []
    with Embedded(Outputs(batch=batches.append), policy=WindowPolicy(lateness_ns=None)) as embedded:
        embedded.play(open_source(DATA / f"{name}.bin.xz"))
    return batches


@pytest.fixture(scope="session")
def recorded() -> list[Batch]:
    """The beginnings of three recordings, as two nodes sent them: requests, CUDA graphs, several streams."""
    batches = []
    for number, name in enumerate(NAMES):
        for batch in _play(name):
            host = {"host.name": f"node-{number % 2}"}
            batches += cut(replace(batch, resource={**batch.resource, **host}), 1500)[:4]
    return batches


@pytest.fixture(scope="session")
def small(recorded: list[Batch]) -> list[Batch]:
    """The first recording in many small batches."""
    first = [batch for batch in recorded if batch.producer == recorded[0].producer]
    return [piece for batch in first[:4] for piece in cut(batch, 100)]


@pytest.fixture(scope="session")
def archive(recorded: list[Batch], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of all that was recorded, in four buckets and small row groups."""
    return write_archive(tmp_path_factory.mktemp("archive"), recorded, buckets=4, row_group_rows=5000)


@pytest.fixture(scope="session")
def small_archive(small: list[Batch], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of many small batches."""
    return write_archive(tmp_path_factory.mktemp("small"), small, buckets=2, row_group_rows=2000)


@pytest.fixture(scope="session")
def facts() -> Callable[[Batch], Facts]:
    """The values of a batch, row by row."""
    return facts_of

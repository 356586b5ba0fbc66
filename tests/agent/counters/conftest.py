"""What the counters' tests share: the built libraries."""

from __future__ import annotations

import pytest

from tests.agent.counters.building import Built, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The library and the imitations."""
    return build(tmp_path_factory.mktemp("counters"))

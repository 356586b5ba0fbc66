"""The broker of each file here: its tests kill and stall it, so no other file shares it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spanlite.transport.kafka import KafkaSettings
from tests.stack.kafka import Kafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that these tests may hurt."""
    with Kafka(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def settings(broker: Kafka) -> KafkaSettings:
    """Settings as they come."""
    return KafkaSettings(broker.bootstrap)

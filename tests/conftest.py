"""Settings of the test process that its children inherit, and the servers that several folders share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Lets every test import the helpers of any test folder, as `tests.stack.…`.
_ROOT = str(Path(__file__).parents[1])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

if TYPE_CHECKING:
    from tests.stack.kafka import Kafka


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would the commands that tests interrupt."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that start a Flink take longest: begun first, the others fill the remaining cores meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("flink") is None)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A running broker that all tests share: each takes topics and groups of its own and leaves the broker up."""
    from tests.stack.kafka import Kafka

    with Kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker

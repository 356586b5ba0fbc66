"""The agent's part in hardware counters, and what stands for it where none are sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from spanlite.contract.batch import Batch


class Hardware(Protocol):
    """What an agent starts, asks and stops.

    Attributes:
        look: is shown each batch, where that is of any use.
    """

    @property
    def look(self) -> Callable[[Batch], None] | None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def gauges(self) -> Mapping[str, list[tuple[Mapping[str, str], float]]]: ...


class Off:
    """Nothing is sampled."""

    look: Callable[[Batch], None] | None = None

    def start(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Likewise."""

    def gauges(self) -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
        """None."""
        return {}

"""A counters library that does as it is told, for threads and states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from spanlite.agent.counters.library import Decoded, Device, Versions
from spanlite.agent.counters.samples import METRICS, Samples
from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item, Outlet
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch
from spanlite.contract.errors import CountersError

MS = 10**6
START_NS = 1_790_000_000 * 10**9
WHOLE = (100.0, 100.0, 0.0, 0.0, 0.0, 0.0)
"""All SMs active, all warps resident."""


def some(first: int, count: int, *, values: Sequence[float] = WHOLE, step_ns: int = MS) -> Samples:
    """`count` samples in a row, the first at START_NS + first steps."""
    start = START_NS + (first + np.arange(count, dtype=np.int64)) * step_ns
    return Samples(start, start + step_ns, np.tile(np.array(values), (count, 1)))


class FakeOpened:
    """What `open` gave."""

    def __init__(self, library: FakeLibrary) -> None:
        self._library = library

    def decode(self) -> Decoded:
        library = self._library
        if library.refuse:
            raise CountersError(*library.refuse)
        samples = library.queue.pop(0) if library.queue else some(0, 0)
        return Decoded(samples, library.overflow, bool(library.queue), 0, library.cost_ns, 0, 0)

    def close(self) -> None:
        self._library.opened -= 1
        if self._library.refuse:
            raise CountersError(*self._library.refuse)


@dataclass
class FakeLibrary:
    """One device, unless told otherwise.

    Attributes:
        refuse: result and text with which everything is refused.
        queue: samples of each decoding to come.
        fit: how many metrics a pass takes.
        opened: handles that are open; intervals: those that it was opened with.
    """

    versions: Versions = field(default_factory=lambda: Versions(130000, 13000, 1))
    refuse: tuple[int, str] | None = None
    permission: tuple[int, str] = (0, "")
    levels: dict[str, str] = field(default_factory=lambda: {"supported": "yes", "vgpu": "yes"})
    queue: list[Samples] = field(default_factory=list)
    overflow: bool = False
    cost_ns: int = 0
    fit: int = len(METRICS)
    by_time: bool = True
    opened: int = 0
    intervals: list[tuple[int, bool]] = field(default_factory=list)
    metrics: tuple[str, ...] = ()

    def probe(self, device: int) -> Device:
        if self.refuse:
            raise CountersError(*self.refuse)
        return Device(f"GPU-{device}", "GH100", self.levels, *self.permission)

    def passes(self, device: int, metrics: tuple[str, ...]) -> int:  # noqa: ARG002 - as the real one
        return 1 + (len(metrics) > self.fit)

    def open(
        self,
        device: int,  # noqa: ARG002 - as the real one
        metrics: tuple[str, ...],
        *,
        interval: int,
        cycles: bool = False,
        hardware_bytes: int,  # noqa: ARG002
        capacity: int,  # noqa: ARG002
    ) -> FakeOpened:
        if not cycles and not self.by_time:
            raise CountersError(27, "cuptiPmSamplingSetConfig: CUPTI_ERROR_NOT_SUPPORTED (27)")
        self.metrics = metrics
        self.intervals.append((interval, cycles))
        self.opened += 1
        return FakeOpened(self)


class Kept(Outlet):
    """Keeps what it is given."""

    def __init__(self, counts: AgentCounts) -> None:
        super().__init__(counts)
        self.batches: list[Batch] = []

    def put(self, item: Item) -> None:
        self.batches.append(decode_batch(item.value))
        self.count(item.spans, len(item.value), None)

    def told(self) -> dict[str, list[float]]:
        """Values of each series, in the order in which they were told; of counters increments."""
        found: dict[str, list[float]] = {}
        for batch in self.batches:
            columns = batch.columns
            names = columns.configs["name"][columns.config].tolist()
            for name, gauge, moved in zip(names, columns.is_gauge.tolist(), columns.bytes, strict=True):
                value = float(moved.view(np.float64)) if gauge else int(moved)
                found.setdefault(columns.strings[name], []).append(value)
        return found

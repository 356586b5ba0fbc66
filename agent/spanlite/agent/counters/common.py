"""What the threads of all GPUs share."""

from __future__ import annotations

from dataclasses import dataclass

from spanlite.agent.counters.hold import Hold
from spanlite.agent.counters.kernels import Kernels
from spanlite.agent.counters.reading import Counters
from spanlite.agent.counters.telling import Teller
from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Outlet
from spanlite.contract.batch import Gpu
from spanlite.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Common:
    """Handed to each of them.

    Attributes:
        gpus: UUIDs to sample; all where it is empty.
        holds: by UUID; each thread enters its own.
        interval_ns: between samples.
        host: this node's name.
        topic: of batches.
    """

    library: Counters
    outlet: Outlet
    clock: Clock
    counts: AgentCounts
    kernels: Kernels
    holds: dict[str, Hold]
    interval_ns: int
    gpus: frozenset[str]
    host: str
    topic: str

    def teller(self, uuid: str, device: int) -> Teller:
        """Who tells of a GPU."""
        gpu = Gpu(uuid, device)
        return Teller(gpu, self.kernels, self.outlet, self.clock, self.counts, topic=self.topic, host=self.host)

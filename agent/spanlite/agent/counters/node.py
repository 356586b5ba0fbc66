"""A node's GPUs and their hardware counters: loads the library, starts a thread each, and tells how they stand."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping

from spanlite.agent.backoff import Backoff
from spanlite.agent.counters.common import Common
from spanlite.agent.counters.hold import Hold
from spanlite.agent.counters.kernels import Kernels, Looker
from spanlite.agent.counters.reading import Counters
from spanlite.agent.counters.sampling import Sampler
from spanlite.agent.counters.states import ABSENT, STARTING, advice, state_of
from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Outlet
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.errors import CountersError
from spanlite.runtime.clock import Clock
from spanlite.transport.topics import SPANS

log = logging.getLogger(__name__)

_JOIN_S = 2.0


class NodeCounters:
    """Samples from `start` to `stop`. What is wrong is a state, never an error.

    Args:
        load: loads the library; is tried again for as long as it raises CountersError.
        hz: samples a second of each GPU.
        gpus: their UUIDs; none for all that CUDA shows.

    Attributes:
        look: what the server shows each batch to.
    """

    def __init__(
        self,
        load: Callable[[], Counters],
        outlet: Outlet,
        clock: Clock,
        counts: AgentCounts,
        *,
        hz: float = 1000.0,
        gpus: frozenset[str] = frozenset(),
        topic: str = SPANS.name,
    ) -> None:
        self._load = load
        self._outlet = outlet
        self._clock = clock
        self._counts = counts
        self._interval_ns = round(1e9 / hz)
        self._gpus = gpus
        self._topic = topic
        self._kernels = Kernels()
        self._holds: dict[str, Hold] = {}
        self._state = STARTING
        self._samplers: list[Sampler] = []
        self._backoff = Backoff()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._begin, name="spanlite-counters", daemon=True)
        self.look: Callable[[Batch], None] | None = Looker(self._holds, self._kernels, clock, counts).look

    def start(self) -> None:
        """Begins to load the library, and to sample once that is done."""
        self._thread.start()

    def stop(self) -> None:
        """Ends all; what is settled by now is told."""
        self._ending.set()
        self._thread.join(_JOIN_S)
        for sampler in self._samplers:
            sampler.stop()

    def gauges(self) -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
        """State of each GPU, and what decoding has taken."""
        samplers = list(self._samplers)
        states = {sampler.uuid or f"device {at}": sampler.told_state for at, sampler in enumerate(samplers)}
        if all(sampler.uuid for sampler in samplers) and samplers:
            states |= dict.fromkeys(self._gpus - states.keys(), ABSENT)
        if not samplers:
            states = dict.fromkeys(self._gpus or [""], self._state)
        return {
            catalogue.AGENT_COUNTERS_STATE.name: [
                ({"UUID": uuid, "state": state}, 1.0) for uuid, state in sorted(states.items()) if state
            ],
            catalogue.AGENT_COUNTER_DECODE.name: [({}, sum(sampler.decode_ns for sampler in samplers) / 1e9)],
        }

    def _begin(self) -> None:
        """Loads the library, and starts the threads."""
        wait_s = 0.0
        while not self._ending.wait(wait_s):
            try:
                library = self._load()
            except CountersError as error:  # noqa: PERF203 - once in a while
                state = state_of(error)
                if state != self._state:
                    log.warning("counters: %s: %s; %s", state, error, advice(state))
                self._state = state
                wait_s = self._backoff.next_s()
            else:
                self._start(library)
                return

    def _start(self, library: Counters) -> None:
        common = Common(
            library=library,
            outlet=self._outlet,
            clock=self._clock,
            counts=self._counts,
            kernels=self._kernels,
            holds=self._holds,
            interval_ns=self._interval_ns,
            gpus=self._gpus,
            host=os.uname().nodename,
            topic=self._topic,
        )
        self._samplers = [Sampler(common, device) for device in range(library.versions.devices)]
        for sampler in self._samplers:
            sampler.start()

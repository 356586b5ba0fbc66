"""A recorded run on several streams beside samples of its GPU, from the imitation of CUPTI to a page of metrics.

python -m tests.agent.counters.serving NAME LIBRARY LIBCUPTI
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanlite.agent.counters.common import Common
from spanlite.agent.counters.hold import Hold
from spanlite.agent.counters.kernels import Kernels, Looker
from spanlite.agent.counters.library import CountersLibrary
from spanlite.agent.counters.sampling import Sampler
from spanlite.agent.counts import AgentCounts
from spanlite.agent.feeder import feed
from spanlite.agent.outlet import Direct
from spanlite.agent.recording import read_recording
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.contract import catalogue
from spanlite.exporters.families import families
from spanlite.exporters.prometheus import text
from spanlite.exporters.table import PointTable
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.agent.counters.scenarios import Mock
from tests.agent.records import DATA, kernels

RECORDING = "streams-cupti130500"
UUID = "GPU-01112131-4151-6171-8191-011121314151"
"""The imitation's device 1."""
STEP_NS = 4096
SAMPLES = 40_000
S = 10**9


def sampled() -> list[tuple[int, int, int, int]]:
    """Start of each sample, 64ths of SM time that were active, 16ths of the warps, and bytes read."""
    lots = random.Random(7)  # noqa: S311 - the same in every process
    first = min(kernel.start for kernel in kernels(RECORDING)) - STEP_NS
    return [
        (first + at * STEP_NS, lots.randint(1, 64), lots.randint(0, 16), lots.randint(0, 1 << 30))
        for at in range(SAMPLES)
    ]


def serving(mock: Mock, load: Callable[[], CountersLibrary]) -> dict[str, Any]:
    """The page, and what was counted."""
    clock, counts, broker = ManualClock(sampled()[-1][0] + S), AgentCounts(), MemoryBroker()
    outlet = Direct(MemoryProducer(broker), counts)
    library, kernel_numbers, holds = load(), Kernels(), dict[str, Hold]()
    common = Common(
        library=library,
        outlet=outlet,
        clock=clock,
        counts=counts,
        kernels=kernel_numbers,
        holds=holds,
        interval_ns=STEP_NS,
        gpus=frozenset(),
        host="n1",
        topic=SPANS_TOPIC,
    )
    sampler = Sampler(common, 1)
    sampler.step()
    look = Looker(holds, kernel_numbers, clock, counts).look
    recording = read_recording(DATA / f"{RECORDING}.bin.xz")
    with tempfile.TemporaryDirectory() as folder:
        server = AgentServer(Path(folder) / "a.sock", outlet, clock, counts, look=look)
        server.start()
        told = sampled()
        for at in range(0, SAMPLES, 20_000):
            for start, active, warps, read in told[at : at + 20_000]:
                values = active * 100 / 64, warps * 100 / 16, 50, read, 0, 3
                mock.sample(start, start + STEP_NS, values[1], values[0], *values[2:])
            sampler.step()
        feed(replace(recording, gpu={**recording.gpu, "uuid": UUID}), Path(folder) / "a.sock", clock=clock)
        server.stop()
    clock.advance_ns(5 * S)
    sampler.step()
    sampler.end()
    broker.close()
    table = PointTable()
    pipeline = EmbeddedPipeline(MemoryConsumer(broker, SPANS_TOPIC), Outputs(total_points=table.put))
    for _ in drain(pipeline):
        pass
    pipeline.finish()
    return {
        "page": text(families(table.snapshot())).decode(),
        "fates": counts.by_label(catalogue.AGENT_COUNTER_SAMPLES),
        "lost": counts.by_label(catalogue.AGENT_COUNTER_LOST),
        "late": counts.value(catalogue.AGENT_COUNTER_LATE_SPANS),
        "adds up": counts.value(catalogue.AGENT_SPANS_RECEIVED) == counts.value(catalogue.AGENT_SPANS_SENT),
        "failures": [str(failure) for failure in server.failures],
        **mock.told("enabled", "hosts", "violations"),
    }


if __name__ == "__main__":
    paths = [Path(word) for word in sys.argv[2:]]
    json.dump(serving(Mock(paths[1]), lambda: CountersLibrary(*paths)), sys.stdout)

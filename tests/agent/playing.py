"""Plays recordings and hand-made frames through the agent and reads what it sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanlite.agent.counts import AgentCounts
from spanlite.agent.feeder import feed
from spanlite.agent.frames import Frame, Header, pack_text
from spanlite.agent.process import TracedProcess
from spanlite.agent.recording import Recording
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer

Column = npt.NDArray[Any]
HELLO = {
    "cupti_version": "130500",
    "session": "00000000000000ab",
    "gpu.0.uuid": "GPU-0",
    "gpu.0.compute_major": "9",
    "gpu.1.uuid": "GPU-1",
    "gpu.1.compute_major": "9",
}
PLACES = ("device_id", "context_id", "stream_id", "channel_id", "channel_type", "thread_id", "gpu")


@dataclass(frozen=True)
class Played:
    """What a recording became."""

    values: list[bytes]
    counts: AgentCounts
    failures: list[Exception]

    @property
    def batches(self) -> list[Batch]:
        return [decode_batch(value) for value in self.values]


def play(recording: Recording, folder: Path) -> Played:
    """Feeder, unix socket, agent and memory transport; the server is stopped when the recording has gone through."""
    broker, counts = MemoryBroker(), AgentCounts()
    server = AgentServer(folder / "agent.sock", MemoryProducer(broker), ManualClock(), counts)
    server.start()
    try:
        feed(recording, folder / "agent.sock", clock=ManualClock())
    finally:
        server.stop()
    taken = MemoryConsumer(broker, SPANS_TOPIC).poll(1 << 30, 0)
    return Played([record.value for record in taken], counts, server.failures)


def process(said: Mapping[str, str] | None = None, counts: AgentCounts | None = None) -> TracedProcess:
    """A process that has said hello."""
    payload = pack_text({**HELLO, **(said or {})})
    header = Header(Frame.HELLO, len(payload), 0)
    return TracedProcess.from_hello(header, payload, 4711, ManualClock(), counts or AgentCounts())


def take(traced: TracedProcess, frames: Iterable[tuple[Frame, bytes]], first: int = 1) -> list[Batch]:
    """The batches that frames complete."""
    batches: list[Batch] = []
    for sequence, (kind, payload) in enumerate(frames, first):
        batches += traced.take(Header(kind, len(payload), sequence), payload)
    return batches


def rows(batches: Iterable[Batch]) -> dict[str, Column]:
    """All spans as columns whose tables are looked up, in the order in which they came; texts and ids as objects."""
    parts: dict[str, list[Column]] = {}
    for batch in batches:
        columns = batch.columns
        strings = np.array(columns.strings, dtype=object)
        configs, places = columns.configs[columns.config], columns.places[columns.place]
        ids = np.array([bytes(one) for one in columns.traces["id"]] + [b""], dtype=object)
        starts = np.append(columns.traces["start_ns"], -1)
        remote_parents = np.append(columns.traces["remote_parent"], np.uint64(0))
        found: dict[str, Column] = {
            name: getattr(columns, name)
            for name in ("kind", "start_ns", "duration_ns", "correlation", "bytes", "parent", "range_number", "weight")
        }
        found |= {"name": strings[configs["name"]], "kernel": strings[configs["kernel"]]}
        found |= {
            "stage": strings[columns.stage],
            "trace": ids[columns.trace],
            "trace_start": starts[columns.trace],
            "remote_parent": remote_parents[columns.trace],
            "span": batch.span_ids,
        }
        found |= {name: configs[name] for name in (configs.dtype.names or ())[2:]}
        found |= {name: places[name] for name in PLACES}
        found |= {"graph_id": columns.nodes["graph_id"][columns.node]}
        found |= {"graph_node_id": columns.nodes["graph_node_id"][columns.node]}
        for name, values in found.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def ordered(table: Mapping[str, Column], chosen: npt.NDArray[np.bool_] | None = None) -> dict[str, Column]:
    """The rows (of a mask) in an order that does not depend on how they came."""
    order = np.lexsort(
        [table[name] for name in ("range_number", "graph_node_id", "stream_id", "correlation", "start_ns")]
    )
    if chosen is not None:
        order = order[chosen[order]]
    return {name: values[order] for name, values in table.items()}

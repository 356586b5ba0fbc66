"""A node agent that keeps the kernels' columns: `python benchmarks/gpu/keep.py SOCKET FILE.npz`, until its input ends.

The file has one row a kernel: name (index into `names`), start and duration in ns, stream, launch shape, registers,
shared memory, theoretical occupancy in warps, and `launch`, which counts launches. It prints one line of JSON: spans,
and losses by reason.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item, Outlet
from spanlite.agent.server import AgentServer
from spanlite.contract import catalogue
from spanlite.contract.codec import decode_batch
from spanlite.contract.columns import KERNEL
from spanlite.runtime.clock import SystemClock

SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread")
MEMORY = ("static_shared_memory", "dynamic_shared_memory", "active_warps", "max_warps", "limiter")


class Kept(Outlet):
    """Keeps the columns of what comes."""

    def __init__(self, counts: AgentCounts) -> None:
        super().__init__(counts)
        self.names: dict[str, int] = {}
        self.columns: dict[str, list[np.ndarray]] = {}

    def put(self, item: Item) -> None:
        """One encoded batch."""
        columns = decode_batch(item.value).columns
        rows = columns.kind == KERNEL
        configs = columns.configs[columns.config[rows]]
        numbers = np.array([self.names.setdefault(text, len(self.names)) for text in columns.strings], np.int64)
        found = {name: configs[name] for name in (*SHAPE, *MEMORY)}
        found |= {"name": numbers[configs["name"]], "stream": columns.places["stream_id"][columns.place[rows]]}
        found |= {"start_ns": columns.start_ns[rows], "duration_ns": columns.duration_ns[rows]}
        found["launch"] = columns.correlation[rows]
        for name, values in found.items():
            self.columns.setdefault(name, []).append(values)
        self.count(item.spans, len(item.value), None)


def main(path: Path, file: Path) -> None:
    """Listens until told to stop."""
    counts = AgentCounts()
    kept = Kept(counts)
    server = AgentServer(path, kept, SystemClock(), counts)
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(grace_s=10.0)
    columns = {name: np.concatenate(values) for name, values in kept.columns.items()}
    np.savez(file, names=np.array(list(kept.names)), **columns)  # type: ignore[arg-type]  # its flag comes after *args
    dropped = counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    print(json.dumps({"spans": len(columns.get("start_ns", ())), "dropped": dropped}, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

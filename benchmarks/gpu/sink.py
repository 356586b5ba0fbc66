"""A node agent that keeps nothing but sums: `python benchmarks/gpu/sink.py SOCKET`, until its standard input ends.

Then it prints one line of JSON: executions and ns by kernel name, by kind and by stage, distinct traces, losses by
reason.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item, Outlet
from spanlite.agent.server import AgentServer
from spanlite.contract import catalogue
from spanlite.contract.codec import decode_batch
from spanlite.contract.columns import RANGE, Kind
from spanlite.runtime.clock import SystemClock


class Sums(Outlet):
    """Adds up what comes."""

    def __init__(self, counts: AgentCounts) -> None:
        super().__init__(counts)
        self.executions: Counter[str] = Counter()
        self.ns: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()
        self.traces: set[bytes] = set()
        self.batches = 0
        self.bytes = 0
        self.weight = 0

    def put(self, item: Item) -> None:
        """One encoded batch."""
        self._take(item)
        self.count(item.spans, len(item.value), None)

    def _take(self, item: Item) -> None:
        columns = decode_batch(item.value).columns
        self.batches += 1
        self.bytes += len(item.value)
        names = columns.configs["name"][columns.config]
        for kind in Kind:
            rows = columns.kind == int(kind)
            self.kinds[kind.name.lower()] += int(rows.sum())
            if kind == RANGE:
                continue
            for text in np.unique(names[rows]).tolist():
                chosen = rows & (names == text)
                label = columns.strings[text] if kind == Kind.KERNEL else kind.name.lower()
                self.executions[label] += int(chosen.sum())
                self.ns[label] += int(columns.duration_ns[chosen].sum())
            self.weight += int(columns.weight[rows].sum())
        work = columns.kind == int(Kind.KERNEL)
        for stage in np.unique(columns.stage[work]).tolist():
            self.stages[columns.strings[stage]] += int((columns.stage[work] == stage).sum())
        self.traces.update(bytes(one) for one in columns.traces["id"])


def main(path: Path) -> None:
    """Listens until told to stop."""
    counts = AgentCounts()
    sums = Sums(counts)
    server = AgentServer(path, sums, SystemClock(), counts)
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    server.stop(grace_s=10.0)
    told = {name: getattr(sums, name) for name in ("executions", "ns", "kinds", "stages", "batches", "bytes", "weight")}
    agent = {
        "received": counts.value(catalogue.AGENT_SPANS_RECEIVED),
        "dropped": counts.value(catalogue.AGENT_SPANS_DROPPED),
        "dropped_by_reason": counts.by_label(catalogue.AGENT_SPANS_DROPPED),
    }
    failures = [f"{type(failure).__name__}: {failure}" for failure in server.failures]
    print(json.dumps({**told, "traces": len(sums.traces), "agent": agent, "failures": failures}, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

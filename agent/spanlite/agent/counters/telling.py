"""What a GPU's samples come to, once a second as observations of a session of the agent's own."""

from __future__ import annotations

import secrets
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from spanlite.agent.batcher import Batcher
from spanlite.agent.columns import in_start_order
from spanlite.agent.counters.hold import NOBODY
from spanlite.agent.counters.kernels import Kernels
from spanlite.agent.counters.measuring import Measured
from spanlite.agent.counters.samples import DRAM_READ, DRAM_WRITE, L2_SECTORS, TENSOR, WARPS
from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Outlet, item_of
from spanlite.contract import catalogue
from spanlite.contract.achieved import KERNEL, KERNEL_ACTIVE, KERNEL_WARPS, MARK
from spanlite.contract.batch import Gpu
from spanlite.contract.columns import (
    CONFIG,
    COUNTER,
    GAUGE,
    NODE,
    PLACE,
    TRACE,
    Int32,
    SpanColumns,
    empty_table,
    make_columns,
)
from spanlite.contract.customs import write_series
from spanlite.runtime.clock import Clock

SERVICE = "spanlite-agent"
_FLOAT, _BITS = struct.Struct("<d"), struct.Struct("<q")
_RATIOS = {WARPS: catalogue.GPU_WARPS_ACTIVE, TENSOR: catalogue.GPU_TENSOR_ACTIVE}
_TOTALS = {
    DRAM_READ: catalogue.GPU_DRAM_READ,
    DRAM_WRITE: catalogue.GPU_DRAM_WRITE,
    L2_SECTORS: catalogue.GPU_L2_SECTORS,
}
_SM_ACTIVE = catalogue.GPU_SM_ACTIVE.name


class _Row(NamedTuple):
    """An observation: kind, name and labels of its series; an increment, or the bits of a gauge's value."""

    kind: int
    name: str
    labels: Mapping[str, str]
    value: int


class Teller:
    """Adds up one GPU's samples and tells; the GPU's thread alone calls.

    Args:
        host: its name, as in the resource of this node's processes.
    """

    def __init__(
        self, gpu: Gpu, kernels: Kernels, outlet: Outlet, clock: Clock, counts: AgentCounts, *, topic: str, host: str
    ) -> None:
        self._kernels = kernels
        self._outlet = outlet
        self._clock = clock
        self._counts = counts
        self._topic = topic
        session = secrets.randbits(64)
        resource = {"host.name": host, "service.name": SERVICE}
        self._batcher = Batcher(session.to_bytes(8, "big") + bytes(8), session, resource, (gpu,), clock)
        self._length_ns = 0
        self._time_ns: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._owned: dict[int, list[int]] = {}

    def add(self, measured: Measured) -> None:
        """Samples of the whole GPU, as soon as they were decoded."""
        self._length_ns += int(measured.samples.duration_ns.sum())
        self._time_ns[_SM_ACTIVE] += int(measured.active_ns.sum())
        for metric, values in measured.weighted_ns.items():
            self._time_ns[_RATIOS[metric].name] += int(values.sum())
        for metric, values in measured.sums.items():
            self._totals[_TOTALS[metric].name] += int(values.sum())

    def add_owned(self, measured: Measured, kernel: Int32) -> None:
        """Samples of kernels, once it is known whose they are.

        Args:
            kernel: number of each sample's, NOBODY for those of none.
        """
        for number in np.unique(kernel[kernel != NOBODY]).tolist():
            mine = kernel == number
            sums = self._owned.setdefault(number, [0, 0])
            sums[0] += int(measured.active_ns[mine].sum())
            sums[1] += int(measured.weighted_ns[WARPS][mine].sum())

    def tell(self) -> None:
        """Hands on what came since the last call, if anything did, under the time of now."""
        rows = [*self._gpu_rows(), *self._kernel_rows()]
        self._length_ns = 0
        self._time_ns.clear()
        self._totals.clear()
        self._owned.clear()
        if not rows:
            return
        self._counts.add(catalogue.AGENT_SPANS_RECEIVED, len(rows))
        for batch in self._batcher.cut(in_start_order(_columns(rows, self._clock.unix_ns()))):
            self._outlet.put(item_of(batch, self._topic))

    def _gpu_rows(self) -> list[_Row]:
        if not self._length_ns:
            return []
        ratios = [_Row(GAUGE, name, {}, _bits(time / self._length_ns)) for name, time in self._time_ns.items()]
        return [*ratios, *(_Row(COUNTER, name, {}, total) for name, total in self._totals.items())]

    def _kernel_rows(self) -> list[_Row]:
        return [
            _Row(COUNTER, name, {KERNEL: self._kernels.name(number)}, value)
            for number, sums in self._owned.items()
            for name, value in zip((KERNEL_ACTIVE, KERNEL_WARPS), sums, strict=True)
        ]


def _columns(rows: Sequence[_Row], now_ns: int) -> SpanColumns:
    """One observation a row, of the only GPU."""
    strings = {"": 0, MARK: 1}
    configs, places = empty_table(CONFIG, len(rows)), empty_table(PLACE, 1)
    places["gpu"] = 1
    for at, row in enumerate(rows):
        configs["kernel"][at] = strings.setdefault(row.name, len(strings))
        configs["name"][at] = strings.setdefault(write_series(row.name, row.labels), len(strings))
    count = len(rows)
    return make_columns(
        np.full(count, now_ns),
        np.zeros(count, dtype=np.int64),
        tables=(tuple(strings), configs, places, empty_table(NODE, 1), empty_table(TRACE)),
        kind=np.array([row.kind for row in rows]),
        config=np.arange(count),
        stage=np.ones(count),
        bytes=np.array([row.value for row in rows], dtype=np.int64),
    )


def _bits(value: float) -> int:
    bits: int = _BITS.unpack(_FLOAT.pack(value))[0]
    return bits

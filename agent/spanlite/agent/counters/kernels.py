"""Which kernels ran on which GPU and when, taken from the batches that the agent makes."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.counters.hold import NOBODY, Hold, Spans
from spanlite.agent.counts import AgentCounts
from spanlite.agent.observations import MOST_SERIES
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.columns import KERNEL, MEMCPY, MEMSET, Int32, SamplingMode, SpanColumns
from spanlite.contract.points import OTHER
from spanlite.runtime.clock import Clock

MOST_KERNELS = MOST_SERIES // 2
"""Of an agent, as each makes two series; what comes after that is `other`."""
_DEVICE_TO_DEVICE = 8
"""CUpti_ActivityMemcpyKind: such copies run on SMs, or may."""
_TOLD = "spanlite.collector.sampling"
_FULL = "full"


class Kernels:
    """Numbers kernels by their bounded ids, in the order in which they come. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names = [OTHER]
        self._numbers = {OTHER: 0}

    def number(self, kernel: str) -> int:
        """A kernel's number; that of `other` where there are too many."""
        with self._lock:
            if kernel not in self._numbers and len(self._names) <= MOST_KERNELS:
                self._numbers[kernel] = len(self._names)
                self._names.append(kernel)
            return self._numbers.get(kernel, 0)

    def name(self, number: int) -> str:
        """The id of a number."""
        return self._names[number]


class Looker:
    """Offers a batch's work on SMs to the holds of the GPUs that it ran on.

    Args:
        holds: by a GPU's UUID; may grow while this lives.
    """

    def __init__(self, holds: Mapping[str, Hold], kernels: Kernels, clock: Clock, counts: AgentCounts) -> None:
        self._holds = holds
        self._kernels = kernels
        self._clock = clock
        self._counts = counts

    def look(self, batch: Batch) -> None:
        """Takes what it needs as copies; a thread that works off a process's frame calls this."""
        held = [(at, self._holds[gpu.uuid]) for at, gpu in enumerate(batch.gpus, 1) if gpu.uuid in self._holds]
        columns = batch.columns
        if not held or not len(columns):
            return
        on_sms = _on_sms(columns)
        gpu = columns.places["gpu"][columns.place]
        complete = _is_complete(batch)
        for at, hold in held:
            rows = np.flatnonzero(on_sms & (gpu == at))
            if len(rows):
                start = columns.start_ns[rows]
                spans = Spans(start, start + columns.duration_ns[rows], self._numbers(columns, rows))
                late = hold.offer(batch.session, spans, complete=complete, now_ns=self._clock.unix_ns())
                self._counts.add(catalogue.AGENT_COUNTER_LATE_SPANS, late)

    def _numbers(self, columns: SpanColumns, rows: NDArray[np.intp]) -> Int32:
        """Number of each row's kernel, NOBODY where it is none."""
        config, is_kernel = columns.config[rows], columns.kind[rows] == KERNEL
        used = np.zeros(len(columns.configs), dtype=np.bool_)
        used[config[is_kernel]] = True
        by_config = np.full(len(used), NOBODY, dtype=np.int32)
        texts = columns.configs["kernel"][used].tolist()
        by_config[used] = [self._kernels.number(columns.strings[text]) for text in texts]
        return by_config[config]


def _on_sms(columns: SpanColumns) -> NDArray[np.bool_]:
    kind = columns.kind
    inside = columns.configs["copy_kind"][columns.config] == _DEVICE_TO_DEVICE
    return np.asarray((kind == KERNEL) | (kind == MEMSET) | ((kind == MEMCPY) & inside))


def _is_complete(batch: Batch) -> bool:
    """Whether a process's spans are all that it ran, as far as it can be told.

    Windows are ranges of launches, not of time: what was launched before one may run within it.
    """
    told = batch.resource.get(_TOLD, _FULL)
    return batch.sampling == SamplingMode.FULL and told != "duty" and bool((batch.columns.weight == 1).all())

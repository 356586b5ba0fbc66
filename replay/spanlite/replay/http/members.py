"""Which values stand in each trace: kernels, GPUs, stages, each once, with how many spans and how much time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spanlite.contract.columns import Int32, Int64
from spanlite.replay.runs import change_points

_LOW = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Members:
    """Values of n traces, m in all.

    Attributes:
        begin: place of each trace's first, and one beyond the last, shape (n + 1,).
        value: ascending within a trace, shape (m,).
        spans, duration_ns: of each, shape (m,); empty where nobody asked.
    """

    begin: Int64
    value: Int32
    spans: Int64
    duration_ns: Int64

    def count(self, trace: int) -> int:
        """How many values a trace has."""
        return int(self.begin[trace + 1] - self.begin[trace])

    def place(self, trace: int) -> range:
        """Where those of a trace stand."""
        return range(int(self.begin[trace]), int(self.begin[trace + 1]))


class Found:
    """Values as they are found, and their sums if they are to be `summed`."""

    def __init__(self, *, summed: bool) -> None:
        self._summed = summed
        self._keys: list[Int64] = []
        self._sums: list[Int64] = []

    def add(self, owner: Int64, value: Int32, duration_ns: Int64) -> None:
        """Adds spans: the number of what each is of, its value, its duration; shape (k,) each."""
        sums = np.stack([np.ones_like(duration_ns), duration_ns])[: 2 * self._summed]
        keys, sums = _joined(owner << 32 | value, sums)
        self._keys.append(keys)
        self._sums.append(sums)

    def members(self, trace: Int64, count: int) -> Members:
        """All of them, by trace.

        Args:
            trace: 0 … count - 1, of each number that was an owner.
            count: of traces.
        """
        keys, sums = np.concatenate(self._keys), np.concatenate(self._sums, axis=1)
        self._keys.clear()
        self._sums.clear()
        keys, sums = _joined(trace[keys >> 32] << 32 | keys & _LOW, sums)
        begin = np.searchsorted(keys, np.arange(count + 1, dtype=np.int64) << 32)
        return Members(begin, (keys & _LOW).astype(np.int32), *(sums if self._summed else np.zeros((2, 0), np.int64)))


def _joined(keys: Int64, sums: Int64) -> tuple[Int64, Int64]:
    """Each key once, ascending, and the sums of what stood at it."""
    order = np.argsort(keys, kind="stable")
    begins = change_points(keys[order])
    if not len(begins):
        return keys, sums
    return keys[order[begins]], np.add.reduceat(sums[:, order], begins, axis=1)

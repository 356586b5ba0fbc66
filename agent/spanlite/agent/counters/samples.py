"""Samples of a GPU's counters as columns, and which metrics they are of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64

Float64 = NDArray[np.float64]

WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
SM_ACTIVE = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITE = "dram__bytes_write.sum"
L2_SECTORS = "lts__t_sectors.sum"
METRICS = (WARPS, SM_ACTIVE, TENSOR, DRAM_READ, DRAM_WRITE, L2_SECTORS)
"""What is sampled, most wanted first; a chip that cannot take all in one pass gets as many as it can, in this order."""
NEEDED = (WARPS, SM_ACTIVE)
"""Without these there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Intervals of one GPU, in order, none overlapping another.

    Attributes:
        start_ns, end_ns: int64 Unix nanoseconds, shape (n,).
        values: float64, shape (n, metrics): percents and sums over the interval.
    """

    start_ns: Int64
    end_ns: Int64
    values: Float64

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> Int64:
        """Length of each."""
        return self.end_ns - self.start_ns

    def take(self, rows: Int64 | NDArray[np.bool_] | slice) -> Samples:
        """The samples named by an index array, a mask or a slice."""
        return Samples(self.start_ns[rows], self.end_ns[rows], self.values[rows])

    def joined(self, more: Samples) -> Samples:
        """Both, one after the other."""
        return Samples(
            np.concatenate((self.start_ns, more.start_ns)),
            np.concatenate((self.end_ns, more.end_ns)),
            np.concatenate((self.values, more.values)),
        )


def no_samples(metrics: int) -> Samples:
    """None, of so many metrics."""
    nothing = np.zeros(0, dtype=np.int64)
    return Samples(nothing, nothing, np.zeros((0, metrics)))

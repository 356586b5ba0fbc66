"""Samples to whole numbers that can be added up in any order: nanoseconds, bytes, sectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.counters.samples import (
    DRAM_READ,
    DRAM_WRITE,
    L2_SECTORS,
    SM_ACTIVE,
    TENSOR,
    WARPS,
    Float64,
    Samples,
)
from spanlite.contract.columns import Int64

OF_ACTIVE = (WARPS, TENSOR)
"""Percents of the time in which SMs were active."""
SUMS = (DRAM_READ, DRAM_WRITE, L2_SECTORS)
_MOST_PERCENT = 101.0
"""Counters are read one after the other, so that a full one may come out a little over."""
_MOST_SUM = float(1 << 50)


@dataclass(frozen=True, slots=True)
class Measured:
    """Sound samples as whole numbers, one entry a sample.

    Attributes:
        samples: those that are sound.
        active_ns: length × share of SM time that was active.
        weighted_ns: of OF_ACTIVE's metrics that are sampled, active_ns × their share.
        sums: of SUMS's metrics that are sampled, what they counted.
    """

    samples: Samples
    active_ns: Int64
    weighted_ns: dict[str, Int64]
    sums: dict[str, Int64]


def measure(samples: Samples, metrics: Sequence[str]) -> Measured:
    """Drops what cannot be, and rounds the rest, each sample for itself.

    Where no SM was active, shares of that time are 0, whatever CUPTI makes of 0 / 0.

    Args:
        metrics: of the columns of `samples`; SM_ACTIVE is among them.
    """
    column = {metric: samples.values[:, at] for at, metric in enumerate(metrics)}
    idle = column[SM_ACTIVE] == 0
    for metric in OF_ACTIVE:
        if metric in column:
            column[metric] = np.where(idle, 0.0, column[metric])
    keep = samples.end_ns > samples.start_ns
    for metric, values in column.items():
        keep &= (values >= 0) & (values <= (_MOST_SUM if metric in SUMS else _MOST_PERCENT))  # no nan is either
    if not keep.all():
        samples = samples.take(keep)
        column = {metric: values[keep] for metric, values in column.items()}
    active: Float64 = samples.duration_ns * (column[SM_ACTIVE] / 100)
    return Measured(
        samples,
        _whole(active),
        {metric: _whole(active * (column[metric] / 100)) for metric in OF_ACTIVE if metric in column},
        {metric: _whole(column[metric]) for metric in SUMS if metric in column},
    )


def _whole(values: NDArray[np.float64]) -> Int64:
    return np.rint(values).astype(np.int64)

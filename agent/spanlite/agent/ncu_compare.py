"""The occupancy model against the figures of Nsight Compute, launch by launch.

Sizes that ncu printed rounded are known within a slack; the model is run at both ends of it, and a figure of ncu's
between the two results counts as equal. Sizes in bytes have no slack, so there the comparison is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.ncu import (
    BARRIER_LIMIT,
    BARRIERS,
    CONFIG,
    DYNAMIC,
    FIGURES,
    REGISTERS,
    STATIC,
    THEORETICAL,
    FloatColumn,
    NcuLaunches,
)
from spanlite.agent.occupancy import Occupancy, SmLimits, occupancy, sm_limits
from spanlite.contract.errors import UsageError


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one launch where ncu and the model disagree."""

    line: int
    kernel: str
    field: str
    ours: float
    theirs: float


def compare(launches: NcuLaunches) -> list[Difference]:
    """Every figure that ncu printed and the model does not confirm, by line; empty when all are equal.

    Raises:
        UsageError: a compute capability that the model does not know; the message names the line.
    """
    differences: list[Difference] = []
    for major, minor in np.unique(launches.capabilities, axis=0):
        at = np.flatnonzero((launches.capabilities == (major, minor)).all(axis=1))
        try:
            limits = sm_limits(int(major), int(minor))
        except UsageError as error:
            raise UsageError(f"line {launches.lines[at[0]]}: {error}") from error
        low, high = _bounds(launches, at, limits)
        for name, field in FIGURES.items():
            if name not in launches.numbers or (name == BARRIER_LIMIT and BARRIERS not in launches.numbers):
                continue  # not printed, or the count that it follows from was not
            differences += _field_differences(launches, at, name, (_column(low, field), _column(high, field)))
    order = {name: index for index, name in enumerate(FIGURES)}
    return sorted(differences, key=lambda difference: (difference.line, order[difference.field]))


def _bounds(launches: NcuLaunches, at: NDArray[np.intp], limits: SmLimits) -> tuple[Occupancy, Occupancy]:
    """The model at the least and the most shared memory that the printed sizes allow."""
    numbers = launches.numbers
    config, slack = numbers[CONFIG].values[at], numbers[CONFIG].slack[at]
    sizes = np.array(limits.shared_memory_configs, dtype=np.float64)
    nearest = sizes[np.abs(config[:, None] - sizes).argmin(axis=1)]
    config = np.where(np.abs(nearest - config) <= slack, nearest, config)
    barriers = np.nan_to_num(numbers[BARRIERS].values[at]) if BARRIERS in numbers else np.zeros(len(at))
    static, dynamic = numbers[STATIC], numbers[DYNAMIC]

    def at_end(sign: int) -> Occupancy:
        return occupancy(
            limits,
            threads_per_block=launches.threads[at],
            registers_per_thread=numbers[REGISTERS].values[at].astype(np.int64),
            static_shared_memory=_whole(static.values[at] + sign * static.slack[at]),
            dynamic_shared_memory=_whole(dynamic.values[at] + sign * dynamic.slack[at]),
            shared_memory_config=np.maximum(config, 1).astype(np.int64),  # 0 is a carve-out here, not "the largest"
            barriers=barriers.astype(np.int64),
        )

    return at_end(-1), at_end(1)


def _field_differences(
    launches: NcuLaunches, at: NDArray[np.intp], name: str, ends: tuple[FloatColumn, FloatColumn]
) -> list[Difference]:
    theirs, slack = launches.numbers[name].values[at], launches.numbers[name].slack[at]
    if name == THEORETICAL:
        slack = np.maximum(slack, 0.005)  # percent, printed with two decimals
    reach = slack + 1e-9
    off = (theirs < np.minimum(*ends) - reach) | (theirs > np.maximum(*ends) + reach)  # NaN is never off
    return [
        Difference(int(launches.lines[at[i]]), launches.kernels[at[i]], name, float(ends[1][i]), float(theirs[i]))
        for i in np.flatnonzero(off)
    ]


def _column(result: Occupancy, field: str) -> FloatColumn:
    column: FloatColumn = np.asarray(getattr(result, field), dtype=np.float64)
    return column * 100 if field == "ratio" else column


def _whole(values: FloatColumn) -> NDArray[np.int64]:
    return np.maximum(np.rint(values), 0).astype(np.int64)

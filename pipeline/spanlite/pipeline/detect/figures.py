"""The figures of points that rules speak of, as columns: one float64 a point."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.histogram import PER_OCTAVE
from spanlite.pipeline.partial import Partial
from spanlite.pipeline.pointset import PointSet

_Floats = NDArray[np.float64]
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,6})?|100)")
TIME, NUMBER, SHARE = "time", "number", "share"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure by its name in rules.

    Attributes:
        unit: TIME (nanoseconds), NUMBER or SHARE (0 to 1).
        of: the figure of each point; nan where it is not known.
    """

    name: str
    unit: str
    of: Callable[[PointSet], _Floats]


def quantiles_ns(rows: Partial, q: float) -> _Floats:
    """`contract.histogram.quantile_ns` of each row: the geometric middle of the bucket that holds rank ceil(q * n)."""
    if not len(rows.bucket_row):
        return np.full(len(rows), np.nan)
    buckets = np.bincount(rows.bucket_row, minlength=len(rows))
    filled = buckets > 0
    counts = np.cumsum(rows.bucket_count)
    last = np.cumsum(buckets) - 1
    through = np.where(filled, counts[last], 0)
    before = np.concatenate([[0], counts])[last - buckets + 1]
    executions = through - before
    rank = np.clip(np.ceil(q * executions).astype(np.int64), 1, np.maximum(executions, 1))
    at = np.minimum(np.searchsorted(counts, before + rank, side="left"), len(counts) - 1)
    used, place = np.unique(rows.bucket_index[at], return_inverse=True)
    middles = np.array([2.0 ** ((index - 0.5) / PER_OCTAVE) * 1e9 for index in used.tolist()])
    return np.where(filled, middles[place], np.nan)


def _quantile(q: float) -> Callable[[PointSet], _Floats]:
    return lambda points: quantiles_ns(points.rows, q)


def _mean(points: PointSet) -> _Floats:
    rows = points.rows
    mean: _Floats = np.divide(rows.sum_ns, rows.count, out=np.full(len(rows), np.nan), where=rows.count > 0)
    return mean


def _max(points: PointSet) -> _Floats:
    return points.rows.max_ns.astype(np.float64)


def _time(points: PointSet) -> _Floats:
    return points.rows.sum_ns.astype(np.float64)


def _calls(points: PointSet) -> _Floats:
    return points.rows.count.astype(np.float64)


def _occupancy(points: PointSet) -> _Floats:
    rows = points.rows
    warps = np.array([*(series.launch.max_warps for series in points.registry.series), 0], dtype=np.float64)
    whole = rows.sum_ns * warps[rows.series]
    share: _Floats = np.divide(rows.warp_ns, whole, out=np.full(len(rows), np.nan), where=whole > 0)
    return share


_PLAIN = {
    figure.name: figure
    for figure in (
        Figure("mean", TIME, _mean),
        Figure("max", TIME, _max),
        Figure("time", TIME, _time),
        Figure("calls", NUMBER, _calls),
        Figure("occupancy", SHARE, _occupancy),
    )
}
NAMES = ("p50, p90, p99, p99.9, …", *_PLAIN)


def figure_of(name: str) -> Figure | None:
    """The figure of a name, None where there is none: one of _PLAIN, or p and a percentage."""
    match = _QUANTILE.fullmatch(name)
    if match is None:
        return _PLAIN.get(name)
    q = float(Decimal(match[1]) / 100)
    return Figure(name, TIME, _quantile(q)) if q > 0 else None

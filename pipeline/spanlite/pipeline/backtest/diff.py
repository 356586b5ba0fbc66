"""Two sets of points compared row by row: what only one has, what differs and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64
from spanlite.contract.errors import UsageError
from spanlite.pipeline.detect.figures import quantiles_ns
from spanlite.pipeline.partial import Partial, select
from spanlite.pipeline.pointset import PointSet
from spanlite.pipeline.series import SeriesRegistry

_Mask = NDArray[np.bool_]
_Floats = NDArray[np.float64]
_Column = Int64 | _Floats
NUMBERS = ("count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes")
_QUANTILES = (0.5, 0.9, 0.99)
_WIDEST_NS = 1 << 60
_LEAST = 2.0**-64
"""What an exemplar weighs: it is shown, and stands behind every difference in a figure."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two sets of points, aligned: each has one row for each window and series.

    Attributes:
        a, b: the sets, of one width (or both cumulative) and one registry.
        only_a, only_b: rows of each that the other lacks, ascending.
        both_a, both_b: rows of each that the other has as well, in the same order, shape (n,).
        off: by field how much the two differ, relative to the greater: 0 where they count as equal, shape (n,).
    """

    a: PointSet
    b: PointSet
    only_a: Int64
    only_b: Int64
    both_a: Int64
    both_b: Int64
    off: Mapping[str, _Floats]

    @property
    def worst(self) -> _Floats:
        """The greatest difference of each common row, shape (n,)."""
        worst: _Floats = np.maximum.reduce([np.zeros(len(self.both_a)), *self.off.values()])
        return worst

    @property
    def changed(self) -> Int64:
        """Places in `both_a` whose points differ, worst first."""
        worst = self.worst
        found = np.flatnonzero(worst > 0)
        return found[np.argsort(-worst[found], kind="stable")]

    @property
    def equal(self) -> bool:
        """Whether there is no difference at all."""
        return not (len(self.only_a) or len(self.only_b) or (self.worst > 0).any())


def compare(a: PointSet, b: PointSet, *, tolerance: float = 0.0) -> Difference:
    """Compares points of equal or different windows, or with cumulative ones.

    The set of finer windows is folded into those of the other, which must be a multiple of them; where one is
    cumulative, the other is added up, and the times that both tell of are rounded to windows that fit both. Points of
    one series and window add up first.

    Args:
        tolerance: numbers count as equal when they differ by no more than this share of the greater. With 0 everything
            must be the same; else buckets by their quantiles, and exemplars do not matter.

    Raises:
        UsageError: neither width is a multiple of the other.
    """
    a, b = aligned(a, b)
    only_a, only_b, both_a, both_b = _matched(a, b)
    rows_a, rows_b = _rows(a.rows, both_a), _rows(b.rows, both_b)
    off = {name: _apart(getattr(rows_a, name), getattr(rows_b, name), tolerance) for name in NUMBERS}
    for name in ("begin_ns", "end_ns"):
        edge_a, edge_b = getattr(a, name), getattr(b, name)
        if edge_a is not None and edge_b is not None:
            off[name] = (edge_a[both_a] != edge_b[both_b]).astype(np.float64)
    if tolerance:
        off |= {f"p{100 * q:.0f}": _quantile_apart(rows_a, rows_b, q, tolerance) for q in _QUANTILES}
    else:
        off["buckets"] = _buckets_apart(rows_a, rows_b)
        if a.exemplars and b.exemplars:
            off["exemplar"] = _exemplars_apart(rows_a, rows_b)
    return Difference(a, b, only_a, only_b, both_a, both_b, off)


def aligned(a: PointSet, b: PointSet) -> tuple[PointSet, PointSet]:
    """Both with windows of one width and series numbered by one registry, one row for each window and series.

    Raises:
        UsageError: neither width is a multiple of the other.
    """
    if a.cumulative or b.cumulative:
        grid_ns = math.lcm(_grid_ns(a), _grid_ns(b))
        a, b = (_on_grid(each.total(), grid_ns) for each in (a, b))
    else:
        width_ns = max(a.width_ns, b.width_ns)
        if width_ns % min(a.width_ns, b.width_ns):
            raise UsageError(
                f"windows of {a.width_ns} ns and of {b.width_ns} ns: one must be a multiple of the other; make one of "
                "them again with another --window"
            )
        a, b = a.coarser(width_ns).merged(), b.coarser(width_ns).merged()
    registry = SeriesRegistry()
    return a.numbered_by(registry), b.numbered_by(registry)


def _grid_ns(points: PointSet) -> int:
    """What all edges of windows are multiples of: cumulative points do not tell how wide their windows were."""
    if points.begin_ns is None or points.end_ns is None:
        return points.width_ns
    return int(np.gcd.reduce(np.concatenate([points.begin_ns, points.end_ns]))) or 1


def _on_grid(points: PointSet, grid_ns: int) -> PointSet:
    """Cumulative points whose times begin and end at the edges that windows so wide would have had; exact where they
    are a multiple of the points' own. Wider ones than an int64 holds are not compared."""
    if points.begin_ns is None or points.end_ns is None or grid_ns > _WIDEST_NS:
        return replace(points, begin_ns=None, end_ns=None)
    return replace(points, begin_ns=points.begin_ns // grid_ns * grid_ns, end_ns=-(-points.end_ns // grid_ns) * grid_ns)


def _matched(a: PointSet, b: PointSet) -> tuple[Int64, Int64, Int64, Int64]:
    """Rows that only one has, and the rows of each that both have."""
    key_a, key_b = _keys(a.rows, b.rows)
    at = np.searchsorted(key_a, key_b)
    known = at < len(key_a)
    known[known] = key_a[at[known]] == key_b[known]
    both_a, both_b = at[known], np.flatnonzero(known)
    alone = np.ones(len(key_a), dtype=bool)
    alone[both_a] = False
    return np.flatnonzero(alone), np.flatnonzero(~known), both_a, both_b


def _keys(one: Partial, other: Partial) -> tuple[Int64, Int64]:
    """Window and series of each row as one number; windows may be any int64."""
    windows = np.unique(np.concatenate([one.window, other.window]))
    series = 1 + int(max(one.series.max(initial=0), other.series.max(initial=0)))
    keys = (np.searchsorted(windows, rows.window) * series + rows.series for rows in (one, other))
    first, second = keys
    return first, second


def _rows(rows: Partial, wanted: Int64) -> Partial:
    """The wanted rows; these ascend, since both sides are sorted alike."""
    keep = np.zeros(len(rows), dtype=bool)
    keep[wanted] = True
    return select(rows, keep)


def _apart(one: _Column, other: _Column, tolerance: float) -> _Floats:
    """Difference relative to the greater; 0 where it is within the tolerance, above 0 where numbers are not equal."""
    most = np.maximum(np.abs(one), np.abs(other))
    gap = np.abs(one - other)
    share: _Floats = np.divide(gap, most, out=np.zeros(len(gap)), where=most > 0)
    share[share <= tolerance] = 0.0
    return share


def _quantile_apart(one: Partial, other: Partial, q: float, tolerance: float) -> _Floats:
    return _apart(quantiles_ns(one, q), quantiles_ns(other, q), tolerance)


def _buckets_apart(one: Partial, other: Partial) -> _Floats:
    """Share of both sides' executions that lie in different buckets, by row."""
    both = (one, other)
    code = np.concatenate([(rows.bucket_row.astype(np.int64) << 32) + rows.bucket_index + (1 << 31) for rows in both])
    signed = np.concatenate([one.bucket_count, -other.bucket_count])
    order = np.argsort(code, kind="stable")  # two ascending runs: it merges them
    code = code[order]
    begins = np.flatnonzero(np.diff(code, prepend=-1))
    gaps = np.abs(np.add.reduceat(signed[order], begins)) if len(begins) else signed
    apart = np.bincount(code[begins] >> 32, gaps, minlength=len(one))
    whole = one.count.astype(np.float64) + other.count
    share: _Floats = np.divide(apart, whole, out=np.zeros(len(one)), where=whole > 0)
    return share


def _exemplars_apart(one: Partial, other: Partial) -> _Floats:
    same = (one.exemplar_span == other.exemplar_span) & (one.exemplar_start_ns == other.exemplar_start_ns)
    same &= one.exemplar_trace == other.exemplar_trace
    return np.where(same, 0.0, _LEAST)

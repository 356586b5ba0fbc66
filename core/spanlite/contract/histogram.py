"""Exponential histograms, schema 5, in seconds: Prometheus's native and OpenTelemetry's exponential format.

Bucket i holds values in (2^((i-1)/32), 2^(i/32)] seconds, so a quantile read from it is at most
2^(1/64) - 1 = 1.09 % off. Durations are whole nanoseconds, so each bound has an exact integer form: a duration d lies
at or below bound i exactly if d <= floor(2^(i/32) * 10^9). Buckets are found by that rule, not by a rounded logarithm.
"""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64
from spanlite.native.folding import Cells

SCHEMA = 5
PER_OCTAVE = 1 << SCHEMA
LOWEST_INDEX = -30 * PER_OCTAVE
"""Bucket of 1 ns: 2^-30 s = 0.93 ns lies below it."""
_OCTAVES = 64
_CELL_BITS = 8
"""Mantissa bits of the look-up table; 256 cells an octave against 32 buckets: no cell holds two bounds."""
_CELL_SHIFT = 52 - _CELL_BITS


@lru_cache(maxsize=1)
def bounds_ns() -> Int64:
    """floor(2^(i/32) * 10^9) for i = LOWEST_INDEX …, until int64 is full; shape (≈2000,)."""
    context = Context(prec=60)
    step = context.power(Decimal(2), context.divide(Decimal(1), Decimal(PER_OCTAVE)))
    exact: list[int] = []
    for octave in range(-30, _OCTAVES - 30):
        whole = context.multiply(context.power(Decimal(2), Decimal(octave)), Decimal(10**9))
        bound = whole
        for _ in range(PER_OCTAVE):
            if bound >= Decimal(2**63):
                return np.array(exact, dtype=np.int64)
            exact.append(int(bound))
            bound = context.multiply(bound, step)
    return np.array(exact, dtype=np.int64)


@lru_cache(maxsize=1)
def cells() -> Cells:
    """For each cell of the float64 bit pattern: the bucket of its first value, and that bucket's bound."""
    bounds = bounds_ns()
    patterns = np.arange((1023 + 63) << _CELL_BITS, dtype=np.int64)
    first = (patterns << _CELL_SHIFT).view(np.float64)
    whole = np.ceil(np.where(patterns >= (1023 << _CELL_BITS), first, 1.0))
    lowest = np.minimum(whole, 2.0**62).astype(np.int64)
    position = np.minimum(np.searchsorted(bounds, lowest, side="left"), len(bounds) - 1)
    return Cells(position.astype(np.int32), bounds[position], _CELL_SHIFT, LOWEST_INDEX)


def bucket_index(duration_ns: Int64) -> Int32:
    """Bucket of each duration.

    Args:
        duration_ns: shape (n,), each in 1 … 2^53 (104 days); what is outside is put at the nearest of the two.

    Returns:
        int32 indexes, shape (n,); exact at every bound.
    """
    clipped = np.clip(duration_ns, 1, 1 << 53)
    position, bound, shift, _ = cells()
    cell = clipped.astype(np.float64).view(np.int64) >> shift
    index = position[cell] + (clipped > bound[cell]) + np.int32(LOWEST_INDEX)
    return np.asarray(index, dtype=np.int32)


def bound_seconds(index: Int32 | NDArray[np.int64]) -> NDArray[np.float64]:
    """Upper bound of each bucket in seconds."""
    return np.exp2(np.asarray(index, dtype=np.float64) / PER_OCTAVE)


def quantile_ns(index: Int32, count: Int64, q: float) -> float:
    """Quantile of a sparse histogram in nanoseconds: the geometric middle of the bucket that holds rank ceil(q * n).

    Args:
        index: ascending bucket indexes, shape (k,).
        count: their counts, shape (k,).
        q: 0..1.

    Returns:
        nan for an empty histogram.
    """
    total = int(count.sum())
    if total == 0:
        return float("nan")
    rank = min(max(int(np.ceil(q * total)), 1), total)
    at = int(np.searchsorted(np.cumsum(count), rank, side="left"))
    return float(2.0 ** ((int(index[at]) - 0.5) / PER_OCTAVE) * 1e9)

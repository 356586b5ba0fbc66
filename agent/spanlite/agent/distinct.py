"""Distinct combinations of several integer columns in linear time: the dictionary step of the encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64, UInt64

_SEED = 0x9E3779B97F4A7C15
_SLOT_BITS = (16, 19, 22)


def distinct(columns: Sequence[NDArray[np.integer[Any]]]) -> tuple[Int64, Int32]:
    """Numbers equal rows alike, in the order in which they first appear.

    Rows are told apart by a 64-bit hash (random odd multipliers): two of 65,536 different rows meet with a
    probability of 1 in 10^10. Sorting instead would cost ten times as much.

    Args:
        columns: at least one, all of shape (n,).

    Returns:
        First row of each distinct combination, ascending, shape (d,); and each row's number among them, shape (n,).
    """
    keys = _hash(columns)
    if len(keys) == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    first = _first_rows(keys)
    is_first = np.zeros(len(keys), dtype=bool)
    is_first[first] = True
    number = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(is_first), number[first]


def _hash(columns: Sequence[NDArray[np.integer[Any]]]) -> UInt64:
    keys = np.zeros(len(columns[0]), dtype=np.uint64)
    multiplier = _SEED
    for column in columns:
        multiplier = (multiplier * 0xD1342543DE82EF95 + 2) & 0xFFFFFFFFFFFFFFFF | 1
        keys += column.astype(np.uint64) * np.uint64(multiplier)
    keys ^= keys >> np.uint64(32)
    keys *= np.uint64(_SEED)
    return keys


def _first_rows(keys: UInt64) -> Int64:
    """For each row the first row with the same key: through a table of slots, larger while two keys share one."""
    backwards = np.arange(len(keys) - 1, -1, -1)
    for bits in _SLOT_BITS:
        slot = (keys >> np.uint64(64 - bits)).astype(np.int64)
        table = np.zeros(1 << bits, dtype=np.int64)
        table[slot[::-1]] = backwards  # of equal slots the last write stays: the first row
        first = table[slot]
        if (keys[first] == keys).all():
            return first
    _, at, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(at[inverse], dtype=np.int64)

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

    Args:
        columns: at least one, all of shape (n,).

    Returns:
        First row of each distinct combination, ascending, shape (d,); and each row's number among them, shape (n,).
    """
    words = np.empty((len(columns[0]), len(columns)), dtype=np.uint64)
    for at, column in enumerate(columns):
        words[:, at] = column.astype(np.int64, copy=False).view(np.uint64) if column.dtype.kind == "i" else column
    return distinct_rows(words)


def distinct_rows(words: UInt64) -> tuple[Int64, Int32]:
    """As `distinct`, for rows that stand side by side, shape (n, k).

    Rows are brought together by a hash and then compared, so the answer is exact. Sorting instead would cost ten
    times as much; it is left for the hashes that fail.
    """
    if len(words) == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    first = _first_rows(_hash(words))
    if first is None or not np.array_equal(words.take(first, axis=0), words):
        _, at, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
        first = at[inverse.reshape(-1)]
    is_first = np.zeros(len(words), dtype=bool)
    is_first[first] = True
    number = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(is_first), number[first]


def _hash(words: UInt64) -> UInt64:
    multipliers = np.empty(words.shape[1], dtype=np.uint64)
    multiplier = _SEED
    for at in range(words.shape[1]):
        multiplier = (multiplier * 0xD1342543DE82EF95 + 2) & 0xFFFFFFFFFFFFFFFF | 1
        multipliers[at] = multiplier
    keys: UInt64 = np.einsum("ij,j->i", words, multipliers)
    keys ^= keys >> np.uint64(32)
    keys *= np.uint64(_SEED)
    return keys


def _first_rows(keys: UInt64) -> Int64 | None:
    """For each row the first row with the same key, through a table of slots, larger while two keys share one.

    None where keys share slots even in the largest table.
    """
    backwards = np.arange(len(keys) - 1, -1, -1)
    least = min(_SLOT_BITS[0], len(keys).bit_length() + 5)  # clearing a large table for a few rows takes longest
    for bits in (least, *_SLOT_BITS[1:]):
        slot = (keys >> np.uint64(64 - bits)).astype(np.int64)
        table = np.zeros(1 << bits, dtype=np.int64)
        table[slot[::-1]] = backwards  # of equal slots the last write stays: the first row
        first = table[slot]
        if (keys[first] == keys).all():
            return np.asarray(first, dtype=np.int64)
    return None

"""Span and trace ids, derived instead of carried: a random 8-byte id costs more on the wire than all else of a span.

A session is 64 random bits of one traced process. Its GPU rows are numbered 0, 1, 2, … and its ranges have numbers of
their own, given when they open, so that a kernel can name a range that is not closed yet. The id is a bijection of
session xor number, so ids of one session never collide, and the number can be had back.
"""

from __future__ import annotations

import hashlib

import numpy as np

from spanlite.contract.columns import Int64, UInt64

RANGE_BIT = 1 << 63
"""Set in the numbers of ranges, so that they never meet a row's."""

_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_INVERSE_1 = np.uint64(pow(0xBF58476D1CE4E5B9, -1, 1 << 64))
_INVERSE_2 = np.uint64(pow(0x94D049BB133111EB, -1, 1 << 64))


def mix64(values: UInt64) -> UInt64:
    """SplitMix64's finaliser: a bijection on 64-bit words (Steele, Lea, Flood 2014)."""
    x = values ^ (values >> np.uint64(30))
    x = x * _MULTIPLY_1
    x ^= x >> np.uint64(27)
    x *= _MULTIPLY_2
    x ^= x >> np.uint64(31)
    return np.asarray(x, dtype=np.uint64)


def unmix64(values: UInt64) -> UInt64:
    """The inverse of mix64."""
    x = values ^ (values >> np.uint64(31)) ^ (values >> np.uint64(62))
    x = x * _INVERSE_2
    x ^= (x >> np.uint64(27)) ^ (x >> np.uint64(54))
    x *= _INVERSE_1
    x ^= (x >> np.uint64(30)) ^ (x >> np.uint64(60))
    return np.asarray(x, dtype=np.uint64)


def row_span_ids(session: int, first_row: int, range_number: Int64) -> UInt64:
    """Ids of consecutive rows from `first_row`; rows with a range number >= 0 are ranges and take the range's id."""
    numbers = np.arange(first_row, first_row + len(range_number), dtype=np.uint64)
    is_range = range_number >= 0
    if is_range.any():
        numbers[is_range] = range_number[is_range].astype(np.uint64) | np.uint64(RANGE_BIT)
    return mix64(numbers ^ np.uint64(session))


def range_span_ids(session: int, range_number: Int64) -> UInt64:
    """Ids of ranges by their number; 0 where the number is negative (= none)."""
    ids = mix64((range_number.astype(np.uint64) | np.uint64(RANGE_BIT)) ^ np.uint64(session))
    ids[range_number < 0] = 0
    return ids


def derived_trace_id(session: int, root: int) -> bytes:
    """16 bytes for a trace whose program gave no id: a hash of the session and the root's number or external id."""
    return hashlib.blake2b(f"{session:016x}/{root}".encode(), digest_size=16).digest()

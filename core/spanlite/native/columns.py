"""Packed columns to arrays, in C. `library` is that of native.library; lengths are the caller's to check."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

_64 = 0xFFFFFFFFFFFFFFFF


def unpack(library: ctypes.CDLL, planes: bytes, width: int, rows: int, base: int) -> NDArray[np.int64]:
    """base + each value, modulo 2^64; shape (rows,)."""
    out = np.empty(rows, dtype=np.int64)
    library.spanlite_unpack(planes, width, rows, base & _64, out.ctypes.data)
    return out


def unpack_index(
    library: ctypes.CDLL, planes: bytes, width: int, rows: int, base: int
) -> tuple[NDArray[np.int32], int]:
    """base + each value modulo 2^32, shape (rows,), and the largest value before base was added."""
    out = np.empty(rows, dtype=np.int32)
    most = library.spanlite_unpack_index(planes, width, rows, base & 0xFFFFFFFF, out.ctypes.data)
    return out, int(most)


def unzigzag(library: ctypes.CDLL, planes: bytes, width: int, rows: int) -> NDArray[np.int64]:
    """Each value with its sign; shape (rows,)."""
    out = np.empty(rows, dtype=np.int64)
    library.spanlite_unzigzag(planes, width, rows, out.ctypes.data)
    return out


def unzigzag_sums(library: ctypes.CDLL, planes: bytes, width: int, rows: int, first: int) -> NDArray[np.int64]:
    """first + the values up to each one, with their signs; shape (rows,)."""
    out = np.empty(rows, dtype=np.int64)
    library.spanlite_unzigzag_sums(planes, width, rows, first & _64, out.ctypes.data)
    return out


def starts(
    library: ctypes.CDLL,
    gap: NDArray[np.int64],
    duration: NDArray[np.int64],
    kind: NDArray[np.uint8],
    *,
    still: int,
    first: int,
) -> None:
    """Gaps to starts, in place; all contiguous, shape (n,). Spans of kind `still` let no time pass."""
    library.spanlite_starts(gap.ctypes.data, duration.ctypes.data, kind.ctypes.data, still, len(gap), first & _64)


def take(library: ctypes.CDLL, values: NDArray[Any], index: NDArray[np.int32]) -> NDArray[Any]:
    """values[index]; both contiguous, values of 4 or 8 bytes each, every index in range (it is not checked)."""
    out = np.empty(len(index), dtype=values.dtype)
    library.spanlite_take(values.ctypes.data, values.dtype.itemsize, index.ctypes.data, len(index), out.ctypes.data)
    return out

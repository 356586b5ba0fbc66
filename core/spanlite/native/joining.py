"""One code for each combination of values of several columns, in C. `library` is that of native.library."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def constant(library: ctypes.CDLL, values: NDArray[Any]) -> bool:
    """Whether a contiguous column has one value throughout, bit by bit; true of none and of one."""
    return bool(library.spanlite_constant(values.ctypes.data, values.itemsize, len(values)))


def joint_codes(
    library: ctypes.CDLL, columns: Sequence[NDArray[Any]], rows: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    """Codes 0, 1, … in the order in which combinations come, shape (rows,), and the row where each comes first.

    Args:
        columns: integers of 1, 2, 4 or 8 bytes, contiguous, shape (rows,) each.

    Returns:
        None where two combinations have one hash.
    """
    code = np.empty(rows, dtype=np.int32)
    first = np.empty(rows, dtype=np.int64)
    count = len(columns)
    found = library.spanlite_joint_codes(
        (ctypes.c_void_p * count)(*(values.ctypes.data for values in columns)),
        (ctypes.c_int64 * count)(*(values.itemsize for values in columns)),
        count,
        rows,
        code.ctypes.data,
        first.ctypes.data,
    )
    return None if found < 0 else (code, first[:found].copy())

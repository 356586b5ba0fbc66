"""Arrays that grow: twice as long where they are too short, so that growing costs each element once or twice."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Number = TypeVar("_Number", bound=np.generic)
_LEAST = 64


def grown(array: NDArray[_Number], rows: int, fill: ArrayLike = 0) -> NDArray[_Number]:
    """The array itself if it has so many rows, else one of at least twice its rows that begins with them.

    Args:
        fill: value of the new rows.
    """
    have = len(array)
    if rows <= have:
        return array
    longer: NDArray[Any] = np.empty((max(rows, 2 * have, _LEAST), *array.shape[1:]), dtype=array.dtype)
    longer[:have] = array
    longer[have:] = fill
    return longer

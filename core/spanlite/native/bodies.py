"""Columns of many batches to SpanColumns messages, in C; contract.body does the same batch by batch.

`library` is that of native.library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.native.columns import Records

_ROOM = 1 << 20
_ROOM_OF_A_ROW = 32
SAID = np.dtype([(name, "<i8") for name in ("first_start", "last_start", "last_end", "last_gpu_end", "odd")])
"""`struct said` of kernels.c: of each batch the first and last start, the last end of all rows and of GPU work (of all
rows where there is none). odd: not 0 where the body is good for nothing, since an end or a kind is beyond bounds."""


class _Records(ctypes.Structure):
    """`struct records` of kernels.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("entry", "told")),
        *((name, ctypes.c_int64) for name in ("count", "size", "fields")),
        *((name, ctypes.c_void_p) for name in ("offset", "width", "sign")),
    )


class _Columns(ctypes.Structure):
    """`struct columns` of kernels.c."""

    _fields_ = (
        ("value", ctypes.c_void_p * 13),
        ("stride", ctypes.c_int64 * 13),
        ("table", _Records * 4),
        *((name, ctypes.c_void_p) for name in ("text", "text_begin", "text_end", "text_rank")),
        *((name, ctypes.c_int64) for name in ("texts", "kinds", "range", "has_bytes")),
    )


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts by number; number 0 is the empty one. Of texts that no row uses nothing need be known.

    Attributes:
        data: UTF-8, one behind the other.
        begin, end: where in it each lies; int64, shape (n,).
        rank: place of each in the order of their bytes; int32, shape (n,).
    """

    data: bytes
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    rank: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Kinds:
    """How many kinds are known, which one a range is, and which have a value in column `bytes`: bit k for kind k."""

    known: int
    range: int
    has_bytes: int


class Bodies:
    """Rows of batches, one batch behind the other, and what they point at.

    Args:
        columns: those of SpanColumns by name, in its order and with its dtypes, shape (n,), of a stride of 0 or lying
            together; `config` and the like point into `tables`, `stage` into `texts`.
        tables: layout, entries and what is told for each, of configs, places, nodes and traces. Entry 0 of the nodes is
            that of rows outside graphs. Equal entries of one table become one.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        columns: Mapping[str, NDArray[Any]],
        tables: Sequence[tuple[Records, NDArray[np.void], NDArray[np.void]]],
        texts: Texts,
        kinds: Kinds,
    ) -> None:
        values = [*columns.values()]
        self._library = library
        self._held = (values, tables, texts)
        told = _Columns(texts=len(texts.rank), kinds=kinds.known, range=kinds.range, has_bytes=kinds.has_bytes)
        told.value[:] = [column.ctypes.data for column in values]
        told.stride[:] = [column.strides[0] if len(column) > 1 else column.itemsize for column in values]
        for at, (layout, entries, shown) in enumerate(tables):
            place = (entries.ctypes.data, shown.ctypes.data, len(entries), layout.dtype.itemsize, len(layout.offset))
            told.table[at] = _Records(*place, *layout.places[:3])
        self._data = np.frombuffer(texts.data or b"\0", dtype=np.uint8)
        told.text, told.text_begin, told.text_end, told.text_rank = (
            each.ctypes.data for each in (self._data, texts.begin, texts.end, texts.rank)
        )
        self._columns = told

    def encode(self, bound: NDArray[np.int64]) -> tuple[NDArray[np.void], list[memoryview]]:
        """What is told of each batch (SAID), and its body; batch k is of rows bound[k] … bound[k + 1] - 1, one or more.

        Raises:
            MemoryError: the scratch does not fit.
        """
        count = len(bound) - 1
        said = np.empty(count, dtype=SAID)
        ends = np.empty(count, dtype=np.int64)
        bodies: list[memoryview] = []
        room = _ROOM
        while len(bodies) < count:
            done = len(bodies)
            rows = int(bound[-1] - bound[done])
            out = np.empty(room + _ROOM_OF_A_ROW * rows, dtype=np.uint8)
            made = self._library.spanlite_bodies(
                ctypes.byref(self._columns),
                bound.ctypes.data + 8 * done,
                count - done,
                said.ctypes.data + SAID.itemsize * done,
                ends.ctypes.data + 8 * done,
                out.ctypes.data,
                len(out),
            )
            if made < 0:
                raise MemoryError(f"no memory to encode {rows} spans")
            data, begin = memoryview(out.data), 0
            for end in ends[done : done + made].tolist():
                bodies.append(data[begin:end])
                begin = end
            room *= 1 if made else 2
        return said, bodies

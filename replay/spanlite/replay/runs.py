"""Small vectorised helpers over columns: codes, runs, and which entries of a table are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64
from spanlite.native import joining, library

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_Texts = tuple[Int32, list[Any]]


def one_array(column: Any) -> Any:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.unify_dictionaries().combine_chunks() if pa.types.is_dictionary(column.type) else None
    joined = column.combine_chunks() if joined is None else joined
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def numbers(column: Any) -> NDArray[Any]:
    """Values of a column of numbers without nulls; of one run, an array with a stride of 0."""
    array = one_array(column)
    if is_run(array):
        return np.broadcast_to(array.values.to_numpy(), len(array))
    return np.asarray(array.to_numpy())


def is_run(array: Any) -> bool:
    """Whether an array in one piece is run-end encoded, as columns of one value are read: then it is one run."""
    return bool(pa.types.is_run_end_encoded(array.type))


def is_single(values: NDArray[Any]) -> bool:
    """Whether a column takes the memory of one value, which all of its rows have."""
    return values.strides == (0,)


def through(values: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    """values[index], with a stride of 0 where the index has it."""
    return np.broadcast_to(values[index[:1]], len(index)) if is_single(index) else values.take(index)


def taken_rows(values: NDArray[Any], rows: slice | Int64 | None, *, own: bool = False) -> NDArray[Any]:
    """values[rows], in memory of its own if need be; of one value, as many of it. None takes all."""
    if rows is None:
        return values
    if is_single(values):
        size = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        return np.broadcast_to(values[:1], size)
    return values[rows].copy() if own and isinstance(rows, slice) else values[rows]


def text_codes(column: Any) -> _Texts:
    """Code of each row (-1 = null) and the values of a text column."""
    array = one_array(column)
    if is_run(array):
        values = array.values.drop_null().to_pylist()
        return np.broadcast_to(np.array([len(values) - 1], dtype=np.int32), len(array)), values
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices = array.indices
    codes = (indices.fill_null(-1) if indices.null_count else indices).to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int32), array.dictionary.to_pylist()


def id_codes(column: Any) -> tuple[Int32, NDArray[np.void]]:
    """Code of each row (-1 = null) and the values, shape (m,) of V16, of a column of 16-byte ids.

    Rows of one id mostly stand together, so only where the id changes is it looked up.
    """
    array = one_array(column)
    if is_run(array):
        code, ids = id_codes(array.values)
        return np.broadcast_to(code, len(array)), ids
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    rows = len(array)
    if array.null_count == rows:
        return np.full(rows, -1, dtype=np.int32), np.zeros(0, dtype="V16")
    valid = np.asarray(array.is_valid()) if array.null_count else None
    if valid is not None:
        array = array.fill_null(bytes(16))
    raw = _fixed(array)
    words = raw.view("<u8").reshape(-1, 2)
    begins = change_points(words[:, 0], words[:, 1], *(() if valid is None else (valid,)))
    ids = np.ascontiguousarray(raw[begins])
    binary = pa.Array.from_buffers(pa.binary(16), len(ids), [None, pa.py_buffer(ids)])
    of_run, first = _encoded(binary)
    codes = np.repeat(of_run, np.diff(np.append(begins, rows)))
    if valid is not None:
        codes[~valid] = -1
    return codes, ids[first]


def _fixed(array: Any) -> NDArray[np.void]:
    """The bytes of an array of 16-byte values without nulls, whether its type says the width or not."""
    if not pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary(16))
    data = np.frombuffer(array.buffers()[1], dtype="V16")
    return data[array.offset : array.offset + len(array)]


def change_points(*columns: NDArray[Any]) -> Int64:
    """Rows at which any of the columns differs from the row before; row 0 always does."""
    rows = len(columns[0])
    changed = np.zeros(rows, dtype=bool)
    changed[:1] = True
    for values in columns:
        if rows and not is_single(values):
            changed[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(changed)


def joint_codes(columns: Sequence[NDArray[Any]], rows: int) -> tuple[Int32, Int64]:
    """One code for each combination of values, in the order in which they come, and the row where each comes first.

    Combinations are told apart by a hash that is checked against every value afterwards; should two ever meet, they are
    counted out one column after the other.
    """
    varying = [values for values in columns if not is_constant(values)]
    if not varying:
        return np.zeros(rows, dtype=np.int32), np.zeros(min(rows, 1), dtype=np.int64)
    compiled = library()
    found = joining.joint_codes(compiled, [*map(np.ascontiguousarray, varying)], rows) if compiled else None
    return found or _hashed(varying, rows)


def is_constant(values: NDArray[Any]) -> bool:
    """Whether a column of integers has one value throughout."""
    if is_single(values):
        return True
    compiled = library()
    if compiled:
        return joining.constant(compiled, np.ascontiguousarray(values))
    return not len(values) or bool((values == values[0]).all())


def _hashed(varying: Sequence[NDArray[Any]], rows: int) -> tuple[Int32, Int64]:
    key = np.zeros(rows, dtype=np.uint64)
    for values in varying:
        key *= _FACTOR
        key += values.astype(np.uint64)
        key ^= key >> np.uint64(29)
    code, first = _encoded(key)
    for values in varying:
        if not np.array_equal(values[first][code], values):
            return _exact(varying)
    return code, first


def _encoded(values: Any) -> tuple[Int32, Int64]:
    encoded = (values if isinstance(values, pa.Array) else pa.array(values)).dictionary_encode()
    code: Int32 = encoded.indices.to_numpy()
    return code, first_of(code, len(encoded.dictionary))


def _exact(columns: Sequence[NDArray[Any]]) -> tuple[Int32, Int64]:
    code, first = _encoded(columns[0])
    for values in columns[1:]:
        small, _ = _encoded(values)
        code, first = _encoded(code.astype(np.int64) << 32 | small)
    return code, first


def first_of(codes: Int32, count: int) -> Int64:
    """Row at which each of the codes 0 … count - 1 comes first."""
    first = np.zeros(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def compact(index: Int32, size: int) -> tuple[Int64, Int32]:
    """Which entries of a table of `size` are used, ascending, and the index into those."""
    if size == 1 and len(index):
        return np.zeros(1, dtype=np.int64), index
    if size <= 4 * len(index) + 64:
        used = np.flatnonzero(np.bincount(index, minlength=size))
        places = np.zeros(size, dtype=np.int32)
        places[used] = np.arange(len(used), dtype=np.int32)
        return used, places[index]
    used, inverse = np.unique(index, return_inverse=True)
    return used.astype(np.int64), inverse.reshape(-1).astype(np.int32)


def used_of(index: Int32, size: int) -> Int64:
    """Which entries of a table of `size` are used, ascending."""
    if is_single(index):
        return index[:1].astype(np.int64)
    return np.flatnonzero(np.bincount(index, minlength=size)) if size <= 4 * len(index) + 64 else np.unique(index)


def spread(begins: Int64, counts: Int64) -> Int64:
    """begins[0], begins[0] + 1, … (counts[0] of them), begins[1], …"""
    ends = np.cumsum(counts)
    at: Int64 = np.repeat(begins - (ends - counts), counts)
    at += np.arange(len(at), dtype=np.int64)
    return at

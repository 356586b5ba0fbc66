"""Columns that hold one value, or null, throughout a row group: its statistics say so, and nothing need be decoded.

Two of three columns of a row group are such, as a rule, and decoding them takes half of the time that reading takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def single_columns(files: Iterable[Any]) -> list[str]:
    """Columns whose statistics say the same single value in every row group of the ParquetFiles; few where none are."""
    found: dict[str, Any] | None = None
    for file in files:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            names = file.schema_arrow.names
            values = {name: value for at, name in enumerate(names) if (value := _single(group, at)) is not _MANY}
            found = values if found is None else {n: v for n, v in found.items() if n in values and values[n] == v}
    return [*(found or {})]


def read_columns(file: Any, group: int, columns: Sequence[str], *, runs: bool = False) -> Any:
    """Columns of a row group of an archive's ParquetFile, as an Arrow table, in one thread.

    Args:
        file: the file.
        group: number of the row group.
        columns: names.
        runs: give columns of one value, or null, as run-end encoded arrays of one run, which take no memory.

    Raises:
        OSError, pa.ArrowException: as pyarrow has them.
    """
    metadata, schema = file.metadata.row_group(group), file.schema_arrow
    places = {name: at for at, name in enumerate(schema.names)}
    single = {name: value for name in columns if (value := _single(metadata, places[name])) is not _MANY}
    rest = [name for name in columns if name not in single]
    read = file.read_row_group(group, columns=rest, use_threads=False)
    fill = _Run(metadata.num_rows) if runs else _Fill(metadata.num_rows)
    arrays = [fill(single[name], schema.field(name).type) if name in single else read.column(name) for name in columns]
    return pa.Table.from_arrays(arrays, names=list(columns))


_MANY = object()


def _single(group: Any, at: int) -> Any:
    """The value of each row (None is null); _MANY where the statistics do not say that there is only one."""
    statistics = group.column(at).statistics
    if statistics is None or not statistics.has_null_count or not group.num_rows:
        return _MANY
    if statistics.null_count == group.num_rows:
        return None
    if statistics.null_count or not statistics.has_min_max:
        return _MANY
    least = statistics.min
    return least if least == statistics.max else _MANY


class _Run:
    """Arrays of one value as one run."""

    def __init__(self, rows: int) -> None:
        self._ends = pa.array([rows], pa.int32())

    def __call__(self, value: Any, kind: Any) -> Any:
        """The value in every row, as an Arrow array; dictionaries become their values."""
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.RunEndEncodedArray.from_arrays(self._ends, pa.array([value], plain))


class _Fill:
    """Arrays of one value, which share memory where they can: most values are 0."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._made: dict[tuple[str, Any], Any] = {}

    def __call__(self, value: Any, kind: Any) -> Any:
        """The value in every row, as an Arrow array."""
        if value is None:
            return pa.nulls(self._rows, kind)
        if pa.types.is_dictionary(kind):
            return pa.DictionaryArray.from_arrays(self._numbers(0, pa.int32()), pa.array([value], kind.value_type))
        if pa.types.is_fixed_size_binary(kind):
            return pa.Array.from_buffers(kind, self._rows, [None, pa.py_buffer(bytes(value) * self._rows)])
        return self._numbers(value, kind)

    def _numbers(self, value: Any, kind: Any) -> Any:
        key = (str(kind), value)
        if key not in self._made:
            self._made[key] = pa.array(np.full(self._rows, value, dtype=kind.to_pandas_dtype()))
        return self._made[key]

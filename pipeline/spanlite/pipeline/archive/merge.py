"""Merging sorted files of one partition into one, in pieces that fit memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spanlite.contract.columns import Int64
from spanlite.pipeline.archive.decode import numbers, text_codes
from spanlite.pipeline.archive.groups import KEY_COLUMNS, Groups
from spanlite.pipeline.archive.port import Store
from spanlite.pipeline.archive.schema import COLUMNS, file_schema, open_file

_SAMPLE_EVERY = 256
_CACHED_PIECES = 2
_Key = tuple[int, int]
"""Rank of the group, start."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """One row group of one file: its groups, with first and last start of each."""

    name: str
    group: int
    rows: int
    codes: Int64
    first: Int64
    last: Int64


class Merge:
    """Rows of several files in the order of an archive, each once.

    Rows with equal session, producer, batch and row are one span that was written twice.

    Attributes:
        rows_in, duplicates: counted while `tables` runs.
    """

    def __init__(self, store: Store, names: Sequence[str], piece_rows: int) -> None:
        """Reads the sort keys of all files.

        Args:
            store: where they lie.
            names: the files.
            piece_rows: about so many rows come as one table, and a few times as many are held in memory.

        Raises:
            ArchiveError: a file is not readable.
        """
        self._store = store
        self._piece_rows = piece_rows
        self._groups = Groups()
        self._extents: list[_Extent] = []
        samples: list[NDArray[np.int64]] = []
        for name in names:
            with open_file(store, name) as file:
                samples += [self._index(name, file, group) for group in range(file.num_row_groups)]
        self._ranks = self._groups.ranks()
        self._bounds = self._cut(np.concatenate(samples, axis=1) if samples else np.zeros((2, 0), dtype=np.int64))
        self._cache: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self.rows_in = 0
        self.duplicates = 0

    @property
    def rows(self) -> int:
        """Rows of all files, duplicates included."""
        return sum(extent.rows for extent in self._extents)

    def tables(self) -> Iterator[Any]:
        """Arrow tables of `file_schema()`, in order."""
        for low, high in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            parts = [self._between(extent, low, high) for extent in self._extents if self._meets(extent, low, high)]
            parts = [part for part in parts if len(part)]
            if parts:
                yield self._sorted(_one_dictionary(pa.concat_tables(parts)))

    def _index(self, name: str, file: Any, group: int) -> NDArray[np.int64]:
        table = file.read_row_group(group, columns=KEY_COLUMNS, use_threads=False)
        codes, start = self._groups.add(table), numbers(table["start_ns"])
        used, local = np.unique(codes, return_inverse=True)
        first = np.full(len(used), np.iinfo(np.int64).max)
        last = np.full(len(used), np.iinfo(np.int64).min)
        np.minimum.at(first, local, start)
        np.maximum.at(last, local, start)
        self._extents.append(_Extent(name, group, len(start), used, first, last))
        return np.stack([codes[::_SAMPLE_EVERY], start[::_SAMPLE_EVERY]])

    def _cut(self, samples: NDArray[np.int64]) -> list[_Key]:
        """Keys at which pieces begin, and one beyond the last."""
        rank, start = self._ranks[samples[0]], samples[1]
        order = np.lexsort((start, rank))
        step = max(self._piece_rows // _SAMPLE_EVERY, 1)
        lowest = np.iinfo(np.int64).min
        bounds = [(int(rank[at]), int(start[at])) for at in order[step::step]]
        return [(-1, lowest), *sorted(set(bounds)), (len(self._ranks), lowest)]

    def _meets(self, extent: _Extent, low: _Key, high: _Key) -> bool:
        if not extent.rows:
            return False
        rank = self._ranks[extent.codes]
        first, last = int(rank.argmin()), int(rank.argmax())
        begin = (int(rank[first]), int(extent.first[first]))
        end = (int(rank[last]), int(extent.last[last]))
        return begin < high and end >= low

    def _between(self, extent: _Extent, low: _Key, high: _Key) -> Any:
        table = self._read(extent)
        rank, start = self._ranks[self._groups.codes(table)], numbers(table["start_ns"])
        keep = _at_least(rank, start, low) & ~_at_least(rank, start, high)
        if keep.all():
            return table
        return table.filter(pa.array(keep))

    def _read(self, extent: _Extent) -> Any:
        key = (extent.name, extent.group)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        with open_file(self._store, extent.name) as file:
            table = file.read_row_group(extent.group, use_threads=False)
        self._cache[key] = table
        while len(self._cache) > 1 and sum(map(len, self._cache.values())) > _CACHED_PIECES * self._piece_rows:
            self._cache.popitem(last=False)
        return table

    def _sorted(self, table: Any) -> Any:
        rank, start = self._ranks[self._groups.codes(table)], numbers(table["start_ns"])
        identity = (
            numbers(table["session_row"]),
            numbers(table["batch_sequence"]),
            text_codes(table["producer"])[0],
            numbers(table["session"]),
        )
        order = np.lexsort((*identity, start, rank))
        again = np.zeros(len(order), dtype=bool)
        again[1:] = True
        for values in identity:
            ordered = values[order]
            again[1:] &= ordered[1:] == ordered[:-1]
        self.rows_in += len(order)
        self.duplicates += int(again.sum())
        if again.any() or bool((np.diff(order) < 0).any()):  # rows of files that follow each other stand in order
            table = table.take(pa.array(order[~again]))
        return pa.Table.from_arrays(table.columns, schema=file_schema())


def _one_dictionary(table: Any) -> Any:
    """The columns of the archive, in order, each in one piece with one dictionary."""
    columns = {column.name: table[column.name] for column in COLUMNS}
    for name in ("trace_id", "producer"):  # Parquet hands 16-byte ids over as plain values only
        columns[name] = columns[name].dictionary_encode()
    return pa.table(columns).unify_dictionaries().combine_chunks()


def _at_least(rank: Int64, start: Int64, bound: _Key) -> NDArray[np.bool_]:
    at_least: NDArray[np.bool_] = (rank > bound[0]) | ((rank == bound[0]) & (start >= bound[1]))
    return at_least

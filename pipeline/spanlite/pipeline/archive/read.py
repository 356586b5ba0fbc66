"""Reading an archive: whole batches for replay, rows for queries, and the ids of the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from spanlite.contract.batch import Batch
from spanlite.contract.columns import UInt64
from spanlite.contract.errors import ArchiveError
from spanlite.contract.ids import mix64
from spanlite.pipeline.archive.decode import Decoder, numbers, text_codes
from spanlite.pipeline.archive.port import Store, label, path_of
from spanlite.pipeline.archive.schema import SCHEMA, is_gone, open_file
from spanlite.pipeline.archive.snapshot import live_files
from spanlite.pipeline.archive.store import Where, open_store

WINDOW_ROWS = 1 << 19
"""Rows that `read_batches` holds at a time, unless one batch has more."""
_PARTITIONS = pa.schema([("date", pa.string()), ("hour", pa.int32()), ("bucket", pa.int32())])
WIRE_IDS = ("wire_span_id", "wire_parent_span_id")
"""Columns that `scan` computes: the ids that SpanBatch messages, exemplars and `spanlite cat` show."""
_BatchKey = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one batch in one row group."""

    key: _BatchKey
    emit_ns: int
    rows: int
    name: str
    group: int


def open_dataset(root: Where) -> Any:
    """The archive as a pyarrow dataset, with the folders' `date`, `hour` and `bucket` as columns.

    Files whose rows a compacted file holds as well are left out.

    Raises:
        ArchiveError: no archive there, or a compaction has removed a file since it was listed.
    """
    store = open_store(root)
    files = live_files(store)
    open_file(store, files[0].name).close()  # says what is wrong with a foreign file
    try:
        return ds.dataset(
            [path_of(store, file.name) for file in files],
            schema=pa.unify_schemas([SCHEMA, _PARTITIONS]),
            format="parquet",
            filesystem=store.filesystem,
            partitioning=ds.partitioning(_PARTITIONS, flavor="hive"),
            partition_base_dir=store.base,
        )
    except OSError as error:
        raise _failed(store, error) from error


def scan(root: Where, columns: Sequence[str] | None = None, *, where: Any = None) -> Iterator[Any]:
    """Record batches of the rows that match.

    Args:
        root: the archive: a folder, a URI or a store, as `open_store` takes them.
        columns: names of SCHEMA, of the folders, or of WIRE_IDS; all but WIRE_IDS if not given.
        where: a pyarrow.dataset expression.

    Raises:
        ArchiveError: no archive there, or a damaged file.
    """
    wanted = list(columns) if columns is not None else None
    wire = [name for name in wanted or () if name in WIRE_IDS]
    stored = wanted
    if wanted is not None and wire:
        needed = {"session", *(name.removeprefix("wire_") for name in wire)}
        stored = [*(name for name in wanted if name not in WIRE_IDS), *sorted(needed - set(wanted))]
    store = open_store(root)
    dataset = open_dataset(store)
    try:
        for batch in dataset.to_batches(columns=stored, filter=where):
            yield _with_wire_ids(batch, wire).select(wanted) if wanted and wire else batch
    except (OSError, pa.ArrowException) as error:
        raise _failed(store, error) from error


def _failed(store: Store, error: BaseException) -> ArchiveError:
    if is_gone(error):
        return ArchiveError(f"{store.where}: a file has gone since it was listed; a compaction is running: read again")
    return ArchiveError(f"{store.where}: a file cannot be read ({error}); `spanlite archive verify` names it")


def _with_wire_ids(batch: Any, names: Iterable[str]) -> Any:
    for name in names:
        stored = batch.column(name.removeprefix("wire_"))
        missing = np.asarray(stored.is_null())
        ids = wire_ids(batch.column("session").to_numpy(zero_copy_only=False), numbers(stored.fill_null(0)))
        batch = batch.append_column(name, pa.array(ids, mask=missing))
    return batch


def wire_ids(session: UInt64, span_id: UInt64) -> UInt64:
    """Ids on the wire of `session` and `span_id` or `parent_span_id` of the archive, shape (n,)."""
    return mix64(session ^ span_id)


def read_batches(root: Where, *, window_rows: int = WINDOW_ROWS, order: str = "emit") -> Iterator[Batch]:
    """Every batch as it was written, but for unused entries of tables and their numbering.

    Args:
        root: the archive: a folder, a URI or a store, as `open_store` takes them.
        window_rows: rows held in memory at a time.
        order: "emit" for the order in which agents handed batches on, "sequence" for producer by producer.

    Raises:
        ArchiveError: no archive there, or a damaged file.
    """
    store = open_store(root)
    pieces = [piece for file in live_files(store) for piece in _pieces(store, file.name)]
    by_key: dict[_BatchKey, list[_Piece]] = {}
    for piece in pieces:
        by_key.setdefault(piece.key, []).append(piece)
    emitted = order == "emit"
    keys = sorted(by_key, key=lambda key: (min(p.emit_ns for p in by_key[key]) if emitted else 0, key))
    window: list[_BatchKey] = []
    rows = 0
    for key in keys:
        size = sum(piece.rows for piece in by_key[key])
        if window and rows + size > window_rows:
            yield from _read_window(store, window, by_key)
            window, rows = [], 0
        window.append(key)
        rows += size
    if window:
        yield from _read_window(store, window, by_key)


def _pieces(store: Store, name: str) -> Iterator[_Piece]:
    with open_file(store, name) as file:
        for group in range(file.num_row_groups):
            table = _read_group(file, label(store, name), group, ["producer", "batch_sequence", "emit_ns"])
            codes, producers = text_codes(table["producer"])
            keys = np.stack([codes.astype(np.uint64), numbers(table["batch_sequence"])])
            changed = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))
            begins = np.flatnonzero(changed)
            counts = np.diff(np.append(begins, keys.shape[1]))
            emits = numbers(table["emit_ns"])[begins]
            found: dict[_BatchKey, list[int]] = {}
            for begin, count, emit in zip(begins, counts, emits, strict=True):
                key = (producers[codes[begin]], int(keys[1, begin]))
                entry = found.setdefault(key, [int(emit), 0])
                entry[1] += int(count)
            yield from (_Piece(key, emit, rows, name, group) for key, (emit, rows) in found.items())


def _read_window(store: Store, window: list[_BatchKey], by_key: dict[_BatchKey, list[_Piece]]) -> Iterator[Batch]:
    wanted = set(window)
    groups: dict[str, set[int]] = {}
    for key in window:
        for piece in by_key[key]:
            groups.setdefault(piece.name, set()).add(piece.group)
    tables = []
    for name, numbers_of_groups in sorted(groups.items()):
        with open_file(store, name) as file:
            for group in sorted(numbers_of_groups):
                table = _read_group(file, label(store, name), group, None)
                tables.append(table.filter(pa.array(_in_window(table, wanted))))
    decoded: dict[_BatchKey, list[Batch]] = {}
    for batch in Decoder(pa.concat_tables(tables).unify_dictionaries()).batches():
        decoded.setdefault((batch.producer, batch.sequence), []).append(batch)
    for key in window:
        yield from decoded[key]


def _in_window(table: Any, wanted: set[_BatchKey]) -> Any:
    codes, producers = text_codes(table["producer"])
    sequence = numbers(table["batch_sequence"])
    keep = np.zeros(len(codes), dtype=bool)
    for code, producer in enumerate(producers):
        sequences = np.array([key[1] for key in wanted if key[0] == producer], dtype=np.uint64)
        keep |= (codes == code) & np.isin(sequence, sequences)
    return keep


def _read_group(file: Any, where: str, group: int, columns: list[str] | None) -> Any:
    try:
        return file.read_row_group(group, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{where}: row group {group} is damaged ({error}); remove the file or restore it") from error

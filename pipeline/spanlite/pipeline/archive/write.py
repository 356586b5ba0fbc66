"""Batches to files of the archive: buffered as columns, sorted, written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.columns import ROW_COLUMNS, Int64
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.encode import Encoder
from spanlite.pipeline.archive.footer import write_parquet
from spanlite.pipeline.archive.layout import file_name, partition_folder
from spanlite.pipeline.archive.order import cells_of, order_rows
from spanlite.pipeline.archive.port import File, Store, label
from spanlite.pipeline.archive.provenance import Provenance, Ranges, to_json
from spanlite.pipeline.archive.rows import Rows, gather
from spanlite.pipeline.archive.schema import BATCHES_KEY, BUCKETS_KEY, writer_options
from spanlite.pipeline.archive.store import Where, open_store

ROW_GROUP_ROWS = 1 << 19
ROLL_SPANS = 1 << 20
ROLL_BYTES = 256 << 20
_ROW_BYTES = sum(dtype.itemsize for dtype in ROW_COLUMNS.values())


class ArchiveWriter:
    """Writes spans to `root/date=…/hour=…/bucket=…/*.parquet`.

    Rows wait in memory as columns until `flush`, which `add` calls by itself when enough wait. A flush writes one file
    per hour and bucket. The same batches flushed again write the same files again; the same batch added twice between
    two flushes counts once. Where batches may come again in other company, `flush.flush_new` keeps them single.

    Attributes:
        spans_written, bytes_written, files_written: since the start.
    """

    def __init__(
        self,
        root: Where,
        *,
        buckets: int = 1,
        row_group_rows: int = ROW_GROUP_ROWS,
        roll_spans: int = ROLL_SPANS,
        roll_bytes: int = ROLL_BYTES,
    ) -> None:
        """Makes the folder and checks that it can be written to.

        Args:
            root: the archive: a folder, a URI or a store, as `open_store` takes them.
            buckets: files an hour, by a hash of the trace; a power of two.
            row_group_rows: rows that a query skips or reads together.
            roll_spans, roll_bytes: flush when so many rows, or bytes of columns and tables, wait.

        Raises:
            ArchiveError: the folder is not writable, or the store not to be reached.
            ValueError: `buckets` is not a power of two.
        """
        check_buckets(buckets)
        self._store = open_store(root)
        self._buckets = buckets
        self._row_group_rows = row_group_rows
        self._roll_spans = roll_spans
        self._roll_bytes = roll_bytes
        self._waiting: dict[tuple[bytes, int, int], Batch] = {}
        self._waiting_spans = 0
        self._waiting_bytes = 0
        self.spans_written = 0
        self.bytes_written = 0
        self.files_written = 0
        self._store.prepare()

    def add(self, batch: Batch) -> None:
        """Takes a batch; its arrays must not change afterwards.

        Raises:
            ArchiveError: a flush was due and failed.
        """
        key = (batch.producer, batch.sequence, batch.first_row)
        if key in self._waiting or not len(batch.columns):
            return
        self._waiting[key] = batch
        self._waiting_spans += len(batch.columns)
        self._waiting_bytes += _size(batch)
        if self._waiting_spans >= self._roll_spans or self._waiting_bytes >= self._roll_bytes:
            self.flush()

    def flush(self) -> list[File]:
        """Writes what waits; the files are whole, named and on disk when it returns.

        Returns:
            the files written.

        Raises:
            ArchiveError: a file cannot be written. All batches still wait, and can be flushed again.
        """
        if not self._waiting:
            return []
        rows = gather(list(self._waiting.values()))
        cells = cells_of(rows, self._buckets)
        order = order_rows(rows, cells, cells.partition())
        encoder = Encoder(rows)
        name = file_name(self._waiting)
        files = []
        begin = 0
        for cell, end in zip(order.cells, order.ends, strict=True):
            path = f"{partition_folder(int(cells.hours[cell]), int(cells.buckets[cell]))}/{name}"
            chosen = order.rows[begin:end]
            sizes = {"buckets": self._buckets, "row_group_rows": self._row_group_rows}
            files.append(write_rows(self._store, path, encoder, chosen, **sizes))
            self.bytes_written += files[-1].size
            begin = end
        self._waiting.clear()
        self._waiting_spans = self._waiting_bytes = 0
        self.spans_written += len(rows)
        self.files_written += len(files)
        return files

    def close(self) -> None:
        """Flushes.

        Raises:
            ArchiveError: as `flush`.
        """
        self.flush()


def check_buckets(buckets: int) -> None:
    """Raises ValueError unless it is a power of two."""
    if buckets < 1 or buckets & (buckets - 1):
        raise ValueError(f"buckets must be a power of two, not {buckets}")


def write_rows(
    store: Store, name: str, encoder: Encoder, chosen: Int64, *, buckets: int, row_group_rows: int = ROW_GROUP_ROWS
) -> File:
    """Writes the rows `chosen`, in that order, as one file whose footer names their batches.

    Raises:
        ArchiveError: it cannot be written; then there is no such file, or it is whole.
    """
    tables = (encoder.table(chosen[at : at + row_group_rows]) for at in range(0, len(chosen), row_group_rows))
    facts = {BUCKETS_KEY.decode(): str(buckets), BATCHES_KEY.decode(): to_json(_provenance(encoder.rows, chosen))}
    try:
        return write_tables(store, name, tables, writer_options(encoder.constant(), encoder.single()), facts)
    except OSError as error:
        raise ArchiveError(
            f"{label(store, name.rpartition('/')[0])}: cannot write ({error}); free space or correct permissions, "
            "then write again"
        ) from error


def batches_of(rows: Rows, chosen: Int64) -> list[int]:
    """Indexes of the batches that the rows `chosen` are of."""
    indexes: list[int] = np.flatnonzero(np.bincount(rows.batch[chosen])).tolist()
    return indexes


def _provenance(rows: Rows, chosen: Int64) -> Provenance:
    sequences: dict[bytes, list[int]] = {}
    for at in batches_of(rows, chosen):
        sequences.setdefault(rows.batches[at].producer, []).append(rows.batches[at].sequence)
    return {producer: Ranges.of(values) for producer, values in sequences.items()}


def write_tables(store: Store, name: str, tables: Any, options: dict[str, Any], facts: dict[str, str]) -> File:
    """Writes a file of one row group per table; it appears under its name only when it is whole.

    Args:
        store: where.
        name: of the file in it.
        tables: iterable of Arrow tables of `file_schema()`.
        options: of `writer_options`.
        facts: for the footer.

    Raises:
        OSError: as the file system says.
        ArchiveError: as the object store says.
    """
    with store.write(name) as file:
        write_parquet(file, tables, options, facts)
        size = file.seek(0, 2)
    return File(name, size)


def _size(batch: Batch) -> int:
    columns = batch.columns
    tables = columns.configs.nbytes + columns.places.nbytes + columns.nodes.nbytes + columns.traces.nbytes
    return len(columns) * _ROW_BYTES + tables + sum(map(len, columns.strings))


def write_batches(root: Where, batches: Sequence[Batch], *, buckets: int = 1) -> int:
    """Writes batches and closes; returns the number of spans written."""
    writer = ArchiveWriter(root, buckets=buckets)
    for batch in batches:
        writer.add(batch)
    writer.close()
    return writer.spans_written

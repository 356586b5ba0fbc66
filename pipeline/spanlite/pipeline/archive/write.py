"""Batches to files of the archive: buffered as columns, sorted, written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spanlite.contract.batch import Batch
from spanlite.contract.columns import ROW_COLUMNS, Int64
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.encode import Encoder
from spanlite.pipeline.archive.layout import WholeFile, file_name, make_folder, partition_folder
from spanlite.pipeline.archive.rows import gather, order_rows
from spanlite.pipeline.archive.schema import (
    BUCKETS_KEY,
    FORMAT,
    FORMAT_KEY,
    file_schema,
    writer_options,
)

ROW_GROUP_ROWS = 1 << 19
ROLL_SPANS = 1 << 20
ROLL_BYTES = 256 << 20
_ROW_BYTES = sum(dtype.itemsize for dtype in ROW_COLUMNS.values())


class ArchiveWriter:
    """Writes spans to `root/date=…/hour=…/bucket=…/*.parquet`.

    Rows wait in memory as columns until `flush`, which `add` calls by itself when enough wait. A flush writes one file
    per hour and bucket. The same batches flushed again write the same files again; the same batch added twice between
    two flushes counts once.

    Attributes:
        spans_written, bytes_written, files_written: since the start.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        buckets: int = 1,
        row_group_rows: int = ROW_GROUP_ROWS,
        roll_spans: int = ROLL_SPANS,
        roll_bytes: int = ROLL_BYTES,
    ) -> None:
        """Makes the folder and checks that it can be written to.

        Args:
            root: the archive's folder.
            buckets: files an hour, by a hash of the trace; a power of two.
            row_group_rows: rows that a query skips or reads together.
            roll_spans, roll_bytes: flush when so many rows, or bytes of columns and tables, wait.

        Raises:
            ArchiveError: the folder is not writable.
            ValueError: `buckets` is not a power of two.
        """
        if buckets < 1 or buckets & (buckets - 1):
            raise ValueError(f"buckets must be a power of two, not {buckets}")
        self._root = Path(root)
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
        _check_writable(self._root)

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

    def flush(self) -> list[Path]:
        """Writes what waits; the files are whole, named and on disk when it returns.

        Returns:
            the files written.

        Raises:
            ArchiveError: a file cannot be written. All batches still wait, and can be flushed again.
        """
        if not self._waiting:
            return []
        rows = gather(list(self._waiting.values()))
        order = order_rows(rows, self._buckets)
        encoder = Encoder(rows)
        name = file_name(self._waiting)
        paths = []
        begin = 0
        for hour, bucket, end in zip(order.hours, order.buckets, order.ends, strict=True):
            folder = partition_folder(int(hour), int(bucket))
            paths.append(self._write(encoder, order.rows[begin:end], folder, name))
            begin = end
        self._waiting.clear()
        self._waiting_spans = self._waiting_bytes = 0
        self.spans_written += len(rows)
        self.files_written += len(paths)
        return paths

    def close(self) -> None:
        """Flushes.

        Raises:
            ArchiveError: as `flush`.
        """
        self.flush()

    def _write(self, encoder: Encoder, rows: Int64, folder: str, name: str) -> Path:
        options = writer_options(encoder.constant())
        tables = (
            encoder.table(rows[at : at + self._row_group_rows]) for at in range(0, len(rows), self._row_group_rows)
        )
        try:
            path = make_folder(self._root, folder) / name
            write_tables(path, tables, options, {BUCKETS_KEY.decode(): str(self._buckets)})
            self.bytes_written += path.stat().st_size
        except OSError as error:
            raise ArchiveError(
                f"{self._root / folder}: cannot write ({error}); free space or correct permissions, then write again"
            ) from error
        return path


def write_tables(path: Path, tables: Any, options: dict[str, Any], facts: dict[str, str]) -> None:
    """Writes a file of one row group per table; it appears under its name only when it is whole.

    Args:
        tables: iterable of Arrow tables of `file_schema()`.
        options: of `writer_options`.
        facts: for the footer.

    Raises:
        OSError: as the file system says.
    """
    with WholeFile(path) as file, pq.ParquetWriter(file, file_schema(), **options) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(len(table), 1))
        writer.add_key_value_metadata({FORMAT_KEY.decode(): FORMAT, **facts})


def _size(batch: Batch) -> int:
    columns = batch.columns
    tables = columns.configs.nbytes + columns.places.nbytes + columns.nodes.nbytes + columns.traces.nbytes
    return len(columns) * _ROW_BYTES + tables + sum(map(len, columns.strings))


def _check_writable(root: Path) -> None:
    probe = root / ".spanlite-probe"
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ArchiveError(
            f"{root}: cannot hold an archive ({error.strerror or error}); choose a folder that can be written"
        ) from error


def write_batches(root: Path | str, batches: Sequence[Batch], *, buckets: int = 1) -> int:
    """Writes batches and closes; returns the number of spans written."""
    writer = ArchiveWriter(root, buckets=buckets)
    for batch in batches:
        writer.add(batch)
    writer.close()
    return writer.spans_written

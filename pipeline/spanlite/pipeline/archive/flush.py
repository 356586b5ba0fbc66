"""Writing batches that may have been written before, in whatever company: each row once, none lost.

A batch's rows go to the partitions that the batch alone decides, and each file says which batches it holds. So before a
file is written, what the partition holds already is known, however the batches were grouped when they came first, and
wherever the flush of then was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Int64
from spanlite.pipeline.archive.encode import Encoder
from spanlite.pipeline.archive.layout import file_name, partition_folder
from spanlite.pipeline.archive.ledger import Ledger
from spanlite.pipeline.archive.order import cells_of, order_rows
from spanlite.pipeline.archive.port import File, Store
from spanlite.pipeline.archive.provenance import Ranges
from spanlite.pipeline.archive.rows import gather
from spanlite.pipeline.archive.store import open_store
from spanlite.pipeline.archive.write import batches_of, check_buckets, write_rows


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What a flush did; spans_written + spans_skipped = the spans of the batches that it was given.

    Attributes:
        files: those written.
        spans_skipped: rows that a visible file held already, and those of batches given twice.
    """

    files: tuple[File, ...]
    spans_written: int
    spans_skipped: int


def flush_new(store: Store, batches: Sequence[Batch], *, buckets: int = 1, ledger: Ledger) -> FlushResult:
    """Writes the rows of batches that the archive does not hold yet: one file per producer, hour and bucket.

    After an error, or the end of the process, at any moment: some files are there and whole, the others are not. The
    same batches given again, grouped in any way, then write what is missing.

    Preconditions: (producer, sequence) names the same rows whenever a batch comes; one writer per producer at a time;
    and the same `buckets` as when a batch came first. Compactions may run meanwhile.

    Args:
        store: the archive.
        batches: whole batches, in any order.
        buckets: files an hour, by a hash of the trace; a power of two.
        ledger: of this run and this store.

    Raises:
        ArchiveError: the archive cannot be read or written. The flush may be repeated with the same ledger.
        ValueError: `buckets` is not a power of two.
    """
    check_buckets(buckets)
    by_producer: dict[bytes, dict[tuple[int, int], Batch]] = {}
    for batch in batches:
        if len(batch.columns):
            by_producer.setdefault(batch.producer, {}).setdefault((batch.sequence, batch.first_row), batch)
    files: list[File] = []
    written = 0
    for _, mine in sorted(by_producer.items()):
        flushed = _Producer(store, list(mine.values()), buckets, ledger)
        files += flushed.write()
        written += flushed.spans
    return FlushResult(tuple(files), written, sum(len(batch.columns) for batch in batches) - written)


class _Producer:
    """The batches of one producer, on their way into files that share no dictionaries with those of others."""

    def __init__(self, store: Store, batches: Sequence[Batch], buckets: int, ledger: Ledger) -> None:
        self._store = store
        self._batches = batches
        self._producer = batches[0].producer
        self._buckets = buckets
        self._ledger = ledger
        self._rows = gather(batches)
        self._cells = cells_of(self._rows, buckets)
        self._order = order_rows(self._rows, self._cells, self._new())
        self.spans = len(self._order.rows)

    def write(self) -> Iterator[File]:
        """Writes one file per partition that lacks rows."""
        encoder = Encoder(self._rows)
        begin = 0
        for cell, end in zip(self._order.cells, self._order.ends, strict=True):
            yield self._write(self._folder(cell), encoder, self._order.rows[begin:end])
            begin = end

    def _folder(self, cell: np.integer[Any]) -> str:
        return partition_folder(int(self._cells.hours[cell]), int(self._cells.buckets[cell]))

    def _new(self) -> Int64:
        """Partition of each cell; -1 where it holds the batch already."""
        partition = self._cells.partition()
        for code in np.unique(partition):
            cells = np.flatnonzero(partition == code)
            held = self._ledger.held(self._store, self._folder(cells[0]), self._producer)
            used = self._cells.batch[cells]
            archived = [at for at in np.unique(used) if self._batches[at].sequence in held]
            partition[cells[np.isin(used, archived)]] = -1
        return partition

    def _write(self, folder: str, encoder: Encoder, chosen: Int64) -> File:
        batches = [self._batches[at] for at in batches_of(self._rows, chosen)]
        name = file_name((batch.producer, batch.sequence, batch.first_row) for batch in batches)
        try:
            file = write_rows(self._store, f"{folder}/{name}", encoder, chosen, buckets=self._buckets)
        except BaseException:
            self._ledger.forget(folder)
            raise
        self._ledger.note(folder, self._producer, Ranges.of(batch.sequence for batch in batches))
        return file


def writer(where: Path | str, *, buckets: int) -> Callable[[Sequence[Batch]], int]:
    """`flush_new` to an archive, with a ledger of its own: what an archive stage writes with.

    Raises:
        ArchiveError: as `open_store`; when called, as `flush_new`.
    """
    store, ledger = open_store(where), Ledger()

    def write(batches: Sequence[Batch]) -> int:
        return flush_new(store, batches, buckets=buckets, ledger=ledger).spans_written

    return write

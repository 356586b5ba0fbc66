"""The plan of a replay: which batches come, in which order, and in which row groups their rows lie.

It is made from few columns and held as columns itself, some 60 bytes for a batch and row group that holds rows of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, UInt64
from spanlite.contract.errors import ArchiveError
from spanlite.replay.pieces import NAMES, Pieces
from spanlite.replay.ports import Archive, Source
from spanlite.replay.runs import id_codes
from spanlite.replay.selection import Mask, Selection, among

ORDERS = ("arrival", "start")


@dataclass(frozen=True, slots=True)
class Plan:
    """Batches in the order of emission, b of them, and pieces (rows of one batch in one row group), p of them.

    Attributes:
        producers: 16 bytes each.
        producer, sequence, arrival_ns, start_ns, end_ns, spans: of each batch, shape (b,); `producer` is an index, the
            times are those of the agent's handing on, the first start and the last end of the spans that are taken.
        piece_begin: place in the `piece_…` columns of each batch's first, and one beyond the last, shape (b + 1,).
        piece_file, piece_group, piece_spans: shape (p,).
        traces: those with a match, if whole traces are taken.
        new_traces: how many traces have their first spans in each batch, shape (b,); zeros if nobody asked.
    """

    producers: NDArray[np.void]
    producer: Int64
    sequence: UInt64
    arrival_ns: Int64
    start_ns: Int64
    end_ns: Int64
    spans: Int64
    piece_begin: Int64
    piece_file: Int64
    piece_group: Int64
    piece_spans: Int64
    traces: frozenset[bytes] | None
    new_traces: Int64

    def __len__(self) -> int:
        return len(self.producer)

    @property
    def trace_count(self) -> int:
        """Distinct traces; 0 if nobody asked."""
        return int(self.new_traces.sum())

    @property
    def digest(self) -> str:
        """Tells apart plans that differ in anything that shows in what is emitted."""
        digest = hashlib.blake2b(digest_size=16)
        for name in ("producer", "sequence", "arrival_ns", "start_ns", "spans", "piece_file", "piece_group"):
            digest.update(np.ascontiguousarray(getattr(self, name)).tobytes())
        digest.update(self.producers.tobytes())
        return digest.hexdigest()


def make_plan(archive: Archive, selection: Selection, *, order: str = "arrival", count_traces: bool = False) -> Plan:
    """Reads the columns that say which batch a row is of, those of the selection, and no others.

    Args:
        archive: where from.
        selection: which spans.
        order: "arrival" for that in which agents handed batches on, "start" for that of their first starts.
        count_traces: also count distinct traces, which takes some 100 bytes of memory for each and one more column.

    Raises:
        ArchiveError: a file cannot be read.
    """
    matched = matched_traces(archive, selection)
    columns = [*NAMES]
    if matched is not None or count_traces:
        columns.append("trace_id")
    pieces = Pieces()
    for found in scan(archive, selection, columns, prune=matched is None, runs=True):
        taken = found.taken if not matched else found.taken | among(found.table["trace_id"], matched)
        if not taken.any():
            continue
        pieces.add((found.file, found.group), found.table, taken)
        if count_traces:
            pieces.add_traces(found.table, taken)
    return Plan(**pieces.arranged(order), traces=matched)


def matched_traces(archive: Archive, selection: Selection) -> frozenset[bytes] | None:
    """Traces that have a span which meets the conditions; None unless whole traces are asked for.

    Raises:
        ArchiveError: a file cannot be read.
    """
    if selection.everything or not selection.whole_traces:
        return None
    matched: set[bytes] = set()
    for found in scan(archive, selection, ["trace_id"], prune=True):
        codes, ids = id_codes(found.table["trace_id"])
        used = np.unique(codes[found.taken])
        matched.update(ids[code].tobytes() for code in used if code >= 0)
    return frozenset(matched)


@dataclass(frozen=True, slots=True)
class Found:
    file: int
    group: int
    table: Any
    taken: Mask


def scan(
    archive: Archive, selection: Selection, columns: list[str], *, prune: bool, runs: bool = False
) -> Iterator[Found]:
    """Every row group that may hold rows that are taken, with the columns and which rows meet the conditions.

    `runs`: see `Archive.read`.
    """
    wanted = list(dict.fromkeys([*columns, *selection.columns]))
    for number, source in enumerate(archive.sources):
        with archive.open(source) as file:
            for group in range(file.num_row_groups):
                if prune and not _may_hold(file, group, selection):
                    continue
                table = read_group(archive, source, file, group, wanted, runs=runs)
                yield Found(number, group, table, selection.mask(table))


def _may_hold(file: Any, group: int, selection: Selection) -> bool:
    statistics = file.metadata.row_group(group).column(file.schema_arrow.names.index("start_ns")).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return selection.may_hold(statistics.min, statistics.max)


def read_group(
    archive: Archive, source: Source, file: Any, group: int, columns: list[str], *, runs: bool = False
) -> Any:
    """Columns of one row group; `runs`: see `Archive.read`.

    Raises:
        ArchiveError: the row group is damaged.
    """
    try:
        return archive.read(file, group, columns, runs=runs)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(
            f"{archive.where}/{source.name}: row group {group} is damaged ({error}); remove the file or restore it"
        ) from error

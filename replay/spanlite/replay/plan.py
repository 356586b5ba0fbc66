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
from spanlite.replay.ports import Archive, Source
from spanlite.replay.runs import change_points, id_codes, joint_codes, spread
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
    matched: set[bytes] | None = None
    if selection.whole_traces and not selection.everything:
        matched = set()
        for found in scan(archive, selection, ["trace_id"], prune=True):
            codes, ids = id_codes(found.table["trace_id"])
            used = np.unique(codes[found.taken])
            matched.update(ids[code].tobytes() for code in used if code >= 0)
    columns = ["producer", "batch_sequence", "emit_ns", "start_ns", "duration_ns"]
    if matched is not None or count_traces:
        columns.append("trace_id")
    pieces = _Pieces()
    for found in scan(archive, selection, columns, prune=matched is None):
        taken = found.taken if not matched else found.taken | among(found.table["trace_id"], matched)
        if not taken.any():
            continue
        pieces.add(found, taken)
        if count_traces:
            pieces.add_traces(found, taken)
    return pieces.plan(order, frozenset(matched) if matched is not None else None)


@dataclass(frozen=True, slots=True)
class Found:
    file: int
    group: int
    table: Any
    taken: Mask


def scan(archive: Archive, selection: Selection, columns: list[str], *, prune: bool) -> Iterator[Found]:
    """Every row group that may hold rows that are taken, with the columns and which rows meet the conditions."""
    wanted = list(dict.fromkeys([*columns, *selection.columns]))
    for number, source in enumerate(archive.sources):
        with archive.open(source) as file:
            for group in range(file.num_row_groups):
                if prune and not _may_hold(file, group, selection):
                    continue
                table = read_group(archive, source, file, group, wanted)
                yield Found(number, group, table, selection.mask(table))


def _may_hold(file: Any, group: int, selection: Selection) -> bool:
    statistics = file.metadata.row_group(group).column(file.schema_arrow.names.index("start_ns")).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return selection.may_hold(statistics.min, statistics.max)


def read_group(archive: Archive, source: Source, file: Any, group: int, columns: list[str]) -> Any:
    """Columns of one row group.

    Raises:
        ArchiveError: the row group is damaged.
    """
    try:
        return archive.read(file, group, columns)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(
            f"{archive.where}/{source.name}: row group {group} is damaged ({error}); remove the file or restore it"
        ) from error


class _Pieces:
    """Pieces as they are found, row group by row group."""

    def __init__(self) -> None:
        self._producers: dict[bytes, int] = {}
        self._found: list[NDArray[np.int64]] = []
        self._traces: dict[bytes, int] = {}
        self._members: list[NDArray[np.int64]] = []

    def add(self, found: Found, taken: Mask) -> None:
        """Adds the rows `taken` of a row group."""
        table, rows = found.table, np.flatnonzero(taken)
        codes, ids = id_codes(table["producer"])
        numbers = np.array([self._producers.setdefault(i.tobytes(), len(self._producers)) for i in ids], dtype=np.int64)
        sequence = table["batch_sequence"].to_numpy()[rows].view(np.int64)
        producer = numbers[codes[rows]]
        start = table["start_ns"].to_numpy()[rows]
        end = start + table["duration_ns"].to_numpy()[rows]
        begins = change_points(producer, sequence)
        counts = np.diff(np.append(begins, len(rows)))
        runs = np.stack(
            [
                producer[begins],
                sequence[begins],
                table["emit_ns"].to_numpy()[rows[begins]],
                np.minimum.reduceat(start, begins),
                np.maximum.reduceat(end, begins),
                counts,
            ]
        )
        joined = _joined(runs)
        place = np.broadcast_to(np.array([[found.file], [found.group]]), (2, joined.shape[1]))
        self._found.append(np.concatenate([joined, place]))

    def add_traces(self, found: Found, taken: Mask) -> None:
        """Notes which batches have spans of which traces; after `add` of the same rows."""
        table = found.table
        codes, ids = id_codes(table["trace_id"])
        rows = np.flatnonzero(taken & (codes >= 0))
        producer, producers = id_codes(table["producer"])
        known = np.array([self._producers.get(i.tobytes(), -1) for i in producers], dtype=np.int64)
        sequence = table["batch_sequence"].to_numpy()[rows].view(np.int64)
        _, first = joint_codes((codes[rows], producer[rows], sequence), len(rows))
        used = np.unique(codes[rows])
        numbers = np.zeros(len(ids), dtype=np.int64)
        numbers[used] = [self._traces.setdefault(ids[code].tobytes(), len(self._traces)) for code in used]
        at = rows[first]
        self._members.append(np.stack([numbers[codes[at]], known[producer[at]], sequence[first]]))

    def _new_traces(self, ranks: NDArray[np.int64], producer: Int64, sequence: Int64) -> Int64:
        """Of each batch, in the order of emission, how many traces come first in it."""
        counts = np.zeros(len(producer), dtype=np.int64)
        if not self._members:
            return counts
        trace, of, number = np.concatenate(self._members, axis=1)
        code, first = joint_codes(
            (np.append(producer, ranks[of]), np.append(sequence, number)), len(producer) + len(trace)
        )
        place = np.empty(len(first), dtype=np.int64)
        place[code[: len(producer)]] = np.arange(len(producer))
        earliest = np.full(len(self._traces), len(producer), dtype=np.int64)
        np.minimum.at(earliest, trace, place[code[len(producer) :]])
        counts += np.bincount(earliest, minlength=len(producer))
        return counts

    def plan(self, order: str, traces: frozenset[bytes] | None) -> Plan:
        """The plan of all that was added."""
        found = np.concatenate(self._found, axis=1) if self._found else np.zeros((8, 0), dtype=np.int64)
        names = sorted(self._producers)
        ranks = np.empty(len(names), dtype=np.int64)
        ranks[[self._producers[name] for name in names]] = np.arange(len(names))
        found[0] = ranks[found[0]]
        pieces = found[:, np.lexsort((found[7], found[6], found[1].view(np.uint64), found[0]))]
        begins = change_points(pieces[0], pieces[1])
        whole = _joined(pieces[:6])
        key = whole[2] if order == "arrival" else whole[3]
        arranged = np.lexsort((whole[1].view(np.uint64), whole[0], key))
        counts = np.diff(np.append(begins, pieces.shape[1]))
        at = spread(begins[arranged], counts[arranged])
        return Plan(
            producers=np.array(names, dtype="V16"),
            producer=whole[0][arranged],
            sequence=whole[1][arranged].view(np.uint64),
            arrival_ns=whole[2][arranged],
            start_ns=whole[3][arranged],
            end_ns=whole[4][arranged],
            spans=whole[5][arranged],
            piece_begin=np.append(0, np.cumsum(counts[arranged])),
            piece_file=pieces[6][at],
            piece_group=pieces[7][at],
            piece_spans=pieces[5][at],
            traces=traces,
            new_traces=self._new_traces(ranks, whole[0][arranged], whole[1][arranged]),
        )


def _joined(runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns (producer, sequence, arrival, first start, last end, spans) with each producer and sequence once."""
    runs = runs[:, np.lexsort((runs[1].view(np.uint64), runs[0]))]
    begins = change_points(runs[0], runs[1])
    if not len(begins):
        return runs
    least = [np.minimum.reduceat(runs[at], begins) for at in (2, 3)]
    return np.stack(
        [
            runs[0][begins],
            runs[1][begins],
            *least,
            np.maximum.reduceat(runs[4], begins),
            np.add.reduceat(runs[5], begins),
        ]
    )

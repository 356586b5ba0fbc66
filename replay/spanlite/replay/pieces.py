"""Pieces of batches, each in one row group, as a plan finds them, and the batches that they make."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64
from spanlite.replay.runs import change_points, id_codes, joint_codes, numbers, spread, taken_rows, through
from spanlite.replay.selection import Mask

NAMES = ("producer", "batch_sequence", "emit_ns", "start_ns", "duration_ns")
"""Columns that pieces are found by."""


class Pieces:
    """Pieces as they are found, row group by row group."""

    def __init__(self) -> None:
        self._producers: dict[bytes, int] = {}
        self._found: list[NDArray[np.int64]] = []
        self._traces: dict[bytes, int] = {}
        self._members: list[NDArray[np.int64]] = []

    def add(self, place: tuple[int, int], table: Any, taken: Mask) -> None:
        """Adds the rows `taken` of a row group, by the numbers of its file and of itself."""
        rows = None if taken.all() else np.flatnonzero(taken)
        codes, ids = id_codes(table["producer"])
        known = np.array([self._producers.setdefault(i.tobytes(), len(self._producers)) for i in ids], dtype=np.int64)
        values = (through(known, codes), *(numbers(table[name]) for name in NAMES[1:]))
        producer, sequence, emit, start, duration = (taken_rows(each, rows) for each in values)
        end = start + duration
        begins = change_points(producer, sequence)
        counts = np.diff(np.append(begins, len(start)))
        runs = np.stack(
            [
                producer[begins],
                sequence[begins].view(np.int64),
                emit[begins],
                np.minimum.reduceat(start, begins),
                np.maximum.reduceat(end, begins),
                counts,
            ]
        )
        joined = _joined(runs)
        where = np.broadcast_to(np.array([[place[0]], [place[1]]]), (2, joined.shape[1]))
        self._found.append(np.concatenate([joined, where]))

    def add_traces(self, table: Any, taken: Mask) -> None:
        """Notes which batches have spans of which traces; after `add` of the same rows."""
        codes, ids = id_codes(table["trace_id"])
        rows = np.flatnonzero(taken & (codes >= 0))
        producer, producers = id_codes(table["producer"])
        known = np.array([self._producers.get(i.tobytes(), -1) for i in producers], dtype=np.int64)
        sequence = numbers(table["batch_sequence"])[rows].view(np.int64)
        _, first = joint_codes((codes[rows], producer[rows], sequence), len(rows))
        used = np.unique(codes[rows])
        traces = np.zeros(len(ids), dtype=np.int64)
        traces[used] = [self._traces.setdefault(ids[code].tobytes(), len(self._traces)) for code in used]
        at = rows[first]
        self._members.append(np.stack([traces[codes[at]], known[producer[at]], sequence[first]]))

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

    def arranged(self, order: str) -> dict[str, Any]:
        """What was added as attributes of a Plan, all but `traces`; `order`: see `make_plan`."""
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
        return {
            "producers": np.array(names, dtype="V16"),
            "producer": whole[0][arranged],
            "sequence": whole[1][arranged].view(np.uint64),
            "arrival_ns": whole[2][arranged],
            "start_ns": whole[3][arranged],
            "end_ns": whole[4][arranged],
            "spans": whole[5][arranged],
            "piece_begin": np.append(0, np.cumsum(counts[arranged])),
            "piece_file": pieces[6][at],
            "piece_group": pieces[7][at],
            "piece_spans": pieces[5][at],
            "new_traces": self._new_traces(ranks, whole[0][arranged], whole[1][arranged]),
        }


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

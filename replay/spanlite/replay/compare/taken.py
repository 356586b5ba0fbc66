"""Which spans of an original a run was to emit, and under which numbers: its selection, said once more.

It asks batches and not the archive's rows, and shares nothing with the reader that replays use: what that one left out
or took too much shows as missing or foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import Batch
from spanlite.contract.columns import UInt64
from spanlite.contract.ids import RANGE_BIT, mix64
from spanlite.replay.compare.told import Told
from spanlite.replay.selection import Selection

_WORD = 1 << 64
Mask = NDArray[np.bool_]
Read = Callable[[], Iterable[Batch]]
"""Begins to read an archive's batches, in the order in which agents handed them on."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one batch that were to come, as read in one piece.

    Attributes:
        batch: the piece, whole.
        taken: which of its rows.
        numbers: of the rows that are taken, as they were to go out: numbers of rows, of ranges with RANGE_BIT.
    """

    batch: Batch
    taken: Mask
    numbers: UInt64


@dataclass(frozen=True, slots=True)
class Expected:
    """What was to come of one batch; one that lacks rows in the archive is read in several pieces.

    Attributes:
        pieces: at least one.
        sizes: spans of each SpanBatch message that they were to make.
    """

    pieces: list[Piece]
    sizes: list[int]

    @property
    def key(self) -> tuple[bytes, int]:
        """Producer and sequence of the batch."""
        return self.pieces[0].batch.producer, self.pieces[0].batch.sequence

    @property
    def spans(self) -> int:
        """How many of them there are."""
        return sum(self.sizes)

    @property
    def start_ns(self) -> int:
        """First start among them."""
        return min(int(piece.batch.columns.start_ns[piece.taken].min()) for piece in self.pieces)

    def first(self, most: int) -> Expected:
        """The first spans of it; at least 1."""
        pieces, left = [], most
        for piece in self.pieces:
            if left > 0:
                rows = np.flatnonzero(piece.taken)[:left]
                taken = np.zeros_like(piece.taken)
                taken[rows] = True
                pieces.append(Piece(piece.batch, taken, piece.numbers[:left]))
                left -= len(rows)
        ends = np.minimum(np.cumsum(self.sizes), most)
        return Expected(pieces, [size for size in np.diff(ends, prepend=0).tolist() if size])


def expected(read: Read, told: Told) -> Iterator[Expected]:
    """What was to come in one turn, batch by batch."""
    selection = told.selection
    traces = _matching_traces(read, selection) if selection.whole_traces and not selection.everything else None
    for _, read_pieces in groupby(read(), key=lambda batch: (batch.producer, batch.sequence)):
        pieces: list[Piece] = []
        sizes: list[int] = []
        following = 0
        for batch in read_pieces:
            taken = mask(batch, selection, traces)
            rows = np.flatnonzero(taken).astype(np.uint64) + np.uint64(batch.first_row)
            if not len(rows):
                continue
            if told.renumbered:
                begin = following or int(rows[0])
                rows = np.arange(begin, begin + len(rows), dtype=np.uint64)
                following = begin + len(rows)
                sizes = [sum(sizes) + len(rows)]
            else:
                cuts = np.flatnonzero(rows[1:] - rows[:-1] != 1) + 1
                sizes += np.diff([0, *cuts.tolist(), len(rows)]).tolist()
            pieces.append(Piece(batch, taken, _numbers(batch, taken, rows)))
        if pieces:
            yield Expected(pieces, sizes)


def _numbers(batch: Batch, taken: Mask, rows: UInt64) -> UInt64:
    ranges = batch.columns.range_number[taken]
    return np.where(ranges >= 0, ranges.view(np.uint64) | np.uint64(RANGE_BIT), rows)


def _matching_traces(read: Read, selection: Selection) -> frozenset[bytes]:
    found: set[bytes] = set()
    for batch in read():
        indexes = np.unique(batch.columns.trace[mask(batch, selection)])
        found.update(batch.columns.traces["id"][at].tobytes() for at in indexes if at >= 0)
    return frozenset(found)


def mask(batch: Batch, selection: Selection, traces: frozenset[bytes] | None = None) -> Mask:
    """Which rows of a batch are taken; `traces` are those that are taken whole."""
    columns = batch.columns
    if selection.everything:
        return np.ones(len(columns), dtype=bool)
    taken = (columns.start_ns >= selection.from_ns) & (columns.start_ns < selection.to_ns)
    taken &= columns.duration_ns >= selection.least_ns
    if selection.traces:
        taken &= _of_traces(batch, frozenset(selection.traces))
    if selection.share < 1:
        taken &= _sampled(batch, selection)
    if selection.hosts:
        taken &= batch.resource.get("host.name", "") in selection.hosts
    if selection.gpus:
        uuids = ["", *(gpu.uuid for gpu in batch.gpus)]
        listed = np.array([uuid in selection.gpus for uuid in uuids])
        taken &= listed[columns.places["gpu"]][columns.place]
    if selection.kernels:
        named = _matching(columns.strings, selection.kernels)
        taken &= (named[columns.configs["kernel"]] | named[columns.configs["name"]])[columns.config]
    if selection.stages:
        taken &= _matching(columns.strings, selection.stages)[columns.stage]
    return taken | _of_traces(batch, traces) if traces else taken


def _sampled(batch: Batch, selection: Selection) -> Mask:
    """Which rows are of traces, or, outside traces, of batches, whose hash is below the share."""
    most, seed = min(int(selection.share * 2.0**64), _WORD - 1), selection.share_seed % _WORD
    ids = np.append(batch.columns.traces["id"], np.array([batch.producer], dtype="V16"))
    words = np.ascontiguousarray(ids).view("<u8").reshape(-1, 2)
    hashes = mix64(mix64(words[:, 0] ^ np.uint64(seed)) ^ words[:, 1])
    hashes[-1:] = mix64(hashes[-1:] ^ mix64(np.array([batch.sequence], dtype=np.uint64)))
    return np.asarray((hashes < np.uint64(most))[batch.columns.trace])  # -1, outside traces, is the last


def _matching(texts: Sequence[str], patterns: Sequence[str]) -> Mask:
    return np.array([any(fnmatchcase(text, pattern) for pattern in patterns) for text in texts], dtype=bool)


def _of_traces(batch: Batch, traces: frozenset[bytes]) -> Mask:
    listed = [entry.tobytes() in traces for entry in batch.columns.traces["id"]]
    return np.array([*listed, False], dtype=bool)[batch.columns.trace]

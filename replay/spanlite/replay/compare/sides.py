"""Both sides, batch by batch: what was to come, and what came, with a line for each message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Int64, UInt64
from spanlite.contract.ids import RANGE_BIT
from spanlite.replay.compare.arrivals import Messages
from spanlite.replay.compare.columns import Columns, Common, Head
from spanlite.replay.compare.taken import Expected, Read, expected
from spanlite.replay.compare.told import Told
from spanlite.replay.compare.undo import Undo
from spanlite.replay.moments import Moment

_TIMES = {"arrival": 1, "start": 2}
"""Which times are where in a line of a message."""
SAMPLE_SPANS, SAMPLE_OF_MESSAGE = 4000, 500
"""Spans of the replay that are written as JSON lines, to compare sizes, and most of one message."""


@dataclass(frozen=True, slots=True)
class Came:
    """One message of the replay.

    Attributes:
        batch: what it says; None where it cannot be read.
        size: bytes on the wire; None where it did not come over any.
        partition: messages of one keep their order.
        time_ms: when the broker stored it; None where nobody says.
        why: what is wrong with one that cannot be read.
        moment: when the run let it go, as it says itself; None where it does not.
    """

    batch: Batch | None
    size: int | None = None
    partition: int = 0
    time_ms: int | None = None
    why: str = ""
    moment: Moment | None = None


class OriginalSide:
    """What was to come, turn after turn.

    Attributes:
        heads: of the archive's batches, each once.
        messages: how many were to come, in all turns.
    """

    def __init__(self, read: Read, told: Told, common: Common) -> None:
        self._read = read
        self._told = told
        self._common = common
        self._known: dict[tuple[bytes, int], int] = {}
        self._messages: list[tuple[int, int, int, int]] = []
        self._counted = told.pacing.get("qps_of") == "traces"
        self._begins: dict[bytes, tuple[tuple[int, bytes, int], int]] = {}
        self.heads: list[Head] = []
        self.messages = 0

    def columns(self) -> Iterator[Columns]:
        """All spans that were to come, batch by batch."""
        left = self._told.most_spans
        for loop in range(self._told.loops):
            room = self._rooms(left) if left is not None and self._told.order == "start" else None
            for whole in expected(self._read, self._told):
                one = whole
                if left is not None:
                    most = left if room is None else room.get(whole.key, 0)
                    if most <= 0:
                        continue
                    one = whole.first(most)
                    left -= one.spans
                head = self._known.setdefault(one.key, len(self.heads))
                if head == len(self.heads):
                    self.heads.append(Head.of(one.pieces[0].batch, sequence=one.key[1]))
                self.messages += len(one.sizes)
                if not loop:
                    times = one.pieces[0].batch.emit_ns, one.start_ns
                    self._messages += [(head, *times, size) for size in one.sizes]
                    if self._counted:
                        self._begin_traces(whole, head)
                for piece in one.pieces:
                    yield self._common.columns(piece.batch, piece.numbers, loop=loop, head=head, taken=piece.taken)

    def _rooms(self, left: int) -> dict[tuple[bytes, int], int]:
        """Spans of each batch that are among the first `left` of a turn by first starts."""
        rooms: dict[tuple[bytes, int], int] = {}
        for _, key, spans in sorted((one.start_ns, one.key, one.spans) for one in expected(self._read, self._told)):
            rooms[key] = min(spans, left)
            left -= rooms[key]
        return rooms

    def _begin_traces(self, one: Expected, head: int) -> None:
        """Notes which traces have spans in a batch; of each the batch that the run emits first."""
        time_ns = one.pieces[0].batch.emit_ns if self._told.order == "arrival" else one.start_ns
        place = (time_ns, *one.key)
        for piece in one.pieces:
            columns = piece.batch.columns
            for at in np.unique(columns.trace[piece.taken]).tolist():
                if at >= 0:
                    trace = columns.traces["id"][at].tobytes()
                    self._begins[trace] = min(self._begins.get(trace, (place, head)), (place, head))

    def weights(self, turn: Messages) -> Int64 | None:
        """What each message of a turn weighs against the limit; None where that is 1.

        It is its spans, or the traces that begin with its batch, which the first message of that stands for.
        """
        if self._told.pacing.get("qps_of") == "spans":
            return turn.spans
        if not self._counted:
            return None
        new = np.bincount([head for _, head in self._begins.values()], minlength=len(self.heads))
        heads, first = np.unique(turn.batch, return_index=True)
        weights = np.zeros(len(turn), dtype=np.int64)
        weights[first] = new[heads]
        return weights

    def turn(self, times: str) -> Messages:
        """The messages of one turn in the order of the run, at some times.

        Args:
            times: "arrival" for their batches' handing on, "start" for their first starts.
        """
        heads, by = self.heads, _TIMES[self._told.order]
        rows = sorted(self._messages, key=lambda row: (row[by], heads[row[0]].producer, heads[row[0]].sequence))
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return Messages(table[:, 0], table[:, _TIMES[times]], table[:, 3])


class ReplayedSide:
    """What came.

    Attributes:
        heads: of each message of this run.
        sizes, partitions, times_ms, loops, rows, moments: of each.
        others: messages of other runs, or of no replay; set aside.
        unreadable: messages that are no batches.
        first_unreadable: what is wrong with the first of them.
        repeated: messages of this run whose name had come before.
        sample: batches of some spans.
    """

    def __init__(self, came: Iterable[Came], told: Told, common: Common, producers: Iterable[bytes]) -> None:
        self._came = came
        self._told = told
        self._common = common
        self._undo = Undo(told, producers)
        self._names: set[tuple[bytes, int]] = set()
        self._sampled = 0
        self.heads: list[Head] = []
        self.sizes: list[int | None] = []
        self.partitions: list[int] = []
        self.times_ms: list[int | None] = []
        self.loops: list[int] = []
        self.rows: list[int] = []
        self.moments: list[Moment | None] = []
        self.others = self.unreadable = self.repeated = 0
        self.first_unreadable = ""
        self.sample: list[Batch] = []

    def columns(self) -> Iterator[Columns]:
        """All spans that say that they are of the run, message by message."""
        for came in self._came:
            batch = came.batch
            if batch is None:
                self.unreadable += 1
                self.first_unreadable = self.first_unreadable or came.why
            elif not self._undo.of_run(batch):
                self.others += 1
            elif len(batch.columns):
                yield self._take(batch, came)

    def _take(self, batch: Batch, came: Came) -> Columns:
        name = (batch.producer, batch.sequence)
        self.repeated += name in self._names
        self._names.add(name)
        if self._sampled < SAMPLE_SPANS:
            self._sample(batch)
        loop = self._undo.loop(batch)
        undone = self._undo.undone(batch, loop) if loop >= 0 else batch
        self.heads.append(Head.of(undone, sequence=batch.sequence if self._told.kept else None))
        self.sizes.append(came.size)
        self.partitions.append(came.partition)
        self.times_ms.append(came.time_ms)
        self.loops.append(loop)
        self.rows.append(len(batch.columns))
        self.moments.append(came.moment)
        return self._common.columns(undone, _numbers(undone), loop=loop, head=len(self.heads) - 1)

    def _sample(self, batch: Batch) -> None:
        step = -(-len(batch.columns) // SAMPLE_OF_MESSAGE)
        rows = np.arange(0, len(batch.columns), step)[: SAMPLE_SPANS - self._sampled]
        self.sample.append(replace(batch, columns=batch.columns.take(rows)))  # ids of others, but of their length
        self._sampled += len(rows)

    def carried(self, original_of: Int64) -> Messages:
        """Messages at the times that they carry, turns set apart by their period."""
        times = [
            head.emit_ns + max(loop, 0) * self._told.period_ns
            for head, loop in zip(self.heads, self.loops, strict=True)
        ]
        return Messages(original_of, np.array(times, dtype=np.int64), np.array(self.rows, dtype=np.int64))

    def stored(self, original_of: Int64) -> Messages:
        """Messages at the times at which the broker stored them."""
        times = [ms * 1_000_000 for ms in self.times_ms if ms is not None]
        return Messages(original_of, np.array(times, dtype=np.int64), np.array(self.rows, dtype=np.int64))


def _numbers(batch: Batch) -> UInt64:
    ranges = batch.columns.range_number
    rows = np.arange(batch.first_row, batch.first_row + len(ranges), dtype=np.uint64)
    return np.where(ranges >= 0, ranges.view(np.uint64) | np.uint64(RANGE_BIT), rows)

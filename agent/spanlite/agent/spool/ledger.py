"""What became of every record: given a sequence, handed out, acknowledged, lost. Nothing here touches the disk."""

from __future__ import annotations

from collections import Counter

from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item
from spanlite.agent.spool.acks import Acks
from spanlite.agent.spool.cursor import START, Lost, Position, Saved
from spanlite.agent.spool.recovery import Recovered
from spanlite.contract import catalogue


class Ledger:
    """Books of one spool; its owner lets one thread in at a time.

    spans entered + spans recovered = acknowledged + lost (counted by reason) + `spans`, at every moment.
    """

    def __init__(self, counts: AgentCounts) -> None:
        self._counts = counts
        self._acks = Acks(*START)
        self._given: dict[int, int] = {}
        self.end = START
        """The next sequence, and the spans of all records before it."""

    def recover(self, found: Recovered) -> None:
        """Starts from what a folder holds."""
        self._acks, self.end = Acks(*found.position), found.end
        for known in found.known:
            self._acks.add_range(*known)
        self._counts.add(catalogue.AGENT_SPANS_RECOVERED, self.spans)
        for loss in found.losses:
            self._lose(*self._acks.add_range(loss.first, loss.end, loss.spans), loss.reason)
        for reason, records in found.unknown.items():
            self._lose(records, 0, reason)
        self.fault(found.faults)

    @property
    def position(self) -> Position:
        """The first record that is not done with."""
        return Position(self._acks.cursor, self._acks.spans)

    @property
    def saved(self) -> Saved:
        """What the next run must know."""
        return Saved(self.position, tuple(Lost(*one) for one in self._acks.ranges))

    @property
    def spans(self) -> int:
        """Spans that wait."""
        return self.end.spans - self._acks.spans_done

    @property
    def records(self) -> int:
        """Records that wait."""
        return self.end.sequence - self._acks.cursor - self._acks.records_ahead

    def enter(self, item: Item) -> None:
        """Gives an item the next sequence."""
        self.end = Position(self.end.sequence + 1, self.end.spans + item.spans)

    def live_from(self, sequence: int) -> int | None:
        """The first waiting record at or after a sequence."""
        sequence = self._acks.live_from(sequence)
        return sequence if sequence < self.end.sequence else None

    def give(self, sequence: int, spans: int) -> None:
        """Notes that a record was handed out; all waiting ones before it have been, too."""
        self._given[sequence] = spans

    def ack(self, sequence: int) -> int | None:
        """A record that was handed out is done with: its spans, or None when it was lost meanwhile."""
        spans = self._given.pop(sequence, None)
        return spans if spans is not None and self._acks.add(sequence, spans) else None

    def lose(self, sequence: int, spans: int, reason: str) -> None:
        """One record is gone."""
        self._given.pop(sequence, None)
        if sequence not in self._acks:
            self._lose(*self._acks.add_range(sequence, sequence + 1, spans), reason)

    def lose_before(self, position: Position, reason: str) -> None:
        """All that waits before a position is gone."""
        self._lose(*self._acks.advance_to(*position), reason)

    def lose_gap(self, sequence: int, end: Position, reason: str) -> None:
        """The records from a sequence, which waits, up to an end cannot be read.

        Their spans are what the end says, less those before the sequence: done with, acknowledged ahead, or handed out.
        """
        given = sum(spans for one, spans in self._given.items() if self._acks.cursor <= one < sequence)
        spans = end.spans - self._acks.spans - self._acks.spans_ahead(sequence) - given
        self._lose(*self._acks.add_range(sequence, end.sequence, max(spans, 0)), reason)

    def fault(self, faults: Counter[str]) -> None:
        """Counts what was found wrong, by kind."""
        for kind, count in faults.items():
            self._counts.add(catalogue.AGENT_SPOOL_FAULTS, count, kind)

    def _lose(self, records: int, spans: int, reason: str) -> None:
        if records:
            self._counts.add(catalogue.AGENT_SPANS_DROPPED, spans, reason)
            self._counts.add(catalogue.AGENT_SPOOL_RECORDS_LOST, records, reason)

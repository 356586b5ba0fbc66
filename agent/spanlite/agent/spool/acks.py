"""Which records are done with: a contiguous prefix, and what is acknowledged ahead of it."""

from __future__ import annotations


class Acks:
    """Acknowledged sequences. Not safe for several threads.

    Attributes:
        cursor: the first sequence that is not acknowledged.
        spans: spans of all records before it, since the spool began.
    """

    def __init__(self, cursor: int, spans: int) -> None:
        self.cursor = cursor
        self.spans = spans
        self._single: dict[int, int] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._spans_ahead = 0

    @property
    def spans_done(self) -> int:
        """Spans of everything acknowledged, since the spool began."""
        return self.spans + self._spans_ahead

    @property
    def records_ahead(self) -> int:
        """Records acknowledged ahead of the cursor."""
        return len(self._single) + sum(end - first for first, (end, _) in self._ranges.items())

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """What was acknowledged as a range ahead of the cursor: first, end, spans."""
        return [(first, end, spans) for first, (end, spans) in sorted(self._ranges.items())]

    def spans_ahead(self, sequence: int) -> int:
        """Spans acknowledged ahead of the cursor and before a sequence."""
        single = sum(spans for one, spans in self._single.items() if one < sequence)
        return single + sum(spans for first, (_, spans) in self._ranges.items() if first < sequence)

    def __contains__(self, sequence: int) -> bool:
        return (
            sequence < self.cursor
            or sequence in self._single
            or any(first <= sequence < end for first, (end, _) in self._ranges.items())
        )

    def add(self, sequence: int, spans: int) -> bool:
        """Acknowledges one record; False when it was acknowledged before."""
        if sequence in self:
            return False
        self._single[sequence] = spans
        self._spans_ahead += spans
        self._advance()
        return True

    def add_range(self, first: int, end: int, spans: int) -> tuple[int, int]:
        """Acknowledges [first, end), which holds `spans` in all. Ranges lie apart or within each other.

        Returns:
            Records and spans of it that were not acknowledged before.
        """
        if end <= self.cursor or any(one <= first and end <= last for one, (last, _) in self._ranges.items()):
            return 0, 0
        covered = [one for one in self._single if first <= one < end]
        ranges = [one for one, (last, _) in self._ranges.items() if first <= one and last <= end]
        before = sum(self._single.pop(one) for one in covered)
        count = len(covered)
        for one in ranges:
            last, within = self._ranges.pop(one)
            count += last - one
            before += within
        self._ranges[first] = (end, spans)
        self._spans_ahead += spans - before
        self._advance()
        return end - first - count, spans - before

    def advance_to(self, sequence: int, spans: int) -> tuple[int, int]:
        """Acknowledges everything before `sequence`, whose spans_before is `spans`; what add_range returns."""
        if sequence <= self.cursor:
            return 0, 0
        return self.add_range(self.cursor, sequence, max(spans - self.spans, 0))

    def live_from(self, sequence: int) -> int:
        """The first sequence at or after this one that is not acknowledged."""
        sequence = max(sequence, self.cursor)
        while sequence in self:
            found = [end for first, (end, _) in self._ranges.items() if first <= sequence < end]
            sequence = found[0] if found else sequence + 1
        return sequence

    def _advance(self) -> None:
        while True:
            if self.cursor in self._single:
                spans = self._single.pop(self.cursor)
                self.cursor += 1
            elif self.cursor in self._ranges:
                self.cursor, spans = self._ranges.pop(self.cursor)
            else:
                return
            self.spans += spans
            self._spans_ahead -= spans

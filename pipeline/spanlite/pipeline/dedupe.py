"""Batches seen before, by producer and sequence: redelivery never counts twice."""

from __future__ import annotations


class Seen:
    """Remembers each producer's sequences in bounded memory.

    Below `floor` all have been seen (or given up as lost: see `horizon`); above it the few that came early.
    """

    def __init__(self, *, horizon: int = 4096) -> None:
        self.horizon = horizon
        self.duplicates = 0
        self.given_up = 0
        self._floor: dict[bytes, int] = {}
        self._early: dict[bytes, set[int]] = {}

    def first_time(self, producer: bytes, sequence: int) -> bool:
        """Whether the batch is new; remembers it if so.

        A gap that stays open for more than `horizon` later batches is given up and counted in `given_up`; a batch
        that arrives after that is taken for a duplicate.
        """
        floor = self._floor.setdefault(producer, 0)
        early = self._early.setdefault(producer, set())
        if sequence < floor or sequence in early:
            self.duplicates += 1
            return False
        early.add(sequence)
        while floor in early:
            early.remove(floor)
            floor += 1
        while len(early) > self.horizon:
            self.given_up += min(early) - floor
            floor = min(early)
            while floor in early:
                early.remove(floor)
                floor += 1
        self._floor[producer] = floor
        return True

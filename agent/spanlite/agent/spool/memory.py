"""Records that the spool has in memory: the newest as a copy of the disk's, and those the disk would not take."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from spanlite.agent.outlet import Item
from spanlite.agent.spool.ledger import Ledger
from spanlite.agent.spool.settings import Policy, SpoolSettings

_EACH_BYTES = 400
"""What a record costs beyond its bytes, roughly: many small ones must not pass for little."""


def cost(item: Item) -> int:
    """Bytes of memory that an item takes, roughly."""
    return _EACH_BYTES + len(item.key) + len(item.value)


class Entry(NamedTuple):
    """An item and the spans of all before it."""

    item: Item
    spans_before: int


class Held:
    """Entries by sequence, in order, with the sum of their cost."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, sequence: int, entry: Entry) -> None:
        """Adds one behind all others."""
        self._entries[sequence] = entry
        self.bytes += cost(entry.item)

    def get(self, sequence: int) -> Item | None:
        entry = self._entries.get(sequence)
        return entry.item if entry else None

    def first(self) -> tuple[int, Entry] | None:
        """The oldest."""
        return next(iter(self._entries.items()), None)

    def remove(self, sequence: int) -> None:
        """Removes one if it is there."""
        entry = self._entries.pop(sequence, None)
        if entry is not None:
            self.bytes -= cost(entry.item)

    def shrink(self, most_bytes: int) -> None:
        """Removes the oldest until the rest fits."""
        while self.bytes > most_bytes and (oldest := self.first()):
            self.remove(oldest[0])


class Overflow(Held):
    """Records that are nowhere else: who removes one that still waits has it counted as lost."""

    def __init__(self, ledger: Ledger, settings: SpoolSettings) -> None:
        super().__init__()
        self._ledger = ledger
        self._settings = settings

    def make_room(self, needed: int) -> str | None:
        """Gives up the oldest until there is room, where the policy allows it; the reason where there is none."""
        while self.bytes + needed > self._settings.memory_bytes:
            if self._settings.policy is Policy.NEWEST or not self:
                return "spool_memory"
            self.give_up_oldest()
        return None

    def give_up_oldest(self) -> None:
        """The oldest is dropped."""
        if oldest := self.first():
            sequence, entry = oldest
            self.remove(sequence)
            self._ledger.lose(sequence, entry.item.spans, "spool_memory")

"""Names that records and stamps point to, copied while they are still there, each to be sent once a connection."""

from __future__ import annotations

from itertools import count

MOST = 1 << 16
MOST_BYTES = 32 << 20
LONGEST = 1 << 16
MADE_UP = 1 << 63
"""Pointers from here on are made up; no address of a program is that large."""


class Names:
    """A log that only grows: (pointer, text) in the order in which they must be told.

    A name that changes under its address is told again. Safe from any thread: each step is one of Python's own, and two
    threads that meet the same new name log it twice.
    """

    def __init__(self) -> None:
        self.log: list[tuple[int, bytes]] = []
        self._newest: dict[object, tuple[int, bytes]] = {}
        self._bytes = 0
        self._numbers = count()

    def note(self, pointer: int, text: bytes) -> None:
        """The text that lies at an address now."""
        text = text[:LONGEST]
        known = self._newest.get(pointer)
        if (known is None or known[1] != text) and self._has_room(text):
            self._append(pointer, pointer, text)

    def made_up(self, text: bytes) -> int:
        """The pointer that stands for a text; 0 where there is no room for one more."""
        text = text[:LONGEST]
        known = self._newest.get(text)
        if known is None:
            if not self._has_room(text):
                return 0
            known = self._append(text, MADE_UP | next(self._numbers), text)
        return known[0]

    def _has_room(self, text: bytes) -> bool:
        return len(self.log) < MOST and self._bytes + len(text) <= MOST_BYTES

    def _append(self, key: object, pointer: int, text: bytes) -> tuple[int, bytes]:
        entry = pointer, text
        self._bytes += len(text)
        self.log.append(entry)  # before others can find it: their buffers must come after it
        self._newest[key] = entry
        return entry

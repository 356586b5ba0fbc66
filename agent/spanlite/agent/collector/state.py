"""What the collector is doing, and whether it may still do anything."""

from __future__ import annotations

import os

_LAST = ("forked", "leaving")


class State:
    """A word of docs/collector.md."""

    def __init__(self) -> None:
        self._word = "idle"
        self._home = 0

    @property
    def word(self) -> str:
        return self._word if self._home in (0, os.getpid()) else "forked"

    @property
    def inert(self) -> bool:
        """True for ever once the process forked away or exits: touch neither CUPTI nor the socket, start nothing.

        Asked by number and not only told by Python's fork handlers: a library in C may fork as well.
        """
        return self.word in _LAST

    def begin(self) -> None:
        """From now on this process is the one; a child from before begins by itself."""
        self._home = os.getpid()

    def set(self, word: str) -> None:
        """There is no way back from the last ones."""
        if not self.inert:
            self._word = word

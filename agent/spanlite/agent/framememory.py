"""A bound on the memory of frames: those that are being read, wait for their turn, or are worked off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spanlite.runtime.clock import Clock

SMALL_BYTES = 1 << 20
"""A frame up to this size needs no room: a connection always has that much."""


@dataclass(slots=True)
class _Holder:
    size: int
    since_ns: int
    hang_up: Callable[[], None]
    reading: bool = True


class FrameMemory:
    """Gives out room for large frames, before they are read.

    Nobody waits for a peer that stalls within its frame: whoever has waited for `patience_s` hangs up on the frame that
    has been read for longest, if that is at least as long. While there is room for all, a stalled peer may stay.
    """

    def __init__(self, limit_bytes: int, clock: Clock, *, patience_s: float = 5.0) -> None:
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._holders: list[_Holder] = []

    @property
    def held_bytes(self) -> int:
        """That are given out."""
        with self._changed:
            return self._held()

    @contextmanager
    def room(self, size: int, hang_up: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Waits until there is room and holds it until the context ends.

        Args:
            hang_up: ends the reading of this frame, from another thread.

        Yields:
            what to call when the frame has been read whole: from then on it makes progress by itself.
        """
        if size <= SMALL_BYTES:
            yield lambda: None
            return
        holder = self._enter(size, hang_up)

        def read() -> None:
            holder.reading = False

        try:
            yield read
        finally:
            with self._changed:
                self._holders.remove(holder)
                self._changed.notify_all()

    def _enter(self, size: int, hang_up: Callable[[], None]) -> _Holder:
        with self._changed:
            while not self._changed.wait_for(lambda: self._fits(size), self._patience_s):
                self._evict()
            holder = _Holder(size, self._clock.monotonic_ns(), hang_up)
            self._holders.append(holder)
            return holder

    def _fits(self, size: int) -> bool:
        return not self._holders or self._held() + size <= self._limit_bytes

    def _held(self) -> int:
        return sum(holder.size for holder in self._holders)

    def _evict(self) -> None:
        before_ns = self._clock.monotonic_ns() - round(self._patience_s * 1e9)
        stalled = [holder for holder in self._holders if holder.reading and holder.since_ns <= before_ns]
        for holder in stalled[:1]:
            holder.hang_up()

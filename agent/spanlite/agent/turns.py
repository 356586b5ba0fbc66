"""A lock that is given out in the order in which it was asked for, so that nobody starves."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Whoever has just had a turn and wants another stands behind all who wait already.

    `threading.Lock` promises no order: who releases it and asks again at once mostly gets it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._queue: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for its turn and has it until the context ends."""
        mine: threading.Lock | None = None
        with self._lock:
            if self._taken:
                mine = threading.Lock()
                mine.acquire()
                self._queue.append(mine)
            self._taken = True
        if mine is not None:
            mine.acquire()
        try:
            yield
        finally:
            with self._lock:
                if self._queue:
                    self._queue.popleft().release()
                else:
                    self._taken = False

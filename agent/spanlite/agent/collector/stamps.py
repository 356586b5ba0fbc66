"""Boundaries of ranges, stamped with the newest correlation id: which launches lie in which range.

Every call of the driver draws a correlation id from the counter that numbers the launches, so a call that does nothing
else (cuCtxGetCurrent) tells where the counter stands: CUPTI's callback for it comes on the thread that makes the stamp.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from spanlite.agent.collector import wire
from spanlite.agent.collector.losses import Losses
from spanlite.agent.collector.names import Names

_MOST = 1 << 16
_KEPT_FOR_POPS = _MOST // 4
_DEEPEST = 64


class _Here(threading.local):
    """Of one thread."""

    def __init__(self) -> None:
        self.depth = 0
        self.stamped: set[int] = set()
        self.seen = 0
        self.last = 0
        self.key = 0


class Stamps:
    """Openings and closings.

    Args:
        draw: calls the driver; False where that cannot be done.
        now: CUPTI's clock in ns.
    """

    def __init__(self, losses: Losses, draw: Callable[[], bool], now: Callable[[], int | None]) -> None:
        self.names = Names()
        self._losses = losses
        self._draw_id, self._now = draw, now
        self._here = _Here()
        self._made: deque[bytes] = deque()

    def saw_call(self, correlation: int) -> None:
        """From CUPTI's callback."""
        self._here.seen = correlation

    def forget_threads(self) -> None:
        """In the child of a fork: threads have other numbers."""
        self._here = _Here()

    def push(self, name: str) -> int:
        """An opening on this thread; the depth before it."""
        here = self._here
        depth, here.depth = here.depth, here.depth + 1
        here.stamped.discard(depth)
        if depth >= _DEEPEST:
            return depth
        correlation = self._draw()
        if not correlation:
            return depth
        pointer = self.names.made_up(name.encode("utf-8", "replace"))
        if pointer and self._put(pointer, correlation, 1, _MOST - _KEPT_FOR_POPS):
            here.stamped.add(depth)
        else:
            self._losses.add("stamps_dropped", 2)
        return depth

    def pop(self) -> int:
        """A closing; the depth after it."""
        here = self._here
        if here.depth == 0:  # more closings than openings
            return 0
        here.depth -= 1
        if here.depth in here.stamped:
            correlation = self._draw() or here.last  # where nobody tells, nobody sees launches either
            if not self._put(0, correlation, -1, _MOST):
                self._losses.add("stamps_dropped", 1)
        return here.depth

    def take(self, most: int) -> bytes:
        """Stamps in order as a RANGES payload; the sender alone."""
        parts: list[bytes] = []
        while self._made and len(parts) < most:
            parts.append(self._made.popleft())
        return b"".join(parts)

    def _draw(self) -> int:
        here = self._here
        here.seen = 0
        if not self._draw_id():
            return 0
        here.last = here.seen or here.last
        return here.seen

    def _put(self, name: int, correlation: int, delta: int, most: int) -> bool:
        if len(self._made) >= most:
            return False
        here = self._here
        here.key = here.key or os.getpid() << 32 | threading.get_native_id()
        self._made.append(wire.STAMP.pack(here.key, name, self._now() or 0, correlation, delta))
        return True

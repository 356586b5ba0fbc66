"""The bounded pool of activity buffers, and the queue of filled ones: what CUPTI calls.

A buffer is free, or CUPTI's, or queued, or the sender's. Nothing waits here, and no lock is taken: a callback may come
on a thread that a signal handler has interrupted in this very code. The queues are Python's own, whose steps are whole.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from spanlite.agent.collector.abi import CONCURRENT_KERNEL, Cupti, address_of, memory_at, text_at
from spanlite.agent.collector.losses import Losses
from spanlite.agent.collector.names import Names
from spanlite.agent.collector.records import Walker

_SCRATCH, _SCRATCH_BYTES = 32, 64 << 10
_MOST = 4096
_SHORTEST_KERNEL = 208
"""CUpti_ActivityKernel9."""


class Filled(NamedTuple):
    """A buffer in the queue.

    Attributes:
        valid: bytes of whole records.
        names: entries of the log of names that must be told before it.
    """

    address: int
    valid: int
    spans: int
    names: int


class Buffers:
    """Pool and queue.

    Args:
        wake: told when a buffer is queued; from any thread.
        saw_work: told when CUPTI asks for one.
        inert: whether nothing may be done any more.
    """

    def __init__(
        self,
        cupti: Cupti,
        losses: Losses,
        *,
        buffer_bytes: int,
        pool_bytes: int,
        wake: Callable[[], None],
        saw_work: Callable[[], None],
        inert: Callable[[], bool],
    ) -> None:
        self._cupti, self._losses = cupti, losses
        self._bytes = buffer_bytes
        self._wake, self._saw_work, self._inert = wake, saw_work, inert
        self.walker = Walker(cupti)
        self.names = Names()
        self.completed = 0
        count = min(max(pool_bytes // buffer_bytes, 2), _MOST)
        scratch = (_SCRATCH + 1) * _SCRATCH_BYTES
        # Never unmapped: CUPTI may hold buffers for as long as the process lives.
        self._memory = mmap.mmap(-1, scratch + count * buffer_bytes)
        self._scratch = address_of(self._memory)
        self._pool = self._scratch + scratch
        self._free = deque(self._pool + at * buffer_bytes for at in range(count))
        self._free_scratch = deque(self._scratch + at * _SCRATCH_BYTES for at in range(_SCRATCH))
        self._shared = self._scratch + _SCRATCH * _SCRATCH_BYTES
        self._end = self._pool + count * buffer_bytes
        self._queue: deque[Filled] = deque()

    def requested(self) -> tuple[int, int]:
        """A buffer for CUPTI: free, or the oldest that is queued, or scratch, but never nothing."""
        if self._inert():
            return self._shared, _SCRATCH_BYTES
        self._saw_work()
        try:
            return self._free.popleft(), self._bytes
        except IndexError:  # none is free
            pass
        try:
            oldest = self._queue.popleft()
        except IndexError:  # nor queued
            pass
        else:
            self._losses.add("agent_slow", oldest.spans)
            return oldest.address, self._bytes
        try:
            return self._free_scratch.popleft(), _SCRATCH_BYTES
        except IndexError:  # the last is shared by all who find nothing else
            return self._shared, _SCRATCH_BYTES

    def complete(self, context: int | None, stream: int, address: int, size: int, valid: int) -> None:
        """A buffer from CUPTI: names copied, counted, queued."""
        if not address or self._inert():  # what a dying process holds is left where it is
            return
        self.completed += 1
        self._losses.add("cupti", self._cupti.dropped(context, stream))
        valid = min(valid, size)
        if self._pool <= address < self._end:
            self._complete_pooled(address, valid)
        elif self._scratch <= address < self._pool:
            self._complete_scratch(address, valid)
        # else it is another tool's, whose callbacks ours have replaced: not ours to touch

    def take(self) -> Filled | None:
        """The oldest queued buffer; the caller gives it back."""
        try:
            return self._queue.popleft()
        except IndexError:  # nothing is queued
            return None

    def give_back(self, buffer: Filled) -> None:
        self._free.append(buffer.address)

    def _complete_pooled(self, address: int, valid: int) -> None:
        found = self.walker.walk(memory_at(address, valid), address)
        self._count_broken(valid - found.whole)
        for pointer in found.names:
            if pointer:
                self.names.note(pointer, text_at(pointer))
        if found.whole:
            self._queue.append(Filled(address, found.whole, found.spans, len(self.names.log)))
            self._wake()
        else:
            self._free.append(address)

    def _complete_scratch(self, address: int, valid: int) -> None:
        if address == self._shared:  # several may have written into it at once
            self._count_broken(valid)
            return
        found = self.walker.walk(memory_at(address, valid), address)
        self._losses.add("collector_pool", found.spans)
        self._count_broken(valid - found.whole)
        self._free_scratch.append(address)

    def _count_broken(self, length: int) -> None:
        """Bytes behind the whole records are none: how many spans they were meant to be can only be guessed."""
        size = self.walker.sizes.get(CONCURRENT_KERNEL, _SHORTEST_KERNEL)
        self._losses.add("broken_buffer", -(-length // size))

"""The connection on which a program tells of its just-in-time kernels: one thread, started when there is something."""

from __future__ import annotations

import _thread
import os
import queue
import secrets
import signal
from collections.abc import Mapping
from contextlib import suppress

from spanlite.agent.collector import wire
from spanlite.agent.collector.link import Link, Sent
from spanlite.agent.collector.options import Options
from spanlite.agent.kernelsource import KernelSource
from spanlite.runtime.clock import Clock

_MOST = 4096
_LOOK_S = 1.0
_BACKOFF_MOST_S = 60.0


class Teller:
    """Tells what it is told, and all of it again to an agent that comes later. Bounded; the oldest go first."""

    def __init__(self, variables: Mapping[str, str], clock: Clock) -> None:
        self._options = Options.of(variables)
        self._clock = clock
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def tell(self, source: KernelSource) -> None:
        """Any thread; does not wait."""
        self._queue.put(wire.text(source.said()))
        if self._first.acquire(blocking=False):
            _thread.start_new_thread(self._run, (self._queue,))

    def stop(self) -> None:
        """Hangs up, within a second, and tells no more; a program need not."""
        self._begin()

    def _begin(self) -> None:
        """Also in the child of a fork, which has no thread of ours and other kernels."""
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._first = _thread.allocate_lock()  # taken once, by whoever starts the thread

    def _run(self, told: queue.SimpleQueue[bytes]) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())  # they are the program's
        link = Link(
            self._options.sockets, self._clock, hung_ns=self._options.hung_ns, inert=lambda: told is not self._queue
        )
        known: dict[bytes, None] = {}
        unsent: list[bytes] = []
        wait_s, connect_at = _LOOK_S, 0
        while told is self._queue:
            new = _taken(told)
            for payload in new:
                if payload not in known:
                    known[payload] = None
                    unsent.append(payload)
            while len(known) > _MOST:
                del known[next(iter(known))]
            if not link.check() and known and self._clock.monotonic_ns() >= connect_at:
                unsent = list(known)
                wait_s = _LOOK_S if self._hello(link) else min(2 * wait_s, _BACKOFF_MOST_S)
                connect_at = self._clock.monotonic_ns() + int(wait_s * 1e9)
            while link.is_open and unsent and link.send(wire.KERNEL_SOURCE, unsent[0]) is Sent.SENT:
                del unsent[0]
        link.close()

    def _hello(self, link: Link) -> bool:
        """A connection without CUPTI: it will send no records."""
        said = {"cupti_version": "0", "session": secrets.token_hex(8)}
        return link.open() and link.send(wire.HELLO, wire.text(said)) is Sent.SENT


def _taken(told: queue.SimpleQueue[bytes]) -> list[bytes]:
    """What has been put; waits a while for the first."""
    taken: list[bytes] = []
    with suppress(queue.Empty):  # that was all
        taken.append(told.get(timeout=_LOOK_S))
        while True:
            taken.append(told.get_nowait())
    return taken

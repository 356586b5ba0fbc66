"""Spool to Kafka: whoever brings a batch never waits for the broker, and nothing leaves the spool before it is stored.

A batch is written to the spool's file and handed to the producer from memory; it is read back from disk only when it
had to wait. Batches are handed over strictly in the order in which they came, a backlog before what is new.
"""

from __future__ import annotations

import logging
import threading
from functools import partial

from spanlite.agent.backoff import Backoff
from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item, Outlet
from spanlite.agent.spool.spool import Spool
from spanlite.agent.spool.state import Fetched
from spanlite.contract import catalogue
from spanlite.runtime.clock import Clock
from spanlite.transport.ports import Producer

log = logging.getLogger(__name__)

PERMANENT = frozenset({"too_large", "rejected"})
"""Reasons that trying again cannot change: the batch is dropped. All others are tried for ever …"""
UNCLEAR = "other"
"""… but this one only MOST_UNCLEAR times in a row for one batch: it might be one that blocks all that follow."""
MOST_UNCLEAR = 20
MOST_BYTES = 8 << 20
MOST_BATCHES = 1000


class Sender(Outlet):
    """Puts batches into a spool and, on a thread of its own, hands them to a producer.

    At most `most_batches` and `most_bytes` are at the producer unconfirmed. When one of them fails, all reports are
    awaited, and after a pause those that failed are handed over again, one at first, then ever more.

    Where batches of one key are concerned, the order in the topic is that in which they came, unless the producer
    itself reports an earlier batch as failed and a later one as stored.
    """

    def __init__(
        self,
        spool: Spool,
        producer: Producer,
        clock: Clock,
        counts: AgentCounts,
        *,
        most_bytes: int = MOST_BYTES,
        most_batches: int = MOST_BATCHES,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(counts)
        self.spool = spool
        self._producer = producer
        self._clock = clock
        self._most_bytes = most_bytes
        self._most_batches = most_batches
        self._backoff = backoff or Backoff()
        self._changed = threading.Condition()
        self._in_flight: dict[int, int] = {}
        self._bytes = 0
        self._next = 0
        self._failed: int | None = None
        self._unclear = (0, 0)
        self._window = most_batches
        self._resume_ns = 0
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="spanlite-sender", daemon=True)
        self.failure: Exception | None = None
        """What ended the sender's thread early: a fault of ours, after which batches only pile up."""

    def start(self) -> None:
        """Begins to send, what an earlier run left first."""
        self.spool.start()
        self._thread.start()

    def put(self, item: Item) -> None:
        """Keeps a batch, or drops and counts one that cannot be kept. Waits for a write to a file, never for Kafka."""
        problem = "closed" if self._stopping else self.spool.append(item)
        if problem is not None:
            self.count(item.spans, len(item.value), problem)
            return
        with self._changed:
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> int:
        """Waits until everything is delivered or dropped; returns how many spans still wait."""
        with self._changed:
            self._changed.wait_for(lambda: self._drained() or self.failure is not None, timeout_s)
        return self.spool.spans

    def stop(self, grace_s: float) -> int:
        """Takes no more, delivers for `grace_s` at most, leaves the rest on disk; returns how many spans that is."""
        with self._changed:
            self._stopping = True
            self._resume_ns = 0
            self._changed.notify_all()
        self.flush(grace_s)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(1.0)  # a producer that hangs must not hold us: the thread is a daemon
        self.spool.close()
        return self.spool.spans

    def _drained(self) -> bool:
        return not self._in_flight and self._failed is None and self._next >= self.spool.end

    def _run(self) -> None:
        try:
            while (sequence := self._await_turn()) is not None:
                end = self.spool.end
                found = self.spool.fetch(sequence)
                if found is None:
                    self._skip(end)
                else:
                    self._hand_over(found)
        except Exception as error:  # a fault of ours: whoever runs the sender must see it
            self.failure = error
            with self._changed:
                self._changed.notify_all()
            raise

    def _await_turn(self) -> int | None:
        """Waits until a batch may be handed over: the sequence from which to take it, or None at the end."""
        with self._changed:
            while not self._ended:
                if self._failed is not None and not self._in_flight:
                    self._next, self._failed = self._failed, None
                    self._resume_ns = self._clock.monotonic_ns() + round(self._backoff.next_s() * 1e9)
                wait_ns = self._resume_ns - self._clock.monotonic_ns()
                room = len(self._in_flight) < self._window and self._bytes < self._most_bytes
                if self._failed is not None or not room or self._next >= self.spool.end:
                    self._changed.wait()
                elif wait_ns > 0:
                    self._changed.wait(wait_ns / 1e9)
                else:
                    return self._next
            return None

    def _skip(self, end: int) -> None:
        """Nothing waits before a sequence."""
        with self._changed:
            self._next = max(self._next, end)
            self._changed.notify_all()

    def _hand_over(self, found: Fetched) -> None:
        sequence, item = found
        size = len(item.value)
        with self._changed:
            if self._failed is not None:  # an earlier one must come first
                return
            self._in_flight[sequence] = size
            self._bytes += size
            self._next = sequence + 1
        told = partial(self._told, sequence, size)
        self._producer.send(item.topic, item.key, item.value, item.timestamp_ms, told)

    def _told(self, sequence: int, size: int, problem: str | None) -> None:
        """The producer's report, on whichever thread."""
        if self._ended:  # the spool is closed: the next run sends it again
            return
        final = problem is None or problem in PERMANENT or self._hopeless(sequence, problem)
        if final:
            spans = self.spool.ack(sequence)
            if spans is not None:
                self.count(spans, size, problem)
            if problem is not None:
                log.warning("a batch of %d bytes is dropped: %s", size, problem)
        elif problem is not None:
            self.counts.add(catalogue.AGENT_SEND_FAILURES, 1, problem)
        with self._changed:
            self._bytes -= self._in_flight.pop(sequence)
            if not final:
                self._failed = sequence if self._failed is None else min(self._failed, sequence)
                self._window = 1
            elif problem is None:
                self._backoff.reset()
                self._window = min(2 * self._window, self._most_batches)
            self._changed.notify_all()

    def _hopeless(self, sequence: int, problem: str) -> bool:
        """Whether a batch has failed so often for reasons nobody knows that it is given up."""
        if problem != UNCLEAR:
            return False
        before, times = self._unclear
        self._unclear = (sequence, times + 1 if before == sequence else 1)
        return self._unclear[1] >= MOST_UNCLEAR

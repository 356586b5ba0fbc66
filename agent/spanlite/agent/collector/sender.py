"""The thread that talks to the agent, and what it works with."""

from __future__ import annotations

import _thread
import queue
import signal
import threading
from contextlib import suppress

from spanlite.agent.collector.abi import Cupti, name_thread
from spanlite.agent.collector.buffers import Buffers, Filled
from spanlite.agent.collector.collecting import Collecting
from spanlite.agent.collector.link import Link, Sent
from spanlite.agent.collector.losses import Losses
from spanlite.agent.collector.messages import Messages
from spanlite.agent.collector.options import Options
from spanlite.agent.collector.stamps import Stamps
from spanlite.agent.collector.state import State
from spanlite.runtime.clock import Clock

_MS = 1_000_000
_LEAVE_S = 0.2
_LOOP_NS, _STATS_NS, _CLOCK_NS = 100 * _MS, 1000 * _MS, 60000 * _MS
_BACKOFF_LEAST_NS, _BACKOFF_MOST_NS = 100 * _MS, 5000 * _MS
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class Sender:
    """The thread that talks to the agent; it starts when the program first uses the GPU."""

    def __init__(
        self,
        cupti: Cupti,
        *,
        version: int,
        stamps: Stamps,
        losses: Losses,
        state: State,
        options: Options,
        clock: Clock,
    ) -> None:
        self._losses, self._state, self._options, self._clock = losses, state, options, clock
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()  # whose put may interrupt another
        self._woken = self._stopping = False
        self._running: list[bool] = []
        self._finished = threading.Event()
        self._last_buffer_ns: int | None = None
        self._flush_at = self._connect_at = self._clock_at = self._stats_at = self._backoff = 0
        self._buffers = Buffers(
            cupti,
            losses,
            buffer_bytes=options.buffer_bytes,
            pool_bytes=options.pool_bytes,
            wake=self.wake,
            saw_work=self._saw_work,
            inert=lambda: state.inert,
        )
        self.collecting = Collecting(
            cupti,
            self._buffers,
            state,
            clock=clock,
            saw_work=self._saw_work,
            saw_call=stamps.saw_call,
        )
        self.link = Link(options.sockets, clock, hung_ns=options.hung_ns, inert=lambda: state.inert)
        self._messages = Messages(
            self.link,
            cupti,
            version=version,
            buffers=self._buffers,
            stamps=stamps,
            losses=losses,
            state=state,
            options=options,
            clock=clock,
        )

    def start(self) -> None:
        """Starts the thread, once; from any thread, also in a callback: it does not wait for it."""
        if self._running or self._state.inert:
            return
        self._running.append(True)
        _thread.start_new_thread(self._run, ())

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._wakes.put(None)

    def leave(self) -> None:
        """At exit: at most a fifth of a second for what is there. What CUPTI holds stays with it."""
        if self._state.inert:
            return
        if not self._running:
            self.collecting.leave()
        else:
            until = self._clock.monotonic_ns() + int(_LEAVE_S * 1e9)
            self.link.hurry_ns = until
            self._last_buffer_ns = until - int(_LEAVE_S * 1e9) // 4  # the rest is for the frame at hand, STATS and BYE
            self._stopping = True
            self.wake()
            self._finished.wait(_LEAVE_S)
        self._state.set("leaving")

    def _saw_work(self) -> None:
        if not self.collecting.worked:
            self.collecting.worked = True
            if self._state.word == "waiting":
                self._state.set("active")
            self.start()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, set(signal.valid_signals()) - _FAULTS)  # they are the program's
        name_thread(b"spanlite")
        while not self._state.inert and not self._stopping:
            self._round()
        if not self._state.inert:
            self._finish()
        self._finished.set()

    def _round(self) -> None:
        now = self._clock.monotonic_ns()
        due = [now + _LOOP_NS]
        if (next_step := self.collecting.step(now)) is not None:
            due.append(next_step)
        if self._options.flush_ns:
            if now >= self._flush_at:
                if self._flush_at:
                    self.collecting.flush()
                self._flush_at = now + self._options.flush_ns
            due.append(self._flush_at)
        self._keep_connected(now)
        self._deliver(now)
        if now >= self._stats_at:
            self._messages.stats()
            self._stats_at = now + _STATS_NS
        with suppress(queue.Empty):  # nothing happened
            self._wakes.get(timeout=max(min(due) - self._clock.monotonic_ns(), 0) / 1e9)
        self._woken = False

    def _keep_connected(self, now: int) -> None:
        if self.link.check():
            if not self._buffers.completed or not self._messages.lack_gpus():
                return
            self._messages.goodbye("the GPUs are known now")  # a HELLO is the only place to name them
            self._connect_at = 0
        if now < self._connect_at:
            return
        if self.link.open() and self._messages.hello() is Sent.SENT:
            self._clock_at = 0
        # An agent that hangs up at every HELLO is not asked more often than one that is not there.
        self._backoff = min(2 * self._backoff if self._backoff else _BACKOFF_LEAST_NS, _BACKOFF_MOST_NS)
        self._connect_at = now + self._backoff

    def _deliver(self, now: int) -> None:
        if self._state.word == "paused":
            self._clock_at = 0  # another client may have given CUPTI another clock
        elif self.link.is_open and now >= self._clock_at and self._messages.clock() is Sent.SENT:
            self._clock_at = now + _CLOCK_NS
        self._messages.ranges()
        while not self._state.inert and (filled := self._buffers.take()):
            self._send(filled)
            self._buffers.give_back(filled)

    def _send(self, filled: Filled) -> None:
        if self._last_buffer_ns is not None and self._clock.monotonic_ns() > self._last_buffer_ns:
            self._losses.add("process_exit", filled.spans)
        elif not self.link.is_open:
            self._losses.add("no_agent", filled.spans)
        elif (sent := self._messages.buffer(filled)) is Sent.SENT:
            self._backoff = 0
        else:
            self._losses.add("agent_hung" if sent is Sent.HUNG else "disconnect", filled.spans)

    def _finish(self) -> None:
        self.collecting.leave()
        self._keep_connected(self._clock.monotonic_ns())
        self._deliver(self._clock.monotonic_ns())
        self._messages.stats()
        self._messages.goodbye("the process exits")

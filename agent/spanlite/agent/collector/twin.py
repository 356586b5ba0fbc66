"""The collector in Python, through ctypes: the twin of agent/native, for programs without that library.

The same frames, the same states, the same losses by the same reasons; docs/collector.md says what it lacks. Like the
library it takes CUPTI's buffers as they come and parses nothing but the names.
"""

from __future__ import annotations

import atexit
import os

from spanlite.agent.collector.abi import Cuda, Cupti
from spanlite.agent.collector.collecting import Collecting
from spanlite.agent.collector.cupti import find_cuda, find_cupti
from spanlite.agent.collector.losses import Losses
from spanlite.agent.collector.options import Options
from spanlite.agent.collector.sender import Sender
from spanlite.agent.collector.stamps import Stamps
from spanlite.agent.collector.state import State
from spanlite.runtime.clock import Clock


class Twin:
    """The collector of this process; there is to be one."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._state = State()
        self._losses = Losses()
        self._stamps = Stamps(self._losses, self._draw, self._now)
        self._cupti: Cupti | None = None
        self._cuda: Cuda | None = None
        self._collecting: Collecting | None = None
        self._sender: Sender | None = None
        self._started = False

    def state(self) -> str:
        """As in docs/collector.md."""
        return self._state.word

    def start(self) -> None:
        """Finds CUPTI and begins. What goes wrong is a state; no thread yet and no connection."""
        if self._options.disabled:
            self._state.set("disabled")
            return
        if self._started:
            return
        self._started = True
        self._state.begin()
        os.register_at_fork(after_in_child=self._forked)
        self._cupti, refused, version = find_cupti(self._options.cupti)
        if self._cupti is None:
            self._state.set(refused)
            return
        self._sender = Sender(
            self._cupti,
            version=version,
            stamps=self._stamps,
            losses=self._losses,
            state=self._state,
            options=self._options,
            clock=self._clock,
        )
        self._collecting = self._sender.collecting
        atexit.register(self._sender.leave)
        self._collecting.start()
        if self._state.word == "subscriber_conflict":
            self._sender.start()  # to say so, and to ask again

    def pause(self) -> None:
        """Leaves CUPTI to somebody else, until `resume`."""
        if self._collecting and self._sender:
            self._collecting.pause()
            self._sender.wake()

    def resume(self) -> None:
        if self._collecting and self._sender:
            self._collecting.resume()
            self._sender.wake()

    def push(self, name: str) -> int:
        """A stage begins on this thread; the depth before it."""
        if self._options.disabled or not self._options.stages:
            return 0
        return self._stamps.push(name)

    def pop(self) -> int:
        """It ends; the depth after it."""
        return self._stamps.pop()

    def _draw(self) -> bool:
        if self._collecting is None or self._state.inert:
            return False
        if self._cuda is None:
            self._cuda = find_cuda()
            self._collecting.want_stamps()
        if self._cuda is not None:
            self._cuda.draw()
        return self._cuda is not None

    def _now(self) -> int | None:
        return self._cupti.timestamp() if self._cupti else None

    def _forked(self) -> None:
        """The child has no thread of ours, and CUDA does not work in it: from here on nothing is done in it."""
        self._stamps.forget_threads()
        if self._sender:
            self._sender.link.close()

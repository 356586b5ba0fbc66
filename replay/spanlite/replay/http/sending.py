"""The process that sends: takes frames from one pipe, calls the service, and says through another what came of it."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from spanlite.contract.errors import SpanliteError
from spanlite.replay.http.calling import Calling, Flight
from spanlite.replay.http.calls import Calls
from spanlite.replay.http.frames import Frame, Reader
from spanlite.replay.http.outcomes import Outcomes
from spanlite.replay.pacing.quiet import quiet
from spanlite.runtime.allocator import keep_freed
from spanlite.runtime.clock import Clock

READ_BYTES = 1 << 20
_STATE_S = 0.1


@dataclass(frozen=True, slots=True)
class State:
    """How it stands.

    Attributes:
        open: requests that have a connection or make one.
        waiting: that wait for one.
        waited: that had to.
        most_waiting: at one time.
        gone: whether nobody is there.
        idle: the newest LOOK since which nothing was on its way; 0 for none.
    """

    open: int = 0
    waiting: int = 0
    waited: int = 0
    most_waiting: int = 0
    gone: bool = False
    idle: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """It ended by an error: its class, and what it says."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """All has an outcome: the counts of all, see Outcomes."""

    counts: dict[str, Any]


@dataclass(frozen=True)
class Sending:
    """What the process is started with.

    Attributes:
        calling: how the service is called.
        expected: statuses that are.
        chunk_rows: rows are handed back so many at a time; 0 for none.
        clock: monotonic time is that of all processes.
    """

    calling: Calling
    expected: frozenset[int]
    chunk_rows: int
    clock: Clock


def send_apart(frames: Connection, out: Connection, sending: Sending) -> None:
    """Main function of the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the one that started it says when it is over
    keep_freed()
    outcomes = Outcomes(sending.expected)
    if sending.chunk_rows:
        outcomes = Outcomes(sending.expected, keep=out.send, chunk_rows=sending.chunk_rows)
    try:
        with quiet():
            asyncio.run(_Loop(frames, out, Calls(sending.calling, outcomes, sending.clock)).run())
        out.send(Ended(outcomes.counts()))
    except BrokenPipeError:
        return  # nobody asks any more
    except Exception as error:  # noqa: BLE001  # it is raised where the client is driven
        name = type(error).__name__
        out.send(Failed(name, str(error) if isinstance(error, SpanliteError) else f"{name}: {error}"))


class _Loop:
    """Frames in, calls, states out."""

    def __init__(self, frames: Connection, out: Connection, calls: Calls) -> None:
        self._frames, self._out, self._calls = frames, out, calls
        self._reader = Reader()
        self._said: State | None = None
        self._look = 0
        calls.changed = self._changed

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(self._frames.fileno(), False)
        timer = asyncio.create_task(self._tell())
        try:
            await self._calls.run(self._begin)
        finally:
            loop.remove_reader(self._frames.fileno())
            timer.cancel()

    def _begin(self) -> None:
        asyncio.get_running_loop().add_reader(self._frames.fileno(), self._readable)
        self._changed()

    def _readable(self) -> None:
        try:
            data = os.read(self._frames.fileno(), READ_BYTES)
            if not data:  # the other process is gone
                self._calls.end()
            for told in self._reader.feed(data):
                if told.request is not None:
                    self._calls.take(Flight(told.request, told.number))
                else:
                    self._obey(told.frame, told.number)
        except BlockingIOError:
            return
        except Exception as error:  # noqa: BLE001  # `run` raises it
            self._calls.fail(error)

    def _obey(self, frame: Frame, number: int) -> None:
        if frame is Frame.LOOK:
            self._look = number
        elif frame is Frame.END:
            self._calls.end()
        else:
            self._calls.give_up(open_too=frame is Frame.GIVE_UP_ALL)
        self._changed()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_STATE_S)
            self._changed()

    def _changed(self) -> None:
        calls, said = self._calls, self._said
        idle = self._look if calls.idle or said is None else said.idle
        state = State(calls.open, calls.waiting, calls.waited, calls.most_waiting, calls.gone, idle)
        if state == said:
            return
        self._said = state
        try:
            self._out.send(state)
        except OSError as error:
            calls.fail(error)

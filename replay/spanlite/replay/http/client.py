"""An open-loop HTTP client: requests are handed to it when they are due, and nobody waits for the answers.

It sends in a process of its own: whoever paces shares no interpreter with it. Requests go there through a pipe; one
that is full makes a thread wait and not the pacer.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import select
import threading
from collections import deque

from spanlite.contract import errors
from spanlite.contract.errors import ReplayError
from spanlite.replay.http.calling import Calling, check_files, tls_context
from spanlite.replay.http.frames import Frame, Writer
from spanlite.replay.http.outcomes import Outcomes, Rows
from spanlite.replay.http.requests import Request
from spanlite.replay.http.sending import Ended, Failed, Sending, State, send_apart
from spanlite.runtime.clock import Clock

_NAME = "spanlite-replay-http"
_PIPE_BYTES = 1 << 20
"""Most that Linux gives to everybody; a pipe of less is as correct."""
_PATIENCE_S = 10.0


class Client:
    """Sends what it is handed, as a context; left, all that was handed on has an outcome.

    Attributes:
        handed: requests handed on.
        broken: an error of our own that ended it.
    """

    def __init__(self, calling: Calling, outcomes: Outcomes, clock: Clock) -> None:
        """`outcomes` has all counts once the client is left; its rows come on a thread of the client.

        Raises:
            UsageError: the certificates cannot be read, or the process may not open as many connections.
        """
        self._calling, self._outcomes, self._clock = calling, outcomes, clock
        tls_context(calling.ca)
        check_files(calling.connections)
        self._listener = threading.Thread(target=self._listen, name=_NAME, daemon=True)
        self._writer = Writer()
        self._changed = threading.Condition()
        self._behind: deque[memoryview] = deque()
        self._state: State | None = None
        self._look = 0
        self._ended = False
        self.handed = 0
        self.broken: BaseException | None = None

    @property
    def timeout_s(self) -> float:
        """See Calling."""
        return self._calling.timeout_s

    @property
    def state(self) -> State:
        """How it stood a tenth of a second ago at most; exactly once `drained` or left."""
        return self._state or State()

    @property
    def gone(self) -> bool:
        """Whether nobody is there, see ATTEMPTS."""
        return self.state.gone

    def __enter__(self) -> Client:
        outcomes, spawn = self._outcomes, multiprocessing.get_context("spawn")
        theirs, self._frames = spawn.Pipe(duplex=False)
        self._said, out = spawn.Pipe(duplex=False)
        chunk_rows = outcomes.chunk_rows if outcomes.keep is not None else 0
        sending = Sending(self._calling, outcomes.statuses_expected, chunk_rows, self._clock)
        self._process = spawn.Process(target=send_apart, args=(theirs, out, sending), name=_NAME, daemon=True)
        self._process.start()
        for given in (theirs, out):
            given.close()  # so that a pipe ends when the process at its other end does
        for end in (self._frames, self._said):
            with contextlib.suppress(OSError):  # others have much in pipes: then less has to do
                fcntl.fcntl(end.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self._frames.fileno(), False)
        self._listener.start()
        with self._changed:
            self._changed.wait_for(lambda: self._state is not None or self.broken is not None)
        return self

    def __exit__(self, *_: object) -> None:
        self._hand(self._writer.told(Frame.END))
        self._listener.join()
        self._frames.close()
        self._said.close()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def send(self, request: Request, due_ns: int) -> None:
        """Hands a request on and returns at once; `due_ns` is monotonic."""
        self.handed += 1
        self._hand(self._writer.request(request, due_ns))

    def drained(self, timeout_s: float) -> bool:
        """Waits until every request handed on has ended; whether they have."""
        self._look += 1
        self._hand(self._writer.told(Frame.LOOK, self._look))
        with self._changed:
            return self._changed.wait_for(lambda: self.state.idle >= self._look or self.broken is not None, timeout_s)

    def give_up(self, *, open_too: bool) -> None:
        """Enters what waits for a connection, or all that has not ended, as `stopped`."""
        self._hand(self._writer.told(Frame.GIVE_UP_ALL if open_too else Frame.GIVE_UP))

    def _hand(self, frame: bytes) -> None:
        """Writes a frame, or leaves what the pipe has no room for to a thread."""
        with self._changed:
            if self._behind:
                self._behind.append(memoryview(frame))
                return
            written = self._written(frame)
            if written < len(frame):
                self._behind.append(memoryview(frame)[written:])
                threading.Thread(target=self._catch_up, name="spanlite-replay-behind", daemon=True).start()

    def _written(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._frames.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)  # the listener says why

    def _catch_up(self) -> None:
        room = select.poll()
        room.register(self._frames.fileno(), select.POLLOUT)
        while True:
            room.poll()
            with self._changed:
                while self._behind:
                    left = self._behind[0][self._written(self._behind[0]) :]
                    if left:
                        self._behind[0] = left
                        break
                    self._behind.popleft()
                else:
                    return

    def _listen(self) -> None:
        """Runs until the other process has nothing more to say."""
        try:
            while True:
                self._heard(self._said.recv())
        except EOFError:
            self._process.join(_PATIENCE_S)
        if self.broken is None and not self._ended:
            self._break(
                ReplayError(
                    f"the process that sends requests ended ({self._process.exitcode}); if it was killed for its "
                    "memory, take a smaller --queue or give the replay more"
                )
            )

    def _heard(self, said: object) -> None:
        if isinstance(said, State):
            with self._changed:
                self._state = said
                self._changed.notify_all()
        elif isinstance(said, Rows) and self._outcomes.keep is not None and self.broken is None:
            try:
                self._outcomes.keep(said)
            except Exception as error:  # noqa: BLE001  # it is raised where the client is driven
                self._break(error)
        elif isinstance(said, Ended):
            self._outcomes.take_over(said.counts)
            self._ended = True
        elif isinstance(said, Failed):
            self._break(getattr(errors, said.name, ReplayError)(said.text))

    def _break(self, error: BaseException) -> None:
        with self._changed:
            self.broken = self.broken or error
            self._changed.notify_all()

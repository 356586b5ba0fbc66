"""An open-loop HTTP client: requests are handed to it when they are due, and nobody waits for the answers.

An event loop in a thread of its own holds at most so many connections; what finds none free waits in a queue, still
measured from its due time, and what finds the queue full is counted as lost. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from spanlite.replay.http.calling import Calling, Flight, check_files, kind_of, tls_context
from spanlite.replay.http.connection import Connection
from spanlite.replay.http.outcomes import UNCONNECTED, Outcomes
from spanlite.replay.http.pool import Pool
from spanlite.replay.http.requests import Request
from spanlite.runtime.clock import Clock

ATTEMPTS = 100
"""So many first attempts without a connection, and none with one, mean that nobody is there."""


class Client:
    """Sends what it is handed, as a context; left, all that was handed on has an outcome.

    Attributes:
        handed: requests handed on.
        open: requests that have a connection or make one.
        waited: requests that had to wait for one.
        most_waiting: at one time.
        gone: whether nobody is there, see ATTEMPTS.
        broken: an error of our own that ended it.
    """

    def __init__(self, calling: Calling, outcomes: Outcomes, clock: Clock) -> None:
        """`outcomes` are entered in the client's thread, and belong to it until it is left.

        Raises:
            UsageError: the certificates cannot be read, or the process may not open as many connections.
        """
        self._calling, self._outcomes, self._clock = calling, outcomes, clock
        self._tls = tls_context(calling.ca)
        check_files(calling.connections)
        self._handed: deque[Flight] = deque()
        self._waiting: deque[Flight] = deque()
        self._flying: dict[Flight, Connection | None] = {}
        self._told = False
        self._attempts = 0
        self._connected = False
        self._ready, self._idle = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="spanlite-replay-http", daemon=True)
        self.handed = self.waited = self.most_waiting = 0
        self.gone = False
        self.broken: BaseException | None = None

    @property
    def timeout_s(self) -> float:
        """See Calling."""
        return self._calling.timeout_s

    @property
    def open(self) -> int:
        """Requests that have a connection now, or make one."""
        return len(self._flying)

    @property
    def waiting(self) -> int:
        """Requests that wait for a connection now."""
        return len(self._waiting)

    def __enter__(self) -> Client:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end)
        self._thread.join()

    def send(self, request: Request, due_ns: int) -> None:
        """Hands a request on and returns at once; `due_ns` is monotonic."""
        self.handed += 1
        self._handed.append(Flight(request, due_ns))
        if not self._told:
            self._told = True  # before the flag is lowered again, `_take` has not looked for this one
            self._call(self._take)

    def drained(self, timeout_s: float) -> bool:
        """Waits until every request handed on has ended; whether they have."""
        self._idle.clear()
        self._call(self._look)
        return self._idle.wait(timeout_s) or self.broken is not None

    def give_up(self, *, open_too: bool) -> None:
        """Enters what waits for a connection, or all that has not ended, as `stopped`."""
        self._call(lambda: self._give_up(open_too=open_too))

    def ended(self, connection: Connection, flight: Flight, error: str, *, kept: bool) -> None:
        """See connection.Owner."""
        if kept:
            self._pool.put(connection)
        self._finish(flight, error)

    def lost(self, connection: Connection) -> None:
        """See connection.Owner."""
        self._pool.lost(connection)

    def connected(self, flight: Flight, connection: Connection) -> None:
        """See pool.User."""
        self._connected = True
        self._flying[flight] = connection
        connection.send(flight)

    def unconnected(self, flight: Flight, error: BaseException) -> None:
        """See pool.User."""
        if not isinstance(error, OSError):
            self._fail(error)
        else:
            self._finish(flight, kind_of(error))

    def _call(self, what: Callable[[], object]) -> None:
        """Runs it in the client's thread; what it raises ends the client."""
        if self.broken is None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._guarded, what)

    def _guarded(self, what: Callable[[], object]) -> None:
        try:
            what()
        except Exception as error:  # noqa: BLE001  # it is raised where the client is driven
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001  # likewise
            self.broken = error
        finally:
            self._ready.set()
            self._idle.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._pool = Pool(
            lambda: Connection(self, self._clock, bodiless=self._calling.bodiless),
            self,
            self._clock,
            most=self._calling.connections,
            timeout_s=self._calling.timeout_s,
            tls=self._tls,
        )
        self._ready.set()
        try:
            await self._over
        finally:
            self._give_up(open_too=True)
            await self._pool.close()
            self._outcomes.fold()

    def _end(self) -> None:
        self._take()
        if not self._over.done():
            self._over.set_result(None)

    def _take(self) -> None:
        self._told = False
        while self._handed:
            flight = self._handed.popleft()
            if len(self._flying) < self._calling.connections:
                self._start(flight)
            elif len(self._waiting) < self._calling.queue:
                self._waiting.append(flight)
                self.waited += 1
                self.most_waiting = max(self.most_waiting, len(self._waiting))
            else:
                self._enter(flight, "queue_full")

    def _look(self) -> None:
        self._take()
        if not self._flying and not self._waiting:
            self._idle.set()

    def _give_up(self, *, open_too: bool) -> None:
        self._take()
        while self._waiting:
            self._enter(self._waiting.popleft(), "stopped")
        for flight in list(self._flying) if open_too else ():
            self._break_off(flight, "stopped")

    def _start(self, flight: Flight) -> None:
        self._flying[flight] = None
        flight.timer = self._loop.call_later(self._calling.timeout_s, self._break_off, flight, "timeout")
        self._pool.ask(flight)

    def _break_off(self, flight: Flight, error: str) -> None:
        connection = self._flying[flight]
        if connection is not None:
            connection.drop()
        else:
            self._pool.withdraw(flight)
        self._finish(flight, error)

    def _finish(self, flight: Flight, error: str) -> None:
        del self._flying[flight]
        if flight.timer is not None:
            flight.timer.cancel()
        self._guarded(lambda: self._enter(flight, error))
        self._attempted(error)
        if self._waiting:
            self._start(self._waiting.popleft())
        elif not self._flying and not self._handed:
            self._idle.set()

    def _attempted(self, error: str) -> None:
        self._attempts += not self._connected and error in UNCONNECTED
        if self._attempts >= ATTEMPTS and not self._connected and not self._calling.keep_going:
            self.gone = True

    def _enter(self, flight: Flight, error: str) -> None:
        sent = flight.request.body_bytes if flight.sent_ns else 0
        times = (flight.due_ns, flight.sent_ns, flight.first_ns, self._clock.monotonic_ns())
        self._outcomes.add(
            flight.request.trace, times, status=flight.status, error=error, sizes=(sent, flight.received)
        )

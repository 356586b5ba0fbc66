"""Requests on their way: which has a connection, which waits for one, and how each ends.

At most so many have a connection; what finds none free waits in a queue, still measured from its due time, and what
finds the queue full is counted as lost. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from spanlite.replay.http.calling import Calling, Flight, kind_of, tls_context
from spanlite.replay.http.connection import Connection
from spanlite.replay.http.outcomes import UNCONNECTED, Outcomes
from spanlite.replay.http.pool import Pool
from spanlite.runtime.clock import Clock

ATTEMPTS = 100
"""So many first attempts without a connection, and none with one, mean that nobody is there."""


class Calls:
    """Belongs to the thread of one event loop.

    Attributes:
        waited: requests that had to wait for a connection.
        most_waiting: at one time.
        gone: whether nobody is there, see ATTEMPTS.
        changed: is called when nothing is on its way any more, and when it is `gone`.
    """

    def __init__(self, calling: Calling, outcomes: Outcomes, clock: Clock) -> None:
        """Opens nothing yet.

        Raises:
            UsageError: the certificates cannot be read.
        """
        self._calling, self._outcomes, self._clock = calling, outcomes, clock
        self._tls = tls_context(calling.ca)
        self._waiting: deque[Flight] = deque()
        self._flying: dict[Flight, Connection | None] = {}
        self._attempts = 0
        self._connected = False
        self.waited = self.most_waiting = 0
        self.gone = False
        self.changed: Callable[[], object] = lambda: None

    @property
    def open(self) -> int:
        """Requests that have a connection now, or make one."""
        return len(self._flying)

    @property
    def waiting(self) -> int:
        """Requests that wait for a connection now."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._flying and not self._waiting

    async def run(self, begun: Callable[[], object]) -> None:
        """Until `end`; then all that was taken has an outcome, which is counted and handed on.

        Args:
            begun: is called once requests can be taken.
        """
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
        begun()
        try:
            await self._over
        finally:
            self.give_up(open_too=True)
            await self._pool.close()
            self._outcomes.fold()

    def end(self) -> None:
        """Takes no more."""
        if not self._over.done():
            self._over.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Ends it; `run` raises the error."""
        if not self._over.done():
            self._over.set_exception(error)

    def take(self, flight: Flight) -> None:
        """Sends a request, as soon as there is a connection."""
        if len(self._flying) < self._calling.connections:
            self._start(flight)
        elif len(self._waiting) < self._calling.queue:
            self._waiting.append(flight)
            self.waited += 1
            self.most_waiting = max(self.most_waiting, len(self._waiting))
        else:
            self._enter(flight, "queue_full")

    def give_up(self, *, open_too: bool) -> None:
        """Enters what waits for a connection, or all that has not ended, as `stopped`."""
        while self._waiting:
            self._enter(self._waiting.popleft(), "stopped")
        for flight in list(self._flying) if open_too else ():
            self._break_off(flight, "stopped")

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
            self.fail(error)
        else:
            self._finish(flight, kind_of(error))

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
        try:
            self._enter(flight, error)
        except Exception as failure:  # noqa: BLE001  # `run` raises it
            self.fail(failure)
        self._attempted(error)
        if self._waiting:
            self._start(self._waiting.popleft())
        elif not self._flying:
            self.changed()

    def _attempted(self, error: str) -> None:
        self._attempts += not self._connected and error in UNCONNECTED
        if self._attempts >= ATTEMPTS and not self._connected and not self._calling.keep_going and not self.gone:
            self.gone = True
            self.changed()

    def _enter(self, flight: Flight, error: str) -> None:
        sent = flight.request.body_bytes if flight.sent_ns else 0
        times = (flight.due_ns, flight.sent_ns, flight.first_ns, self._clock.monotonic_ns())
        self._outcomes.add(
            flight.request.trace, times, status=flight.status, error=error, sizes=(sent, flight.received)
        )

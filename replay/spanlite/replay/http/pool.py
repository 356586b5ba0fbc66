"""Connections that are open, which of them are free, and how new ones are made.

A request that finds none free takes what comes first: one that gets free, or a new one. So what piles up while the
process was kept from working does not end in as many new connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from spanlite.replay.http.calling import Flight
from spanlite.replay.http.connection import Connection
from spanlite.replay.http.requests import Origin
from spanlite.runtime.clock import Clock

IDLE_NS = 4_000_000_000
"""A connection that was idle for longer is not used again: services close theirs after five seconds or more."""
MOST_MADE = 64
"""Connections to one place that are made at a time."""
_RESOLVED_NS = 30_000_000_000
_CLOSING_S = 5.0


class User(Protocol):
    """Who asks for connections."""

    def connected(self, flight: Flight, connection: Connection) -> None:
        """Here is one."""
        ...

    def unconnected(self, flight: Flight, error: BaseException) -> None:
        """There is none: OSError says why not, anything else is an error of our own."""
        ...


@dataclass
class _Place:
    """Attributes: wanting: requests that wait, in order; free: connections, the one used last at the end; making."""

    wanting: OrderedDict[Flight, None] = field(default_factory=OrderedDict)
    free: OrderedDict[Connection, None] = field(default_factory=OrderedDict)
    making: int = 0


class Pool:
    """Belongs to the thread of one event loop.

    Args:
        make: a new connection, not yet connected.
        user: who asks.
        clock: monotonic time.
        most: connections that may be open; free ones make room for new ones.
        timeout_s: of making one.
        tls: for https.
    """

    def __init__(
        self,
        make: Callable[[], Connection],
        user: User,
        clock: Clock,
        *,
        most: int,
        timeout_s: float,
        tls: ssl.SSLContext,
    ) -> None:
        self._make, self._user, self._clock = make, user, clock
        self._most, self._timeout_s, self._tls = most, timeout_s, tls
        self._open: dict[Connection, Origin] = {}
        self._places: dict[Origin, _Place] = {}
        self._tasks: set[asyncio.Task[Connection]] = set()
        self._addresses: dict[tuple[str, int], tuple[int, list[str]]] = {}
        self._closing = False
        self._closed = asyncio.Event()

    def ask(self, flight: Flight) -> None:
        """The user is given a connection for it, now or later, or told that there is none."""
        origin = flight.request.origin
        place = self._places.setdefault(origin, _Place())
        while place.free:
            connection, _ = place.free.popitem()
            if self._clock.monotonic_ns() - connection.idle_ns <= IDLE_NS:
                self._user.connected(flight, connection)
                return
            connection.drop()
        place.wanting[flight] = None
        self._make_more(origin)

    def withdraw(self, flight: Flight) -> None:
        """It wants none any more."""
        self._places[flight.request.origin].wanting.pop(flight, None)

    def put(self, connection: Connection) -> None:
        """The connection is free."""
        place = self._places[self._open[connection]]
        if place.wanting:
            self._user.connected(place.wanting.popitem(last=False)[0], connection)
        else:
            place.free[connection] = None

    def lost(self, connection: Connection) -> None:
        """The connection is closed."""
        origin = self._open.pop(connection, None)
        if origin is not None:
            self._places[origin].free.pop(connection, None)
            self._make_more(origin)
        if not self._open:
            self._closed.set()

    async def close(self) -> None:
        """Closes all, free or not."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._closed.clear()
        for connection in list(self._open):
            connection.drop()
        if self._open:
            await asyncio.wait_for(self._closed.wait(), _CLOSING_S)

    def _make_more(self, origin: Origin) -> None:
        """Begins to make a connection, if one is wanted that is not being made, and there is room."""
        place = self._places[origin]
        if self._closing or place.making >= min(len(place.wanting), MOST_MADE) or not self._room():
            return
        loop = asyncio.get_running_loop()
        place.making += 1
        task = loop.create_task(self._made(origin))
        timer = loop.call_later(self._timeout_s, task.cancel)  # by then those that have waited so long have given up
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(origin, timer, done))

    def _room(self) -> bool:
        if len(self._open) + len(self._tasks) < self._most:
            return True
        for place in self._places.values():
            if place.free:
                connection, _ = place.free.popitem(last=False)
                del self._open[connection]
                connection.drop()
                return True
        return False

    def _done(self, origin: Origin, timer: asyncio.TimerHandle, task: asyncio.Task[Connection]) -> None:
        timer.cancel()
        self._tasks.discard(task)
        place = self._places[origin]
        place.making -= 1
        if not task.cancelled():
            error = task.exception()
            if error is None:
                self.put(task.result())
            elif place.wanting:
                self._user.unconnected(place.wanting.popitem(last=False)[0], error)
        self._make_more(origin)

    async def _made(self, origin: Origin) -> Connection:
        """A new connection, to the first of the host's addresses that takes one.

        Raises:
            OSError: none does; that of the last one.
        """
        addresses = await self._resolved(origin)
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):
                return await self._connected(origin, address)
        return await self._connected(origin, addresses[-1])

    async def _connected(self, origin: Origin, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        stream = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            stream.setblocking(False)
            await loop.sock_connect(stream, (address, origin.port))
            secure = (self._tls, origin.host) if origin.secure else (None, None)
            made = await loop.create_connection(self._make, sock=stream, ssl=secure[0], server_hostname=secure[1])
        except BaseException:
            stream.close()
            raise
        self._open[made[1]] = origin
        return made[1]

    async def _resolved(self, origin: Origin) -> list[str]:
        at = (origin.host, origin.port)
        known = self._addresses.get(at)
        now_ns = self._clock.monotonic_ns()
        if known is None or now_ns - known[0] > _RESOLVED_NS:
            found = await asyncio.get_running_loop().getaddrinfo(*at, type=socket.SOCK_STREAM)
            known = self._addresses[at] = (now_ns, list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        return known[1]

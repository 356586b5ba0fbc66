"""A real HTTP service in a thread of its own, on a port of loopback that was free; it notes what it is asked."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from spanlite.runtime.clock import SystemClock

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOCK = SystemClock()


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; `headers` by lower-case name, `at_ns` monotonic, `number` in order of arrival."""

    number: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    at_ns: int


Behaviour = Callable[[Seen], Awaitable[bytes | None]]
"""What is written in answer; None closes the connection without one."""


async def at_once(_seen: Seen) -> bytes | None:
    """Answers 200."""
    return OK


def status(number: int, extra: str = "") -> bytes:
    """An answer with a status and a body of two bytes."""
    return f"HTTP/1.1 {number} x\r\n{extra}Content-Length: 2\r\n\r\nno".encode()


class Service:
    """As a context: serves.

    Attributes:
        port: where.
        seen: the requests so far.
        connections: made so far.
        most_open: of them at one time.
    """

    def __init__(self, behaviour: Behaviour = at_once, *, tls: ssl.SSLContext | None = None) -> None:
        self._behaviour, self._tls = behaviour, tls
        self.seen: list[Seen] = []
        self.connections = self.most_open = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/"

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def call(self, what: Callable[[], object]) -> None:
        """Runs it in the service's thread."""
        self._loop.call_soon_threadsafe(what)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls, backlog=1024)
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.most_open = max(self.most_open, len(self._tasks))
        try:
            while (answer := await self._answered(reader)) is not None:
                writer.write(answer)
                if b"Connection: close" in answer or b"Length" not in answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has left, or the service ends
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answered(self, reader: asyncio.StreamReader) -> bytes | None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        at_ns = CLOCK.monotonic_ns()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = first.split()
        seen = Seen(len(self.seen), method, target, headers, body, at_ns)
        self.seen.append(seen)
        return await self._behaviour(seen)

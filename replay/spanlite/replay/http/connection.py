"""One connection of HTTP/1.1 that carries one request after the other.

The only module that imports httptools. Bodies are counted as they come and kept nowhere.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import httptools

from spanlite.replay.http.calling import Flight
from spanlite.runtime.clock import Clock

MOST_HEAD_BYTES = 256 << 10
_FRAMED = (b"content-length", b"transfer-encoding")


class Owner(Protocol):
    """Who is told of a connection."""

    def ended(self, connection: Connection, flight: Flight, error: str, *, kept: bool) -> None:
        """A request has ended: whole, or with a word of outcomes.ERRORS; `kept`: the connection can carry another."""
        ...

    def lost(self, connection: Connection) -> None:
        """The connection is closed; after `ended` if it carried a request."""
        ...


class Connection(asyncio.Protocol):
    """Attributes: flight: the request that it carries; idle_ns: since when it carries none, monotonic."""

    def __init__(self, owner: Owner, clock: Clock, *, bodiless: bool) -> None:
        """`bodiless`: responses have a head only, whatever it says (HEAD)."""
        self._owner, self._clock, self._bodiless = owner, clock, bodiless
        self.flight: Flight | None = None
        self.idle_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a stream, as asked for
        self._transport = transport

    def send(self, flight: Flight) -> None:
        """Writes a request."""
        self.flight = flight
        self._parser = httptools.HttpResponseParser(self)
        self._status = self._head_bytes = 0
        self._headed = self._framed = self._stays = self._whole = self._more = False
        flight.sent_ns = self._clock.monotonic_ns()  # before, so that nothing can have arrived earlier
        self._transport.write(flight.request.payload)

    def drop(self) -> None:
        """Closes it at once; nobody is told what becomes of the request."""
        self.flight = None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        flight = self.flight
        if flight is None:  # nobody has asked
            self._transport.abort()
            return
        flight.first_ns = flight.first_ns or self._clock.monotonic_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end("protocol")
            return
        except httptools.HttpParserError:
            if not self._whole:  # else it is what stands behind the response
                self._end("protocol")
                return
            self._more = True
        if self._whole:
            self._end("")
        elif not self._headed:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._end("protocol")

    def connection_lost(self, error: Exception | None) -> None:
        if self.flight is not None:
            if self._headed and not self._framed and error is None:
                self._end("")  # a body that ends with the connection
            else:
                self._end("truncated" if self._headed else "reset")
        self._owner.lost(self)

    def on_message_begin(self) -> None:
        self._more = self._whole

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002  # of the parser's protocol
        self._framed = self._framed or name.lower() in _FRAMED

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._whole or status < 200 or self.flight is None:
            self._framed = False
            return
        self._headed, self.flight.status = True, status
        self._stays = self._parser.should_keep_alive()  # afterwards it knows no more
        self._whole = self._bodiless

    def on_body(self, body: bytes) -> None:
        if self.flight is not None and not self._whole:
            self.flight.received += len(body)

    def on_message_complete(self) -> None:
        self._whole = self._whole or self._headed

    def _end(self, error: str) -> None:
        flight, self.flight = self.flight, None
        if flight is None:
            return
        kept = self._whole and self._stays and not error and not self._more and not self._transport.is_closing()
        if not kept:
            self._transport.abort()
        self.idle_ns = self._clock.monotonic_ns()
        self._owner.ended(self, flight, error, kept=kept)

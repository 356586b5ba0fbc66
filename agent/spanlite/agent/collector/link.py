"""The connection to the agent: frames out, nothing in. Used by one thread alone."""

from __future__ import annotations

import array
import fcntl
import select
import socket
import termios
from collections.abc import Callable, Iterable
from enum import Enum

from spanlite.agent.collector import wire
from spanlite.runtime.clock import Clock

_POLL_MS = 20
_FLAGS = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT


class Sent(Enum):
    """How a frame went."""

    SENT = 0
    HUNG = 1
    """The agent took nothing for too long, or the process has no more time."""
    CLOSED = 2
    """It hung up."""


class Link:
    """Frames to the first place where an agent listens.

    Args:
        hung_ns: an agent that takes nothing for so long is hung up on.
        inert: whether nothing may be done any more.
    """

    def __init__(self, places: Iterable[str], clock: Clock, *, hung_ns: int, inert: Callable[[], bool]) -> None:
        self._places = tuple(places)
        self._clock = clock
        self._hung_ns = hung_ns
        self._inert = inert
        self._socket: socket.socket | None = None
        self._sequence = 0
        self.hurry_ns: int | None = None
        """From now on nothing is waited for longer than until then, monotonic."""

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self) -> bool:
        """Connects; False where nobody listens."""
        for place in self._places:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                peer.setblocking(False)
                peer.connect(place)
            except OSError:  # nobody there, or no such place
                peer.close()
                continue
            self._socket, self._sequence = peer, 0
            return True
        return False

    def close(self) -> None:
        peer, self._socket = self._socket, None
        if peer is not None:
            peer.close()

    def check(self) -> bool:
        """Notices that the agent has hung up, without sending."""
        if self._socket is not None and self._has_ended(self._socket):
            self.close()
        return self.is_open

    def send(self, kind: int, payload: bytes | memoryview) -> Sent:
        """One frame; on anything but SENT the connection is closed."""
        if self._socket is None:
            return Sent.CLOSED
        head = memoryview(wire.header(kind, len(payload), self._sequence))
        self._sequence += 1
        rest, left = memoryview(payload), len(head) + len(payload)
        until = self._clock.monotonic_ns() + self._hung_ns
        while left:
            try:
                went = self._socket.sendmsg([head, rest], [], _FLAGS)
            except (BlockingIOError, InterruptedError):  # its buffer is full
                if self._is_late(until):
                    return self._give_up(Sent.HUNG)
                self._wait(select.POLLOUT, _POLL_MS)
                continue
            except OSError:  # it hung up
                return self._give_up(Sent.CLOSED)
            left -= went
            until = self._clock.monotonic_ns() + self._hung_ns
            head, rest = head[went:], rest[max(went - len(head), 0) :]
            if left and self._is_late(until):
                return self._give_up(Sent.HUNG)
        return Sent.SENT

    def confirm(self) -> Sent:
        """Waits until the agent has read all that was sent."""
        until, before = self._clock.monotonic_ns() + self._hung_ns, -1
        while self._socket is not None:
            unread = _unread(self._socket)
            if self._was_reset(self._socket):
                return self._give_up(Sent.CLOSED)
            if unread == 0:  # an end that came after is the next frame's affair
                return Sent.SENT
            if unread != before:
                until = self._clock.monotonic_ns() + self._hung_ns
            before = unread
            if self._is_late(until):
                return self._give_up(Sent.HUNG)
            self._wait(0, 1)
        return Sent.CLOSED

    def _give_up(self, how: Sent) -> Sent:
        self.close()
        return how

    def _is_late(self, until_ns: int) -> bool:
        now = self._clock.monotonic_ns()
        return self._inert() or now > until_ns or (self.hurry_ns is not None and now > self.hurry_ns)

    def _wait(self, events: int, timeout_ms: int) -> None:
        if self._socket is not None:
            poll = select.poll()
            poll.register(self._socket, events)
            poll.poll(timeout_ms)

    @staticmethod
    def _has_ended(peer: socket.socket) -> bool:
        try:
            return not peer.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):  # it is there, and silent
            return False
        except OSError:  # reset
            return True

    @staticmethod
    def _was_reset(peer: socket.socket) -> bool:
        """A socket that is closed with bytes unread gives its peer a reset, else an end."""
        try:
            peer.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):  # it is there, and silent
            return False
        except OSError:  # reset
            return True
        return False


def _unread(peer: socket.socket) -> int:
    """Bytes that the agent has not read yet."""
    found = array.array("i", [0])
    fcntl.ioctl(peer, termios.TIOCOUTQ, found)
    return found[0]

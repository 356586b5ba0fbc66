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
        return self._put(self._header(kind, payload), memoryview(payload))

    def deliver(self, kind: int, payload: bytes | memoryview) -> Sent:
        """One frame of at least a byte, and waits until the agent has read it.

        On anything but SENT it will never have been read, whatever becomes of the agent: what lies in a socket cannot
        be taken back, so the last byte is kept until the rest has been read. It goes out unread only where nobody will
        tell of losses any more.
        """
        whole = memoryview(payload)
        sent = self._put(self._header(kind, whole), whole[:-1])
        if sent is not Sent.SENT:
            return sent
        sent = self._wait_for_reading()
        leaving = self.hurry_ns is not None and self._clock.monotonic_ns() > self.hurry_ns
        if sent is Sent.CLOSED or (sent is Sent.HUNG and not leaving):
            return self._give_up(sent)
        sent = self._put(whole[-1:], whole[:0])
        if sent is not Sent.SENT:
            return sent
        sent = self._wait_for_reading()
        if sent is Sent.SENT:
            return sent
        return self._give_up(Sent.SENT if sent is Sent.HUNG else sent)  # hung over a byte: the frame is the agent's

    def _header(self, kind: int, payload: bytes | memoryview) -> memoryview:
        head = memoryview(wire.header(kind, len(payload), self._sequence))
        self._sequence += 1
        return head

    def _put(self, head: memoryview, rest: memoryview) -> Sent:
        if self._socket is None:
            return Sent.CLOSED
        left = len(head) + len(rest)
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

    def _wait_for_reading(self) -> Sent:
        """Until the agent has read all that was sent; closes nothing."""
        until, before = self._clock.monotonic_ns() + self._hung_ns, -1
        while self._socket is not None:
            unread = _unread(self._socket)
            if self._was_reset(self._socket):
                return Sent.CLOSED
            if unread == 0:  # an end that came after is the next frame's affair
                return Sent.SENT
            if unread != before:
                until = self._clock.monotonic_ns() + self._hung_ns
            before = unread
            if self._is_late(until):
                return Sent.HUNG
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

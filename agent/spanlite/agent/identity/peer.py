"""The process at the other end of a unix socket, in the kernel's words."""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

log = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("3i")
_SO_PEERPIDFD = 77
"""Linux 6.5 and later: a descriptor of the peer's process, which no other process can ever take over."""


class Credentials(NamedTuple):
    """Of the peer when it connected.

    Attributes:
        pid: in our namespace; 0 for a process that cannot be seen from it (an agent in a container without hostPID).
        uid, gid: effective.
    """

    pid: int
    uid: int
    gid: int


def credentials(peer: socket.socket) -> Credentials:
    """SO_PEERCRED of a connection."""
    return Credentials(*_CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)))


class Hold:
    """Holds on to the peer's process, so that it can be told whether its pid is still its own.

    Before Linux 6.5 the descriptor is opened by the pid: a process that ended and whose number was given out again
    between its connecting and our accepting is not noticed.
    """

    def __init__(self, peer: socket.socket, pid: int) -> None:
        self._fd: int | None = None
        self._gone = False
        with suppress(OSError):  # an older kernel
            self._fd = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        if self._fd is None and pid > 0:
            try:
                self._fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self._gone = True
            except OSError as error:  # forbidden here: the start in /proc is all that tells processes apart
                log.debug("process %d cannot be held: %s", pid, error)

    def alive(self) -> bool:
        """Whether the process runs still, so that its pid means nobody else; True where that cannot be told."""
        if self._fd is None:
            return not self._gone
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return not poll.poll(0)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

"""How a service is called, and what the process needs for it."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from spanlite.contract.errors import UsageError
from spanlite.replay.http.requests import Request

_OTHER_FILES = 64
_LOCAL = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}


@dataclass(frozen=True)
class Calling:
    """How a service is called.

    Attributes:
        connections: most open at once.
        queue: most requests that wait for one.
        timeout_s: from the moment a request has a connection, or begins to make one, to the end of its response.
        ca: certificates to trust, instead of the system's.
        bodiless: responses have a head only (HEAD).
        keep_going: whether it goes on where nobody is there.
    """

    connections: int = 256
    queue: int = 100_000
    timeout_s: float = 30.0
    ca: Path | None = None
    bodiless: bool = False
    keep_going: bool = False


class Flight:
    """One request on its way; times are monotonic, 0 for what has not come to be. `timer`: of its timeout."""

    __slots__ = ("due_ns", "first_ns", "received", "request", "sent_ns", "status", "timer")

    def __init__(self, request: Request, due_ns: int) -> None:
        self.request = request
        self.due_ns = due_ns
        self.sent_ns = self.first_ns = self.status = self.received = 0
        self.timer: asyncio.TimerHandle | None = None


def kind_of(error: OSError) -> str:
    """The word of outcomes.ERRORS for why there is no connection."""
    for word, met in (
        ("dns", isinstance(error, socket.gaierror)),
        ("tls", isinstance(error, ssl.SSLError)),
        ("timeout", isinstance(error, TimeoutError)),
        ("refused", isinstance(error, ConnectionRefusedError)),
        ("reset", isinstance(error, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError))),
        ("local", error.errno in _LOCAL),
    ):
        if met:
            return word
    return "unreachable"


def tls_context(ca: Path | None) -> ssl.SSLContext:
    """That verifies certificates, against those of a file or the system's.

    Raises:
        UsageError: the file cannot be read, or holds none.
    """
    try:
        return ssl.create_default_context(cafile=str(ca) if ca else None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca {ca}: {error.strerror or error}; name a file of certificates in PEM") from error


def check_files(connections: int) -> None:
    """Lets the process open as many files as that takes.

    Raises:
        UsageError: it may not.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if limit == resource.RLIM_INFINITY or wanted <= limit:
        return
    if most != resource.RLIM_INFINITY and wanted > most:
        raise UsageError(f"--connections {connections}: this process may have {most} files open; see `ulimit -n`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))

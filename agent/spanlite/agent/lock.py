"""One agent a node: a lock on a file beside the socket, which ends with the process that has it, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from spanlite.contract.errors import UsageError


class NodeLock:
    """As a context: holds `SOCKET.lock`, in which the pid of its holder stands.

    The file stays when the agent has gone: removing it would let two agents lock two files of one name.
    """

    def __init__(self, socket: Path) -> None:
        self.path = socket.with_name(f"{socket.name}.lock")
        self._fd: int | None = None

    def __enter__(self) -> NodeLock:
        """Takes the lock.

        Raises:
            UsageError: another agent has it, or the file cannot be written.
        """
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise UsageError(f"cannot lock {self.path}: {error.strerror}; choose another socket path") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(fd, 32).decode("ascii", "replace").strip() or "that is just starting"
            os.close(fd)
            raise UsageError(
                f"another agent, process {holder}, serves this node ({self.path} is locked); "
                "end it first, or choose another socket path"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

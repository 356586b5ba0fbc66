"""The agent's place in the file system: taken over from an agent that is gone, never from one that runs."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanlite.agent.access import Access
from spanlite.contract.errors import UsageError

log = logging.getLogger(__name__)


def listen(listener: socket.socket, path: Path, access: Access) -> int:
    """Binds and listens; a socket that an agent left behind is swept.

    Returns:
        number of the socket's inode, by which it can be told from one that came later.

    Raises:
        UsageError: the path is taken or too long for a unix socket, or access cannot be given; the listener is closed.
    """
    try:
        with _alone_in(path.parent):
            _sweep(path)
            listener.bind(str(path))
            access.apply(path)
            listener.listen(socket.SOMAXCONN)
            return path.lstat().st_ino
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {path}: {error}; choose another socket path") from error


def inode_of(path: Path) -> int | None:
    """What stands at a path now; None where nothing does."""
    try:
        return path.lstat().st_ino
    except OSError:  # gone, or its folder is
        return None


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two agents that start at once must not sweep each other's socket: they take turns, by a lock on its folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sweep(path: Path) -> None:
    """Removes a socket on which nobody listens; any other file is left, and binding then fails."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        try:
            peer.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            log.info("%s was left behind by an agent that is gone; it is taken over", path)
        else:
            raise OSError("an agent listens there already")

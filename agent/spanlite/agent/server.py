"""The node agent's socket: one thread a traced process reads frames and hands batches to an outlet."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import DONE, HEADER, Frame, Header, unpack_header
from spanlite.agent.outlet import Direct, Item, Outlet
from spanlite.agent.process import TracedProcess
from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.contract.errors import FrameError, LayoutError, UsageError
from spanlite.runtime.clock import Clock
from spanlite.transport.ports import Producer
from spanlite.transport.topics import SPANS

log = logging.getLogger(__name__)

SPANS_TOPIC = SPANS.name
_PEER = struct.Struct("3i")


class AgentServer:
    """Listens on a unix socket until it is stopped.

    A peer that breaks the protocol is told off in the log and hung up on; the others are not disturbed.

    Args:
        producer: where batches go: an outlet, or a producer, to which they go straight.
        topic: and under which name.
    """

    def __init__(
        self,
        path: Path,
        producer: Producer | Outlet,
        clock: Clock,
        counts: AgentCounts,
        *,
        topic: str = SPANS_TOPIC,
    ) -> None:
        self._path = path
        self._topic = topic
        self._outlet = producer if isinstance(producer, Outlet) else Direct(producer, counts)
        self._clock = clock
        self._counts = counts
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._working = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._peers: set[socket.socket] = set()
        self._accepting: threading.Thread | None = None
        self.failures: list[Exception] = []
        """What ended a peer's thread early; a caller that feeds files looks here."""

    def start(self) -> None:
        """Binds the socket and begins to accept; a socket that an agent left behind is swept.

        Raises:
            UsageError: the path is taken or too long for a unix socket.
        """
        try:
            with _alone_in(self._path.parent):
                _sweep(self._path)
                self._listener.bind(str(self._path))
                self._path.chmod(0o600)
                self._listener.listen()
        except OSError as error:
            self._listener.close()
            raise UsageError(f"cannot listen on {self._path}: {error}; choose another socket path") from error
        self._accepting = threading.Thread(target=self._accept, name="spanlite-accept", daemon=True)
        self._accepting.start()

    def stop(self, grace_s: float = 30.0) -> None:
        """Stops accepting, lets the connected peers finish, and removes the socket.

        A peer that is still there after `grace_s` is hung up on; what it has sent until then is worked off.
        """
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._accepting:
            self._accepting.join()
        impatience = threading.Timer(grace_s, self._hang_up)
        impatience.daemon = True
        impatience.start()
        for thread in self._threads:
            thread.join()
        impatience.cancel()
        self._path.unlink(missing_ok=True)

    def _hang_up(self) -> None:
        for peer in list(self._peers):
            with suppress(OSError):  # it was faster
                peer.shutdown(socket.SHUT_RD)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # the listener was closed by stop()
                return
            self._peers.add(peer)
            thread = threading.Thread(target=self._serve, args=(peer,), name="spanlite-peer", daemon=True)
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            self._read(peer)
        finally:
            self._peers.discard(peer)

    def _read(self, peer: socket.socket) -> None:
        pid, _uid, _gid = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        process: TracedProcess | None = None
        said_goodbye = False
        with peer:
            try:
                for header, payload in _frames(peer):
                    if process is None:
                        process = TracedProcess.from_hello(header, payload, pid, self._clock, self._counts)
                    else:
                        self._send(process.take(header, payload))
                    if header.type == Frame.BYE:
                        said_goodbye = True
                        break
            except (FrameError, LayoutError, OSError) as error:
                log.warning("process %d: %s; its connection is closed", pid, error)
                self.failures.append(error)
            except Exception as error:  # a fault of ours: no caller may take the peer's silence for success
                self.failures.append(error)
                raise
            if process is not None:
                self._send(process.finish())
            if said_goodbye:
                with suppress(OSError):  # it does not wait for the answer
                    peer.sendall(DONE)

    def _send(self, batches: Iterator[Batch]) -> None:
        """Passes on a frame's batches.

        One frame is worked off at a time: peers that share the interpreter only slow each other down, and hold their
        tables in memory meanwhile.
        """
        items: list[Item] = []
        try:
            with self._working:
                items.extend(self._item(batch) for batch in batches)
        finally:  # what came of a frame before its fault
            for item in items:
                self._outlet.put(item)

    def _item(self, batch: Batch) -> Item:
        columns = batch.columns
        key = f"{batch.resource.get('host.name', '')}/{','.join(gpu.uuid for gpu in batch.gpus)}".encode()
        timestamp_ms = int(batch.end_ns.max()) // 1_000_000 if len(columns) else 0
        return Item(self._topic, key, encode_batch(batch), timestamp_ms, len(columns))


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


def _frames(peer: socket.socket) -> Iterator[tuple[Header, bytes]]:
    with peer.makefile("rb") as stream:
        while head := stream.read(HEADER.size):
            if len(head) < HEADER.size:
                raise FrameError("truncated", f"the stream ends inside a header of {HEADER.size} bytes")
            header = unpack_header(head)
            payload = stream.read(header.length)
            if len(payload) < header.length:
                raise FrameError("truncated", f"the stream ends {header.length - len(payload)} bytes inside a frame")
            yield header, payload

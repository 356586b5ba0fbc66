"""The node agent's socket: one thread a traced process reads frames and hands batches to the transport."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import HEADER, Frame, Header, unpack_header
from spanlite.agent.process import TracedProcess
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.contract.errors import FrameError, LayoutError, UsageError
from spanlite.runtime.clock import Clock
from spanlite.transport.ports import Producer

log = logging.getLogger(__name__)

SPANS_TOPIC = "spanlite.spans"
_PEER = struct.Struct("3i")


class AgentServer:
    """Listens on a unix socket until it is stopped.

    A peer that breaks the protocol is told off in the log and hung up on; the others are not disturbed.
    """

    def __init__(self, path: Path, producer: Producer, clock: Clock, counts: AgentCounts) -> None:
        self._path = path
        self._producer = producer
        self._clock = clock
        self._counts = counts
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._threads: list[threading.Thread] = []
        self._accepting: threading.Thread | None = None
        self.failures: list[Exception] = []
        """What ended a peer's thread early; a caller that feeds files looks here."""

    def start(self) -> None:
        """Binds the socket and begins to accept.

        Raises:
            UsageError: the path is taken or too long for a unix socket.
        """
        try:
            self._listener.bind(str(self._path))
        except OSError as error:
            self._listener.close()
            raise UsageError(f"cannot listen on {self._path}: {error}; choose another socket path") from error
        self._path.chmod(0o600)
        self._listener.listen()
        self._accepting = threading.Thread(target=self._accept, name="spanlite-accept", daemon=True)
        self._accepting.start()

    def stop(self) -> None:
        """Stops accepting, lets the connected peers finish, and removes the socket."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._accepting:
            self._accepting.join()
        for thread in self._threads:
            thread.join()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # the listener was closed by stop()
                return
            thread = threading.Thread(target=self._serve, args=(peer,), name="spanlite-peer", daemon=True)
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        pid, _uid, _gid = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        process: TracedProcess | None = None
        with peer:
            try:
                for header, payload in _frames(peer):
                    if process is None:
                        process = TracedProcess.from_hello(header, payload, pid, self._clock, self._counts)
                    else:
                        self._send(process.take(header, payload))
                    if header.type == Frame.BYE:
                        break
            except (FrameError, LayoutError, OSError) as error:
                log.warning("process %d: %s; its connection is closed", pid, error)
                self.failures.append(error)
            except Exception as error:  # a fault of ours: no caller may take the peer's silence for success
                self.failures.append(error)
                raise
            if process is not None:
                self._send(process.finish())

    def _send(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            value = encode_batch(batch)
            columns = batch.columns
            key = f"{batch.resource.get('host.name', '')}/{','.join(gpu.uuid for gpu in batch.gpus)}".encode()
            rows = len(columns)

            def delivered(problem: str | None, rows: int = rows, size: int = len(value)) -> None:
                if problem is None:
                    self._counts.add(catalogue.AGENT_SPANS_SENT, rows)
                    self._counts.add(catalogue.AGENT_BATCH_BYTES, size)
                else:
                    self._counts.add(catalogue.AGENT_SPANS_DROPPED, rows, problem)
                self._counts.add(catalogue.AGENT_BATCHES_SENT, 1, "delivered" if problem is None else problem)

            timestamp_ms = int(batch.end_ns.max()) // 1_000_000 if rows else 0
            self._producer.send(SPANS_TOPIC, key, value, timestamp_ms, delivered)


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

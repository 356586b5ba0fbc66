"""A listener in the agent's place that keeps every frame as it came."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from spanlite.agent.frames import DONE, HEADER, Frame, unpack_header, unpack_names, unpack_text


@dataclass
class Connection:
    """The frames of one connection, as they come.

    Attributes:
        frames: type, sequence and payload.
        over: it ended between two frames.
    """

    frames: list[tuple[Frame, int, bytes]] = field(default_factory=list)
    over: bool = False

    def of(self, kind: Frame) -> list[bytes]:
        """Payloads of one type."""
        return [payload for found, _, payload in list(self.frames) if found == kind]

    @property
    def kinds(self) -> list[Frame]:
        return [kind for kind, _, _ in list(self.frames)]

    @property
    def bytes(self) -> bytes:
        """Everything that the buffers held."""
        return b"".join(self.of(Frame.BUFFER))

    @property
    def hello(self) -> dict[str, str]:
        return unpack_text(self.of(Frame.HELLO)[0])

    def names(self) -> dict[int, str]:
        return {pointer: name for payload in self.of(Frame.NAMES) for pointer, name in unpack_names(payload)}


class Tap:
    """Listens on a path; `reading` cleared, it accepts and takes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connections: list[Connection] = []
        self.reading = threading.Event()
        self.reading.set()
        self._vanished = False
        self._peers: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        """Hangs up on everybody and goes away."""
        self.reading.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in [] if self._vanished else self._peers:
            with suppress(OSError):  # it has gone by itself
                peer.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self.path.unlink(missing_ok=True)

    def vanish(self) -> None:
        """Goes away without reading what has come, as a process that is killed."""
        self._vanished = True
        self.stop()

    def say(self, word: bytes) -> None:
        """Sends bytes to whoever connected last."""
        self._peers[-1].sendall(word)

    def dropped(self) -> dict[str, int]:
        """What all STATS frames told, summed."""
        total: dict[str, int] = {}
        for connection in self.connections:
            for payload in connection.of(Frame.STATS):
                for key, value in unpack_text(payload).items():
                    if value.isdigit():
                        total[key] = total.get(key, 0) + int(value)
        return total

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # the listener was closed by stop()
                return
            connection = Connection()
            self.connections.append(connection)
            self._peers.append(peer)
            thread = threading.Thread(target=self._read, args=(peer, connection), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _read(self, peer: socket.socket, connection: Connection) -> None:
        with peer, peer.makefile("rb", buffering=0) as raw:
            while True:
                with suppress(OSError):  # reset: the read will tell
                    peer.recv(1, socket.MSG_PEEK)  # something has come; whether it is taken is another question
                self.reading.wait()
                if self._vanished:
                    return
                head = _exactly(raw, HEADER.size)
                if not head:
                    connection.over = True
                    return
                header = unpack_header(head)
                payload = _exactly(raw, header.length)
                if len(payload) < header.length:
                    return
                connection.frames.append((header.type, header.sequence, payload))
                if header.type == Frame.BYE:
                    connection.over = True
                    try:
                        peer.sendall(DONE)
                    except OSError:  # a collector does not wait for the answer
                        return


def _exactly(raw: socket.SocketIO, length: int) -> bytes:
    """So many bytes; fewer where the stream ends."""
    parts: list[bytes] = []
    while length:
        try:
            part = raw.read(length)
        except OSError:  # reset
            part = b""
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)

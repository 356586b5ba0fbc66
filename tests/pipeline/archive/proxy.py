"""A proxy that stops forwarding after some bytes: an upload caught half-way."""

from __future__ import annotations

import socket
import threading
from types import TracebackType


class StuckProxy:
    """Forwards connections to a port; what clients send beyond `allow` bytes in all goes nowhere.

    Attributes:
        port: where it listens.
        stuck: set when the bytes are used up.
    """

    def __init__(self, target: int, allow: int, *, reset: bool = False) -> None:
        """Takes the port to forward to, the bytes to forward, and whether connections break then or just hang."""
        self._target = target
        self._left = allow
        self._reset = reset
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.stuck = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> StuckProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # closed
                return
            if self.stuck.is_set() and self._reset:
                client.close()
                continue
            target = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, target]
            threading.Thread(target=self._forward, args=(client, target), daemon=True).start()
            threading.Thread(target=self._back, args=(target, client), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    self._left -= len(data)
                    if self._left < 0:
                        self.stuck.set()
                if self.stuck.is_set():
                    if self._reset:
                        source.shutdown(socket.SHUT_RDWR)
                        target.shutdown(socket.SHUT_RDWR)
                        return
                    continue
                target.sendall(data)
        except OSError:  # either end has closed
            return

    @staticmethod
    def _back(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:  # either end has closed
            return

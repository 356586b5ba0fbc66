"""An agent for one trial: takes frames of traced processes, decodes them as the real one does, keeps only counts."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import DONE, HEADER, Frame, Header, unpack_header, unpack_stamps, unpack_text
from spanlite.agent.process import TracedProcess
from spanlite.contract.batch import Batch
from spanlite.contract.columns import KERNEL, MEMCPY, MEMSET, RANGE
from spanlite.contract.errors import FrameError, LayoutError
from spanlite.runtime.clock import Clock

_PEER = struct.Struct("3i")
_NO_CUPTI = "0"


@dataclass
class Heard:
    """What one traced process told.

    Attributes:
        hello: its HELLO.
        state: the newest that it told.
        kernels, others, ranges: spans by what they are.
        names: of kernels.
        first_ns, last_ns: starts of the first and of the last span on the GPU.
        stamps, calls: boundaries of ranges, and CUDA calls between the first and the last of them.
        fault: why its connection was ended early.
    """

    pid: int
    hello: dict[str, str] = field(default_factory=dict)
    state: str = ""
    kernels: int = 0
    others: int = 0
    ranges: int = 0
    names: set[str] = field(default_factory=set)
    first_ns: int = 0
    last_ns: int = 0
    stamps: int = 0
    calls: int = 0
    fault: str = ""
    _first_call: int | None = None

    @property
    def collects(self) -> bool:
        """Whether it is a collector."""
        return self.hello.get("cupti_version", _NO_CUPTI) != _NO_CUPTI

    def told(self, kind: Frame, payload: bytes) -> None:
        """Takes in what a frame says about the process itself."""
        if kind == Frame.HELLO:
            self.hello = unpack_text(payload)
            self.state = self.hello.get("resource.spanlite.collector.state", "")
        elif kind == Frame.STATS:
            self.state = unpack_text(payload).get("state", self.state)
        elif kind == Frame.RANGES and (stamps := unpack_stamps(payload)["correlation"]).size:
            self._first_call = int(stamps[0]) if self._first_call is None else self._first_call
            self.stamps += stamps.size
            self.calls = max(self.calls, int(stamps.max()) - self._first_call)

    def count(self, batches: Iterator[Batch]) -> None:
        """Takes in spans."""
        for batch in batches:
            columns = batch.columns
            kernel, other = columns.kind == KERNEL, (columns.kind == MEMCPY) | (columns.kind == MEMSET)
            self.kernels += int(kernel.sum())
            self.ranges += int((columns.kind == RANGE).sum())
            self.others += int(other.sum())
            start = columns.start_ns[kernel | other]
            if start.size:
                self.first_ns = min(self.first_ns or int(start.min()), int(start.min()))
                self.last_ns = max(self.last_ns, int(start.max()))
            used = columns.configs["name"][np.unique(columns.config[kernel])]
            self.names |= {columns.strings[at] for at in np.unique(used).tolist()}


class Listening:
    """Listens on a path until it is stopped; each peer is one `Heard`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.heard: list[Heard] = []
        self.counts = AgentCounts()
        self._clock = clock
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        self._peers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def stop(self, grace_s: float) -> None:
        """Takes what is on its way, then hangs up on who is still there."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        end_ns = self._clock.monotonic_ns() + round(grace_s * 1e9)
        for thread in self._threads:
            thread.join(max(0.0, (end_ns - self._clock.monotonic_ns()) / 1e9))
        for peer in self._peers:
            with suppress(OSError):  # it has gone by itself
                peer.shutdown(socket.SHUT_RD)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # the listener was closed by stop()
                return
            self._peers.append(peer)
            thread = threading.Thread(target=self._read, args=(peer,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _read(self, peer: socket.socket) -> None:
        pid, _uid, _gid = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        heard = Heard(pid)
        self.heard.append(heard)
        process: TracedProcess | None = None
        with peer, peer.makefile("rb") as stream:
            try:
                while head := stream.read(HEADER.size):
                    header, payload = _frame(head, stream.read)
                    heard.told(header.type, payload)
                    if heard.hello.get("cupti_version") == _NO_CUPTI:
                        pass  # it tells of kernels' sources, and sends no spans
                    elif process is None:
                        process = TracedProcess.from_hello(header, payload, pid, self._clock, self.counts)
                    else:
                        heard.count(process.take(header, payload))
                    if header.type == Frame.BYE:
                        break
                if process is not None:
                    heard.count(process.finish())
                with suppress(OSError):  # it does not wait for the answer
                    peer.sendall(DONE)
            except (FrameError, LayoutError, OSError) as error:
                heard.fault = str(error)


def _frame(head: bytes, read: Callable[[int], bytes]) -> tuple[Header, bytes]:
    """Header and payload.

    Raises:
        FrameError: it is malformed, or the peer was gone before its end.
    """
    if len(head) < HEADER.size:
        raise FrameError("truncated", "the process ended inside a header")
    header = unpack_header(head)
    payload = read(header.length)
    if len(payload) < header.length:
        raise FrameError("truncated", "the process ended inside a frame")
    return header, payload

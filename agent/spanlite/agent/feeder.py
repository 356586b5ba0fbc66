"""Plays a recording through the collector's protocol, as the traced process would have sent it."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from spanlite.agent.activity import decode
from spanlite.agent.frames import DONE, Frame, pack_clock, pack_frame, pack_names, pack_text
from spanlite.agent.frames import Clock as ClockReading
from spanlite.agent.recording import Recording, chunks
from spanlite.contract.names import clean_text
from spanlite.runtime.clock import Clock

BUFFER_BYTES = 1 << 20
"""Of one frame while a recording is paced."""
WHOLE_BYTES = 32 << 20
"""Of one frame at full speed: most recordings fit one, so nothing depends on the order of their buffers."""


class FrameWriter:
    """Numbers frames and writes them to a stream socket."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._sequence = 0

    def send(self, kind: Frame, payload: bytes | memoryview) -> None:
        """Blocks while the agent is behind: a recording has no program to protect."""
        self._peer.sendall(pack_frame(kind, payload, self._sequence))
        self._sequence += 1


def hello(recording: Recording, resource: Mapping[str, str]) -> dict[str, str]:
    """What the process says of itself: CUPTI's version, record sizes, GPUs, who it is."""
    gpu = recording.gpu
    index = gpu.get("index") or 0
    said = {
        "cupti_version": str(recording.cupti_version),
        "session": f"{_session(recording):016x}",
        f"gpu.{index}.name": str(gpu.get("name", "")),
        f"gpu.{index}.uuid": str(gpu.get("uuid") or f"GPU-unrecorded-{index}"),
        f"gpu.{index}.compute_major": str(gpu.get("major", 0)),
        f"gpu.{index}.compute_minor": str(gpu.get("minor", 0)),
        f"gpu.{index}.multiprocessors": str(gpu.get("multi_processor_count", 0)),
    }
    said.update({f"size.{kind}": str(size) for kind, size in recording.sizes.items()})
    said.update({f"resource.{key}": value for key, value in resource.items()})
    return said


def feed(
    recording: Recording,
    socket_path: Path,
    *,
    clock: Clock,
    speed: float = 0.0,
    resource: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> None:
    """Sends a whole recording and says goodbye.

    Args:
        recording: checked, see recording.check_counts.
        socket_path: where the agent listens.
        clock: paces the buffers.
        speed: 1 sends each buffer when its newest record had ended, 2 in half the time; 0 as fast as the agent reads.
        resource: OpenTelemetry resource attributes of the process.
        progress: told (bytes sent, bytes in all) after each buffer.

    Returns when the agent has taken everything.

    Raises:
        OSError: the agent hung up early; its log says why.
    """
    described = {"workload": recording.scenario, "host.name": "recorded", **(resource or {})}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(socket_path))
        writer = FrameWriter(peer)
        writer.send(Frame.HELLO, pack_text(hello(recording, described)))
        before, after = recording.unix_ns
        writer.send(
            Frame.CLOCK, pack_clock(ClockReading(recording.cupti_ts, (before + after) // 2, (after - before) // 2))
        )
        writer.send(Frame.NAMES, pack_names({at: clean_text(name) for at, name in recording.names.items()}))
        sent = 0
        for piece in _paced(recording, clock, speed):
            writer.send(Frame.BUFFER, piece)
            sent += len(piece)
            progress(sent, len(recording.data))
        writer.send(Frame.STATS, pack_text({"dropped.cupti": str(recording.dropped)}))
        writer.send(Frame.BYE, pack_text({"reason": "end of recording"}))
        # The agent answers when it has worked everything off; a live collector would not wait for that.
        peer.shutdown(socket.SHUT_WR)
        if peer.recv(1) != DONE:
            raise ConnectionAbortedError("the agent hung up before it had taken everything; its log says why")


def _paced(recording: Recording, clock: Clock, speed: float) -> Iterator[memoryview]:
    layout = recording.layout()
    began_ns: int | None = None
    started_ns = clock.monotonic_ns()
    for piece in chunks(recording, BUFFER_BYTES if speed > 0 else WHOLE_BYTES):
        kernels = decode(piece, layout).kernels if speed > 0 else None
        if kernels is not None and len(kernels):
            if began_ns is None:
                began_ns = int(kernels["start"][0])
            due_ns = started_ns + int((int(kernels["end"].max()) - began_ns) / speed)
            wait_ns = due_ns - clock.monotonic_ns()
            if wait_ns > 0:
                clock.sleep_s(wait_ns / 1e9)
        yield piece


def _session(recording: Recording) -> int:
    """Span ids of a recording are the same at every playing: its clock bracket names the run."""
    text = f"{recording.path.name.partition('.')[0]}/{recording.unix_ns}/{len(recording.data)}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

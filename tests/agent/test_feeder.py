"""The feeder: the frames that a recording becomes, its pace, and an agent that hangs up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spanlite.agent import feeder
from spanlite.agent.feeder import feed, hello
from spanlite.agent.frames import (
    DONE,
    Clock,
    Frame,
    Header,
    pack_text,
    unpack_clock,
    unpack_header,
    unpack_names,
    unpack_text,
)
from spanlite.agent.hello import read_hello
from spanlite.agent.recording import Recording, read_recording
from spanlite.contract.batch import Gpu
from spanlite.runtime.clock import ManualClock
from tests.agent import records


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_recording(records.DATA / "streams-cupti130500.bin.xz")


class _Listener:
    """Reads one connection to its end as frames; hangs up early if told to."""

    def __init__(self, path: Path, most: int = 1 << 40, *, answers: bool = True) -> None:
        self.path = path
        self.frames: list[tuple[Header, bytes]] = []
        self._most = most
        self._answers = answers
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with self._socket, self._socket.accept()[0] as peer, peer.makefile("rb") as stream:
            while len(self.frames) < self._most and (head := stream.read(16)):
                header = unpack_header(head)
                self.frames.append((header, stream.read(header.length)))
            if self._answers:
                peer.sendall(DONE)

    def join(self) -> None:
        self._thread.join()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[_Listener]:
    listening = _Listener(tmp_path / "a.sock")
    yield listening
    listening.join()


def test_a_recording_is_sent_as_a_collector_would(
    recording: Recording, listener: _Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HELLO, CLOCK, NAMES, buffers, STATS, BYE, numbered without a gap; the buffers make up the recorded bytes."""
    monkeypatch.setattr(feeder, "WHOLE_BYTES", 100_000)
    told: list[tuple[int, int]] = []
    feed(recording, listener.path, clock=ManualClock(), progress=lambda done, most: told.append((done, most)))
    listener.join()
    kinds = [header.type for header, _ in listener.frames]
    buffers = [payload for header, payload in listener.frames if header.type == Frame.BUFFER]
    assert kinds == [Frame.HELLO, Frame.CLOCK, Frame.NAMES, *[Frame.BUFFER] * len(buffers), Frame.STATS, Frame.BYE]
    assert [header.sequence for header, _ in listener.frames] == list(range(len(kinds)))
    assert b"".join(buffers) == records.load("streams-cupti130500")[0]
    assert max(map(len, buffers)) <= 100_000
    before, after = records.load("streams-cupti130500")[1]["unix_ns"]
    said = records.load("streams-cupti130500")[1]["cupti_ts"]
    assert unpack_clock(listener.frames[1][1]) == Clock(said, (before + after) // 2, (after - before) // 2)
    names = records.load("streams-cupti130500")[1]["names"]
    assert dict(unpack_names(listener.frames[2][1])) == {int(at): name for at, name in names.items()}
    assert unpack_text(listener.frames[-2][1]) == {"dropped.cupti": "0"}
    assert told[-1] == (len(recording.data), len(recording.data))
    assert [done for done, _ in told] == [sum(map(len, buffers[:at])) for at in range(1, len(buffers) + 1)]


def test_hello_says_what_the_description_says(recording: Recording) -> None:
    """Version, sizes, GPU and resource of the recording; a GPU without a recorded UUID gets one that says so."""
    said = read_hello(pack_text(hello(recording, {"workload": "w"})))
    assert said.cupti_version == 130500
    assert dict(said.sizes) == {1: 112, 5: 40, 10: 248, 38: 56}
    assert said.gpus == (
        Gpu(uuid="GPU-unrecorded-0", name="NVIDIA H200", compute_major=9, compute_minor=0, multiprocessors=132),
    )
    assert said.resource == {"workload": "w"}


def test_resource_attributes_of_the_caller_come_first(recording: Recording, listener: _Listener) -> None:
    """What the caller says of the process replaces what the feeder would say."""
    feed(recording, listener.path, clock=ManualClock(), resource={"host.name": "n1", "k8s.pod.name": "p"})
    listener.join()
    said = read_hello(listener.frames[0][1])
    assert said.resource == {"workload": "streams", "host.name": "n1", "k8s.pod.name": "p"}


def test_a_session_is_that_of_its_recording(recording: Recording) -> None:
    """The same at every playing, another for another run or another file."""
    session = hello(recording, {})["session"]
    assert hello(recording, {})["session"] == session
    assert hello(replace(recording, path=Path("x.bin")), {})["session"] != session
    assert hello(replace(recording, unix_ns=(1, 2)), {})["session"] != session
    packed = replace(recording, path=recording.path.with_suffix(""))
    assert hello(packed, {})["session"] == session


@pytest.mark.parametrize("speed", [1.0, 2.0, 0.5])
def test_pace_follows_the_kernels_end(
    recording: Recording, listener: _Listener, monkeypatch: pytest.MonkeyPatch, speed: float
) -> None:
    """The last buffer goes out when its newest kernel had ended, counted from the first one's start."""
    monkeypatch.setattr(feeder, "BUFFER_BYTES", 64 << 10)
    clock = ManualClock()
    sent_at: list[int] = []
    feed(
        recording,
        listener.path,
        clock=clock,
        speed=speed,
        progress=lambda _done, _most: sent_at.append(clock.monotonic_ns()),
    )
    kernels = records.kernels("streams-cupti130500")
    whole_ns = max(kernel.end for kernel in kernels) - kernels[0].start
    assert sent_at == sorted(sent_at)
    assert sent_at[-1] == pytest.approx(whole_ns / speed, abs=2)


def test_full_speed_never_waits(recording: Recording, listener: _Listener) -> None:
    """Speed 0 does not touch the clock."""
    clock = ManualClock()
    feed(recording, listener.path, clock=clock)
    assert clock.monotonic_ns() == 0


def test_an_agent_that_hangs_up_is_an_error(recording: Recording, tmp_path: Path) -> None:
    """A feed that was not taken whole does not pass for one that was."""
    early = _Listener(tmp_path / "a.sock", most=2)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        feed(recording, early.path, clock=ManualClock())
    early.join()


def test_an_agent_that_dies_at_the_end_is_an_error(recording: Recording, tmp_path: Path) -> None:
    """It has read everything, but what became of that nobody knows."""
    dying = _Listener(tmp_path / "a.sock", answers=False)
    with pytest.raises(OSError, match="before it had taken everything"):
        feed(recording, dying.path, clock=ManualClock())
    dying.join()


def test_no_agent_is_an_error(recording: Recording, tmp_path: Path) -> None:
    """Nobody listens there."""
    with pytest.raises(OSError, match="No such file"):
        feed(recording, tmp_path / "none.sock", clock=ManualClock())

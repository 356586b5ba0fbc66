"""The agent's socket, with real peers: several processes, broken protocols, kills, rejections, stopping."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import DONE, MOST_BYTES, Frame, pack_frame, pack_names, pack_text
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.agent.speakers import BUDGET, REST, SPEAK, STANDS_FOR
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch
from spanlite.contract.errors import FrameError, LayoutError, UsageError
from spanlite.runtime.clock import ManualClock
from tests.agent.playing import HELLO
from tests.agent.records import kernel
from tests.stack.process import wait_until

_HELLO = pack_frame(Frame.HELLO, pack_text(HELLO), 0)
_NAMES = pack_frame(Frame.NAMES, pack_names({0x10: "gemm"}), 1)


@dataclass
class _Collected:
    """A producer that keeps what it is sent, and answers as it is told."""

    answers: Callable[[int], str | None] = lambda _: None
    sent: list[tuple[str, bytes, bytes, int]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)

    def send(
        self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: Callable[[str | None], None]
    ) -> None:
        self.sent.append((topic, key, value, timestamp_ms))
        on_delivery(self.answers(len(self.sent)))
        self.arrived.set()

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002 - what Producer asks for
        return 0

    @property
    def batches(self) -> list[Batch]:
        return [decode_batch(value) for _, _, value, _ in self.sent]


@dataclass
class _Agent:
    path: Path
    producer: _Collected
    counts: AgentCounts
    server: AgentServer

    def connect(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.connect(str(self.path))
        return peer


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[_Agent]:
    producer, counts = _Collected(), AgentCounts()
    server = AgentServer(tmp_path / "a.sock", producer, ManualClock(), counts)
    server.start()
    yield _Agent(tmp_path / "a.sock", producer, counts, server)
    if (tmp_path / "a.sock").exists():
        server.stop()


def _buffer(correlation: int, sequence: int) -> bytes:
    return pack_frame(Frame.BUFFER, kernel(10 * correlation, 10 * correlation + 5, correlation), sequence)


def _until_closed(peer: socket.socket) -> None:
    """Waits until the agent has hung up."""
    with peer:
        while peer.recv(1):
            pass


def test_two_processes_at_once_keep_to_themselves(agent: _Agent) -> None:
    """Frames of two peers, interleaved, become batches of two sessions with their own names and numbers."""
    one, two = agent.connect(), agent.connect()
    for peer, session, name in ((one, "a1", "gemm"), (two, "b2", "softmax")):
        peer.sendall(pack_frame(Frame.HELLO, pack_text({**HELLO, "session": session}), 0))
        peer.sendall(pack_frame(Frame.NAMES, pack_names({0x10: name}), 1))
    for sequence in range(2, 6):
        one.sendall(_buffer(sequence, sequence))
        two.sendall(_buffer(100 + sequence, sequence))
    for peer in (one, two):
        peer.sendall(pack_frame(Frame.BYE, b"", 6))
        _until_closed(peer)
    found = {
        session: [batch for batch in agent.producer.batches if batch.session == session] for session in (0xA1, 0xB2)
    }
    for number, first, name in ((0xA1, 0, "gemm"), (0xB2, 100, "softmax")):
        mine = found[number]
        assert [batch.sequence for batch in mine] == [0, 1, 2, 3]
        assert [batch.columns.correlation.tolist() for batch in mine] == [[first + n] for n in range(2, 6)]
        assert {text for batch in mine for text in batch.columns.strings} == {"", name}
    assert agent.server.failures == []


def test_batches_say_for_how_many_processes_they_stand(agent: _Agent) -> None:
    """Of two ranks within a budget one is traced: its spans are both's, until the other ends."""
    one, two = agent.connect(), agent.connect()
    rank = {**HELLO, "resource.service.name": "train", f"resource.{BUDGET}": "10000"}
    for peer, session, word in ((one, "a1", SPEAK), (two, "b2", REST)):
        peer.sendall(pack_frame(Frame.HELLO, pack_text({**rank, "session": session}), 0))
        assert peer.recv(1) == word
    one.sendall(pack_frame(Frame.NAMES, pack_names({0x10: "gemm"}), 1) + _buffer(1, 2))
    assert agent.producer.arrived.wait(10)
    two.sendall(pack_frame(Frame.BYE, b"", 1))
    _until_closed(two)
    assert wait_until(
        lambda: [n for _, n in agent.server.connected.gauges()[catalogue.AGENT_COLLECTORS.name]] == [1], 10
    )
    one.sendall(_buffer(2, 3) + pack_frame(Frame.BYE, b"", 4))
    _until_closed(one)
    assert [batch.resource.get(STANDS_FOR) for batch in agent.producer.batches] == ["2", None]


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", FrameError),
        (_NAMES, FrameError),
        (_HELLO + _HELLO, FrameError),
        (_HELLO + pack_frame(Frame.BUFFER, b"\0" * 16, 1), LayoutError),
        (_HELLO + pack_frame(Frame.RANGES, b"\0" * 31, 1), FrameError),
        (_HELLO + pack_frame(Frame.CLOCK, b"", 1), FrameError),
        (pack_frame(Frame.HELLO, pack_text({**HELLO, "cupti_version": "1"}), 0), LayoutError),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_hung_up_on_alone(agent: _Agent, sent: bytes, error: type) -> None:
    """The bad one is disconnected and its error kept; the good one, connected all along, goes on."""
    good, bad = agent.connect(), agent.connect()
    good.sendall(_HELLO + _NAMES + _buffer(1, 2))
    bad.sendall(sent)
    _until_closed(bad)
    good.sendall(_buffer(2, 3) + pack_frame(Frame.BYE, b"", 4))
    _until_closed(good)
    assert [batch.columns.correlation.tolist() for batch in agent.producer.batches] == [[1], [2]]
    assert [type(failure) for failure in agent.server.failures] == [error]


def test_a_bad_buffer_does_not_take_the_earlier_ones_along(agent: _Agent) -> None:
    """What a peer sent before it broke the protocol is kept."""
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + _buffer(1, 2) + b"XXXX" + bytes(12))
    _until_closed(peer)
    assert [batch.columns.correlation.tolist() for batch in agent.producer.batches] == [[1]]
    assert [failure.reason for failure in agent.server.failures if isinstance(failure, FrameError)] == ["magic"]


@pytest.mark.parametrize("cut", [1, 15, 16, 20])
def test_a_stream_that_ends_inside_a_frame_is_truncated(agent: _Agent, cut: int) -> None:
    """Inside a header or a payload; at a frame's end it is a plain goodbye."""
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + _buffer(1, 2) + _buffer(2, 3)[:cut])
    peer.shutdown(socket.SHUT_WR)
    _until_closed(peer)
    assert [failure.reason for failure in agent.server.failures if isinstance(failure, FrameError)] == ["truncated"]
    assert agent.counts.value(catalogue.AGENT_SPANS_SENT) == 1


def test_a_stream_that_ends_between_frames_is_no_failure(agent: _Agent) -> None:
    """A collector may vanish without BYE: everything it sent is worked off."""
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + _buffer(1, 2))
    peer.shutdown(socket.SHUT_WR)
    _until_closed(peer)
    assert agent.server.failures == []
    assert agent.counts.value(catalogue.AGENT_SPANS_SENT) == 1


def test_a_huge_length_is_refused_before_its_bytes_come(agent: _Agent) -> None:
    """A header that announces 64 MiB and a byte is answered by hanging up: nothing is waited for, nothing allocated."""
    peer = agent.connect()
    header = bytearray(pack_frame(Frame.BUFFER, b"", 1))
    header[8:12] = (MOST_BYTES + 1).to_bytes(4, "little")
    peer.sendall(_HELLO + header)
    _until_closed(peer)
    assert [failure.reason for failure in agent.server.failures if isinstance(failure, FrameError)] == ["length"]


_CHILD = """
import os, socket, sys
peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
peer.connect(sys.argv[1])
peer.sendall(bytes.fromhex(sys.argv[2]))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def _child(agent: _Agent, sent: bytes) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(agent.path), sent.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_that_is_killed_inside_a_frame_loses_that_frame_alone(agent: _Agent) -> None:
    """SIGKILL with half a buffer sent: the whole ones are kept, the loss is told, and the agent goes on."""
    with _child(agent, _HELLO + _NAMES + _buffer(1, 2) + _buffer(2, 3)[:100]) as child:
        assert child.stdout
        child.stdout.readline()
        child.kill()
    good = agent.connect()
    good.sendall(_HELLO + _NAMES + _buffer(3, 2) + pack_frame(Frame.BYE, b"", 3))
    _until_closed(good)
    agent.server.stop()
    assert sorted(batch.columns.correlation.tolist() for batch in agent.producer.batches) == [[1], [3]]
    assert [failure.reason for failure in agent.server.failures if isinstance(failure, FrameError)] == ["truncated"]


def test_the_pid_is_the_kernels_word(agent: _Agent) -> None:
    """Batches of a child that claims to be process 1 carry its true pid; those of this process carry this one's."""
    hello = pack_frame(Frame.HELLO, pack_text({**HELLO, "session": "c", "resource.process.pid": "1"}), 0)
    with _child(agent, hello + _NAMES + _buffer(1, 2) + pack_frame(Frame.BYE, b"", 3)) as child:
        assert child.stdout
        pid = child.stdout.readline().strip()
        child.communicate("")
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + _buffer(2, 2) + pack_frame(Frame.BYE, b"", 3))
    _until_closed(peer)
    agent.server.stop()
    found = {batch.session: batch.resource["process.pid"] for batch in agent.producer.batches}
    assert found == {0xC: pid, 0xAB: str(os.getpid())}


def test_lost_frames_of_a_connection_are_counted(agent: _Agent) -> None:
    """Frames 2 and 5 follow each other: 3 and 4 are lost."""
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + _buffer(1, 2) + _buffer(2, 5) + pack_frame(Frame.BYE, b"", 6))
    _until_closed(peer)
    assert agent.counts.value(catalogue.AGENT_FRAMES_LOST) == 2


def test_what_the_transport_rejects_is_dropped_for_its_reason(agent: _Agent) -> None:
    """Of four batches of one span two are refused: received = sent + dropped, and outcomes are told apart."""
    agent.producer.answers = {2: "too_large", 4: "closed"}.get
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + b"".join(_buffer(n, n + 1) for n in range(1, 5)) + pack_frame(Frame.BYE, b"", 6))
    _until_closed(peer)
    counts = agent.counts
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 4
    assert counts.value(catalogue.AGENT_SPANS_SENT) == 2
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"too_large": 1, "closed": 1}
    assert counts.by_label(catalogue.AGENT_BATCHES_SENT) == {"delivered": 2, "too_large": 1, "closed": 1}
    delivered = [value for at, (_, _, value, _) in enumerate(agent.producer.sent) if at in (0, 2)]
    assert counts.value(catalogue.AGENT_BATCH_BYTES) == sum(map(len, delivered))


def test_a_value_goes_to_the_topic_with_the_key_of_its_host_and_gpus(agent: _Agent) -> None:
    """Values of one host and set of GPUs share a key, so that they keep their order; the time is that of the data."""
    peer = agent.connect()
    hello = pack_text({**HELLO, "resource.host.name": "node-7"})
    late = pack_frame(Frame.BUFFER, kernel(5_000_000, 7_999_999, 1), 2)
    peer.sendall(pack_frame(Frame.HELLO, hello, 0) + _NAMES + late + pack_frame(Frame.BYE, b"", 3))
    _until_closed(peer)
    ((topic, key, _, timestamp_ms),) = agent.producer.sent
    assert (topic, key, timestamp_ms) == (SPANS_TOPIC, b"node-7/GPU-0,GPU-1", 7)


def test_values_go_to_another_topic_if_told_so(tmp_path: Path) -> None:
    """Agents of a cell whose topics have a prefix would write to everybody's topic."""
    producer = _Collected()
    server = AgentServer(tmp_path / "s", producer, ManualClock(), AgentCounts(), topic="cell-7.spans")
    server.start()
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(str(tmp_path / "s"))
    peer.sendall(_HELLO + _NAMES + _buffer(1, 2) + pack_frame(Frame.BYE, b"", 3))
    _until_closed(peer)
    server.stop()
    assert {topic for topic, *_ in producer.sent} == {"cell-7.spans"}


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_agent(agent: _Agent) -> None:
    """Mode 0600 while it listens; after stopping there is no socket."""
    assert stat.S_IMODE(agent.path.stat().st_mode) == 0o600
    agent.server.stop()
    assert not agent.path.exists()


def test_a_path_that_is_taken_is_refused(agent: _Agent) -> None:
    """Also one that is too long for a unix socket, and one in a folder that is not there."""
    for path in (agent.path, agent.path.parent / ("x" * 120), agent.path.parent / "none" / "a.sock"):
        other = AgentServer(path, agent.producer, ManualClock(), AgentCounts())
        with pytest.raises(UsageError, match="choose another socket path"):
            other.start()


def test_stopping_waits_for_connected_peers(agent: _Agent) -> None:
    """A peer that is in the middle of its work when the agent is told to stop is heard to its end."""
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + _buffer(1, 2))
    assert agent.producer.arrived.wait(60)
    stopping = threading.Thread(target=agent.server.stop)
    stopping.start()
    peer.sendall(_buffer(2, 3) + pack_frame(Frame.BYE, b"", 4))
    _until_closed(peer)
    stopping.join()
    assert [batch.columns.correlation.tolist() for batch in agent.producer.batches] == [[1], [2]]
    assert not agent.path.exists()


def test_a_peer_that_stays_is_hung_up_on_after_the_grace(agent: _Agent) -> None:
    """An agent that must end does not wait for a process that runs for weeks; what it sent until then is worked off."""
    peer = agent.connect()
    peer.sendall(_HELLO + _NAMES + _buffer(1, 2) + _buffer(2, 3)[:50])
    assert agent.producer.arrived.wait(60)
    agent.server.stop(0.0)
    assert [batch.columns.correlation.tolist() for batch in agent.producer.batches] == [[1]]
    assert not agent.path.exists()
    _until_closed(peer)


def test_a_socket_that_a_killed_agent_left_is_taken_over(agent: _Agent, tmp_path: Path) -> None:
    """Nobody listens on it any more: the next agent starts without help, and takes it away when it ends."""
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        assert peer.connect_ex(str(path)) == errno.ECONNREFUSED
    server = AgentServer(path, agent.producer, ManualClock(), AgentCounts())
    server.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        assert peer.connect_ex(str(path)) == 0
    server.stop()
    assert not path.exists()


def test_a_file_in_the_sockets_place_is_left_alone(agent: _Agent, tmp_path: Path) -> None:
    """A slip in the path must not cost a file."""
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(UsageError, match="choose another socket path"):
        AgentServer(path, agent.producer, ManualClock(), AgentCounts()).start()
    assert path.read_text() == "mine"


def test_threads_of_peers_that_left_are_not_kept(agent: _Agent) -> None:
    """An agent that runs for weeks does not remember every process it ever served."""
    for _ in range(20):
        peer = agent.connect()
        peer.sendall(_HELLO + pack_frame(Frame.BYE, b"", 1))
        _until_closed(peer)
        for thread in threading.enumerate():
            if thread.name == "spanlite-peer":
                thread.join()
    assert len(agent.server._threads) == 1


@pytest.mark.parametrize(("last", "answer"), [(pack_frame(Frame.BYE, b"", 2), DONE), (b"", b""), (b"\0" * 16, b"")])
def test_only_a_goodbye_is_answered(agent: _Agent, last: bytes, answer: bytes) -> None:
    """Who says that nothing more comes learns that all was worked off; who broke off or broke the rules does not."""
    with agent.connect() as peer:
        peer.sendall(_HELLO + _buffer(7, 1) + last)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(8) == answer
        assert len(agent.producer.sent) == 1

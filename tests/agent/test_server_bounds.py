"""Peers that want too much, with real sockets: quotas, floods, stalls, and those beside them who are not disturbed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spanlite.agent.access import Access
from spanlite.agent.counts import AgentCounts
from spanlite.agent.framememory import SMALL_BYTES, FrameMemory
from spanlite.agent.frames import DONE, Clock, Frame, pack_clock, pack_frame, pack_names, pack_text
from spanlite.agent.quota import Quotas
from spanlite.agent.server import AgentServer
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch
from spanlite.runtime.clock import ManualClock, SystemClock
from tests.agent.playing import HELLO
from tests.agent.records import kernel
from tests.agent.waiting import until

_NAMES = pack_frame(Frame.NAMES, pack_names({0x10: "gemm"}), 1)


@dataclass
class _Collected:
    """A producer that keeps what it is sent."""

    values: list[bytes] = field(default_factory=list)

    def send(
        self, _topic: str, _key: bytes, value: bytes, _timestamp_ms: int, on_delivery: Callable[[str | None], None]
    ) -> None:
        self.values.append(value)
        on_delivery(None)

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # what Producer asks for
        return 0

    @property
    def batches(self) -> list[Batch]:
        return [decode_batch(value) for value in self.values]


class _Agent:
    """A running server."""

    def __init__(self, path: Path, quotas: Quotas, clock: ManualClock | SystemClock) -> None:
        self.path, self.producer, self.counts = path, _Collected(), AgentCounts()
        self.server = AgentServer(path, self.producer, clock, self.counts, quotas=quotas)
        self.server.start()

    def connect(self, session: str = "a") -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(60)
        peer.connect(str(self.path))
        peer.sendall(pack_frame(Frame.HELLO, pack_text({**HELLO, "session": session}), 0))
        return peer


Start = Callable[..., _Agent]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[_Agent] = []

    def begin(clock: ManualClock | SystemClock | None = None, **quotas: float) -> _Agent:
        running.append(_Agent(tmp_path / f"{len(running)}.sock", Quotas(**quotas), clock or ManualClock()))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for agent in running:
        agent.server.stop(0.0)


def _buffer(first: int, sequence: int, spans: int = 1) -> bytes:
    records = b"".join(kernel(10 * n + 1, 10 * n + 6, n) for n in range(first, first + spans))
    return pack_frame(Frame.BUFFER, records, sequence)


def _goodbye(peer: socket.socket, sequence: int) -> bytes:
    """The agent's answer to BYE: empty, if it has hung up."""
    with peer:
        peer.sendall(pack_frame(Frame.BYE, b"", sequence))
        return peer.recv(8)


def _hung_up(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_spans_over_quota_are_dropped_and_counted_exactly(start: Start) -> None:
    """10 spans a second, 20 at once: of buffers of 15 two pass, then none until the debt is paid; no frame is lost."""
    clock = ManualClock()
    agent = start(clock, spans_per_s=10)
    peer = agent.connect()
    peer.sendall(_NAMES + b"".join(_buffer(1 + 15 * n, 2 + n, 15) for n in range(5)))
    until(lambda: agent.counts.value(catalogue.AGENT_SPANS_RECEIVED) == 75)
    clock.advance_ns(1_100_000_000)  # the debt of 10 is paid, and one more is there
    peer.sendall(_buffer(100, 7, 3))
    assert _goodbye(peer, 8) == DONE
    counts = agent.counts
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"quota": 45}
    assert counts.value(catalogue.AGENT_SPANS_SENT) == 33
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 78
    assert counts.value(catalogue.AGENT_BUFFERS_RECEIVED) == 6
    assert counts.value(catalogue.AGENT_FRAMES_LOST) == 0
    found = [n for batch in agent.producer.batches for n in batch.columns.correlation.tolist()]
    assert found == [*range(1, 31), 100, 101, 102]


def test_bytes_over_quota_are_dropped_likewise_and_others_are_not_touched(start: Start) -> None:
    """A quota is each connection's own: beside one that is far over it another loses nothing."""
    agent = start(bytes_per_s=1000)
    size = len(kernel(1, 2, 3))
    greedy, modest = agent.connect("a"), agent.connect("b")
    greedy.sendall(_NAMES + b"".join(_buffer(1 + 20 * n, 2 + n, 20) for n in range(10)))
    modest.sendall(_NAMES + _buffer(1, 2))
    assert (_goodbye(greedy, 12), _goodbye(modest, 3)) == (DONE, DONE)
    assert 20 * size > 2000  # one buffer is the whole burst
    assert agent.counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"quota": 180}
    assert sorted((one.session, len(one.columns)) for one in agent.producer.batches) == [(0xA, 20), (0xB, 1)]


def test_names_over_quota_wait_and_are_kept(start: Start) -> None:
    """Later buffers mean nothing without them: the connection pauses, its names arrive, and what it owes is paid."""
    clock = ManualClock()
    agent = start(clock, bytes_per_s=1000)
    peer = agent.connect()
    names = pack_names({0x10: "gemm" + "x" * 2980})
    peer.sendall(pack_frame(Frame.NAMES, names, 1))
    until(lambda: clock.monotonic_ns() > 0)
    assert clock.monotonic_ns() == (len(names) - 2000) * 1_000_000
    clock.advance_ns(10**9)
    peer.sendall(_buffer(1, 2))
    assert _goodbye(peer, 3) == DONE
    assert agent.counts.value(catalogue.AGENT_QUOTA_PAUSES) == 1
    assert [one.columns.strings[1][:5] for one in agent.producer.batches] == ["gemmx"]


def test_one_at_full_speed_does_not_starve_another(start: Start) -> None:
    """Both wait for their turn: after the one that came first the other is next, though the first has 50 more."""
    agent = start()
    turns = agent.server.turns
    with turns.turn():
        hog, meek = agent.connect("a"), agent.connect("b")
        pushing = threading.Thread(
            target=hog.sendall, args=(_NAMES + b"".join(_buffer(n, n + 1) for n in range(1, 51)),)
        )
        pushing.start()
        until(lambda: turns.waiting == 1)
        meek.sendall(_buffer(1, 1))
        until(lambda: turns.waiting == 2)
    until(lambda: len(agent.producer.values) == 51)
    pushing.join()
    order = [one.session for one in agent.producer.batches]
    # The hog's first turn is its names; then the meek one's buffer; then the 50.
    assert order == [0xB, *[0xA] * 50]
    assert (_goodbye(hog, 52), _goodbye(meek, 2)) == (DONE, DONE)


def test_a_stalled_frame_holds_its_own_memory_and_nobody_up(start: Start) -> None:
    """Ten peers stop inside a frame of 4 MiB: another's frames go through, and what is held is their ten frames."""
    agent = start()
    header = pack_frame(Frame.BUFFER, bytes(4 << 20), 1)[: 16 + 100]
    stalled = [agent.connect(f"{n}") for n in range(1, 11)]
    for peer in stalled:
        peer.sendall(header)
    until(lambda: agent.server.memory.held_bytes == 10 * (4 << 20))
    good = agent.connect("b")
    good.sendall(_NAMES + _buffer(1, 2))
    assert _goodbye(good, 3) == DONE
    assert len(agent.producer.values) == 1
    for peer in stalled:
        peer.close()
    until(lambda: agent.server.memory.held_bytes == 0)


def test_who_stalls_in_the_room_that_others_need_is_hung_up_on(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for one large frame, and its holder stops in the middle: the next one waits a while, then gets it."""
    agent = start(SystemClock(), memory_bytes=4 << 20)
    agent.server.memory = FrameMemory(4 << 20, SystemClock(), patience_s=0.05)
    bad = agent.connect("b")
    bad.sendall(pack_frame(Frame.BUFFER, bytes(4 << 20), 1)[:5000])
    until(lambda: agent.server.memory.held_bytes == 4 << 20)
    good = agent.connect("a")
    spans = SMALL_BYTES // len(kernel(1, 2, 3)) + 1
    good.sendall(_NAMES + _buffer(1, 2, spans))
    assert _goodbye(good, 3) == DONE
    assert sum(len(one.columns) for one in agent.producer.batches) == spans
    with bad:
        assert _hung_up(bad)


def test_a_connection_without_hello_is_hung_up_on(start: Start) -> None:
    """Whoever connects and says nothing keeps a thread for so long and no longer; after HELLO silence is allowed."""
    agent = start(hello_s=0.05)
    with agent.connect() as spoke, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.settimeout(60)
        silent.connect(str(agent.path))
        assert _hung_up(silent)
        until(lambda: [type(one).__name__ for one in agent.server.failures] == ["TimeoutError"])
        spoke.sendall(_buffer(1, 1))
        assert _goodbye(spoke, 2) == DONE


def test_a_user_with_too_many_connections_is_refused_more(start: Start) -> None:
    """The third is hung up on and counted; when one of the two ends, there is room again."""
    agent = start(uid_connections=2)
    one, two = agent.connect("1"), agent.connect("2")
    until(
        lambda: (
            agent.server.gauges()[catalogue.AGENT_COLLECTORS.name] == [({"state": "untold", "sampling": "untold"}, 2.0)]
        )
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as third:
        third.connect(str(agent.path))
        assert _hung_up(third)
    assert agent.counts.by_label(catalogue.AGENT_CONNECTIONS_REFUSED) == {"uid_connections": 1}
    assert _goodbye(one, 1) == DONE
    until(
        lambda: (
            agent.server.gauges()[catalogue.AGENT_COLLECTORS.name] == [({"state": "untold", "sampling": "untold"}, 1.0)]
        )
    )
    assert _goodbye(agent.connect("3"), 1) == DONE
    assert _goodbye(two, 1) == DONE


def test_a_client_without_cupti_is_no_collector(start: Start) -> None:
    """A program that tells of its own metrics: its connection is served and not among the collectors."""
    agent = start()
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(str(agent.path))
    peer.sendall(pack_frame(Frame.HELLO, pack_text({"cupti_version": "0", "session": "1"}), 0))
    peer.sendall(pack_frame(Frame.STATS, pack_text({"stamps_dropped": "3"}), 1))
    until(lambda: agent.counts.value(catalogue.AGENT_STAMPS_DROPPED) == 3)
    assert agent.server.gauges()[catalogue.AGENT_COLLECTORS.name] == []
    assert _goodbye(peer, 2) == DONE


def test_a_flood_of_hellos_is_refused_and_the_connected_go_on(start: Start) -> None:
    """Two new connections a second, twenty at once: of fifty thirty are refused; who was there works on."""
    agent = start(uid_rate=2)
    first = agent.connect("f")
    first.sendall(_NAMES)
    for _ in range(49):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.connect(str(agent.path))
    until(lambda: agent.counts.value(catalogue.AGENT_CONNECTIONS_REFUSED) == 30)
    first.sendall(_buffer(1, 2))
    assert _goodbye(first, 3) == DONE
    assert len(agent.producer.values) == 1


def test_an_agent_out_of_threads_refuses_and_lives(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the node's processes: one connection is hung up on, and the next one that fits is served."""
    agent = start()

    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.connect(str(agent.path))
            assert _hung_up(peer)
    assert agent.counts.by_label(catalogue.AGENT_CONNECTIONS_REFUSED) == {"threads": 1}
    assert _goodbye(agent.connect(), 1) == DONE


def test_what_collectors_tell_shows_in_the_gauges(start: Start) -> None:
    """State by HELLO and STATS, the clock's uncertainty and offset, stamps; a peer that left is no longer there."""
    agent = start()
    peer = agent.connect()
    peer.sendall(pack_frame(Frame.STATS, pack_text({"state": "active", "stamps_dropped": "12"}), 1))
    peer.sendall(pack_frame(Frame.CLOCK, pack_clock(Clock(2_000_000_000, 1_999_999_000, 250)), 2))
    until(lambda: catalogue.AGENT_CLOCK_OFFSET.name in agent.server.gauges())
    assert agent.server.gauges() == {
        catalogue.AGENT_COLLECTORS.name: [({"state": "active", "sampling": "untold"}, 1.0)],
        catalogue.AGENT_CLOCK_OFFSET.name: [({}, 1e-6)],
        catalogue.AGENT_CLOCK_UNCERTAINTY.name: [({}, 2.5e-7)],
        catalogue.AGENT_FRAME_MEMORY.name: [({}, 0.0)],
    }
    assert agent.counts.value(catalogue.AGENT_STAMPS_DROPPED) == 12
    assert _goodbye(peer, 3) == DONE
    until(lambda: agent.server.gauges()[catalogue.AGENT_COLLECTORS.name] == [])


def test_a_server_knows_when_nobody_can_reach_it(tmp_path: Path) -> None:
    """A cleaner of folders removes the socket, or something else stands there, which the agent then leaves alone."""
    path = tmp_path / "s"
    server = AgentServer(path, _Collected(), ManualClock(), AgentCounts())
    assert server.problem() == "the agent does not listen"
    server.start()
    assert server.problem() == ""
    path.rename(tmp_path / "moved")
    assert server.problem() == f"{path} is gone; restart the agent"
    path.write_text("mine")
    assert server.problem() == f"another file stands at {path}; restart the agent"
    server.stop()
    assert server.problem() == "the agent does not listen"
    assert path.read_text() == "mine"


def test_a_group_may_be_let_in(tmp_path: Path) -> None:
    """Group and mode of the socket; a group that does not exist is refused by name."""
    gid = tmp_path.stat().st_gid
    server = AgentServer(tmp_path / "s", _Collected(), ManualClock(), AgentCounts(), access=Access.of_group(str(gid)))
    server.start()
    found = (tmp_path / "s").stat()
    assert (found.st_mode & 0o777, found.st_gid) == (0o660, gid)
    server.stop()
    with pytest.raises(Exception, match="there is no group 'nobody-has-this'"):
        Access.of_group("nobody-has-this")

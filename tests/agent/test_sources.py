"""Two connections of one process, kernels on one, on the other where they come from: spans get the lasting name."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import DONE, Frame, Header, pack_frame, pack_names, pack_text
from spanlite.agent.jit_teller import Teller
from spanlite.agent.kernelsource import KernelSource, SourceTable
from spanlite.agent.process import TracedProcess
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.agent.sources import ProcessSources
from spanlite.contract.codec import decode_batch
from spanlite.contract.errors import FrameError
from spanlite.runtime.clock import ManualClock, SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.agent.collector.program import until
from tests.agent.playing import HELLO, rows, take
from tests.agent.records import kernel

SOURCE = KernelSource(name="triton_poi_fused_add_3", kind="inductor", source="00112233445566ff")
TELLER = {"cupti_version": "0", "session": "00000000000000cd"}


def _connection(said: dict[str, str], sources: ProcessSources) -> TracedProcess:
    hello = pack_text(said)
    header = Header(Frame.HELLO, len(hello), 0)
    return TracedProcess.from_hello(header, hello, 4711, ManualClock(), AgentCounts(), sources=sources)


def test_a_kernel_s_span_has_the_name_that_lasts() -> None:
    """Full name and label both: a series of the numbered name would end with the next compilation."""
    table = SourceTable()
    teller = _connection(TELLER, ProcessSources(table, 4711))
    assert take(teller, [(Frame.KERNEL_SOURCE, pack_text(SOURCE.said())), (Frame.BYE, b"")]) == []
    assert list(teller.finish()) == []
    traced = _connection(HELLO, ProcessSources(table, 4711))
    names = {0x10: "triton_poi_fused_add_3", 0x20: "gemm"}
    records = kernel(1000, 2000, 1, name=0x10) + kernel(3000, 4000, 2, name=0x20)
    batches = take(traced, [(Frame.NAMES, pack_names(names)), (Frame.BUFFER, records)]) + list(traced.finish())
    found = rows(batches)
    assert found["name"].tolist() == ["inductor:triton_poi_fused_add:00112233", "gemm"]
    assert found["kernel"].tolist() == ["inductor:triton_poi_fused_add:00112233", "gemm"]


def test_a_later_process_of_the_same_number_starts_afresh() -> None:
    """Its first word forgets the other's; a connection that says nothing of kernels forgets nothing."""
    table = SourceTable()
    ProcessSources(table, 7).take(pack_text(SOURCE.said()))
    silent = ProcessSources(table, 7)
    assert silent.lasting(SOURCE.name) == SOURCE.stable_name
    other = KernelSource(name="k", kind="triton", function="m:k")
    later = ProcessSources(table, 7)
    later.take(pack_text(other.said()))
    assert (silent.lasting(SOURCE.name), silent.lasting("k")) == (SOURCE.name, "triton:m:k")
    later.take(pack_text(SOURCE.said()))
    assert (silent.lasting(SOURCE.name), silent.lasting("k")) == (SOURCE.stable_name, "triton:m:k")


def test_a_source_of_no_kernel_is_refused() -> None:
    """The peer is hung up on, as for any malformed frame."""
    with pytest.raises(FrameError, match="KERNEL_SOURCE says no kernel") as caught:
        ProcessSources(SourceTable(), 1).take(b"")
    assert caught.value.reason == "kernel_source"


def test_a_running_agent_joins_the_two_connections_of_a_process(tmp_path: Path) -> None:
    """The hook's own connection and a collector's, from one process, through a real agent: the span has the name."""
    broker, counts, clock = MemoryBroker(), AgentCounts(), SystemClock()
    server = AgentServer(tmp_path / "a.sock", MemoryProducer(broker), clock, counts)
    server.start()
    teller = Teller({"SPANLITE_SOCKET": str(tmp_path / "a.sock")}, clock)
    teller.tell(SOURCE)
    until(lambda: server._sources.of(os.getpid())(SOURCE.name) != SOURCE.name, "the source at the agent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(tmp_path / "a.sock"))
        now = clock.unix_ns()
        frames = [
            (Frame.HELLO, pack_text(HELLO)),
            (Frame.NAMES, pack_names({0x10: SOURCE.name})),
            (Frame.BUFFER, kernel(now, now + 1000, 1, name=0x10)),
            (Frame.BYE, b""),
        ]
        peer.sendall(b"".join(pack_frame(kind, payload, number) for number, (kind, payload) in enumerate(frames)))
        assert peer.recv(1) == DONE
    teller.stop()
    server.stop()
    assert server.failures == []
    found = rows(decode_batch(one.value) for one in MemoryConsumer(broker, SPANS_TOPIC).poll(1 << 30, 0))
    assert found["name"].tolist() == [SOURCE.stable_name]

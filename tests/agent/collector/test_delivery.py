"""What CUPTI is handed back reaches the agent: the same bytes, the same spans, each once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Frame, pack_names, unpack_clock, unpack_names
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.contract import catalogue
from spanlite.contract.codec import decode_batch
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.agent.collector.building import Built
from tests.agent.collector.program import Program, until
from tests.agent.collector.recorded import Fired, fired
from tests.agent.collector.tap import Tap
from tests.agent.playing import ordered, process, rows, take

RECORDINGS = ("serve-cupti130001", "serve-cupti130500", "graph-cupti130500", "streams-cupti130500")
_OF_PROCESSES = ("trace", "span", "gpu")


def _whole(program: Program, what: Fired, folder: Path) -> None:
    """Fires a recording from the first context to the last flush."""
    names, records = what.put(folder)
    program.start(f"set version {what.version}", names)
    program.ask("context")
    assert program.number(records) == len(what.records)
    program.ask("flush")


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_bytes_that_arrive_are_those_that_were_fired(built: Built, tap: Tap, tmp_path: Path, name: str) -> None:
    """A record that is lost, doubled, cut or moved between buffers of 64 KiB would show."""
    what = fired(name, built.arena)
    with Program(built, tap.path, SPANLITE_BUFFER_KIB="64") as program:
        _whole(program, what, tmp_path)
        until(lambda: bool(tap.connections) and len(tap.connections[0].bytes) == len(what.records), "delivery")
        program.ended_well()
    (connection,) = tap.connections
    until(lambda: connection.over, "the end of the connection")
    assert connection.bytes == what.records
    assert connection.names() == what.names
    assert [sequence for _, sequence, _ in connection.frames] == list(range(len(connection.frames)))
    assert tap.dropped() == {}
    assert connection.kinds[0] == Frame.HELLO
    assert connection.kinds[-1] == Frame.BYE
    assert connection.kinds.index(Frame.CLOCK) < connection.kinds.index(Frame.BUFFER)


def test_each_name_comes_once_and_before_its_records(built: Built, tap: Tap, tmp_path: Path) -> None:
    """The agent decodes a buffer when it comes: a name that followed would be too late."""
    what = fired("serve-cupti130500", built.arena)
    with Program(built, tap.path, SPANLITE_BUFFER_KIB="64") as program:
        _whole(program, what, tmp_path)
        until(lambda: bool(tap.connections) and len(tap.connections[0].bytes) == len(what.records), "delivery")
        program.ended_well()
    (connection,) = tap.connections
    until(lambda: connection.over, "the end of the connection")
    known: list[int] = []
    for kind, _, payload in connection.frames:
        if kind == Frame.NAMES:
            known += [pointer for pointer, _ in unpack_names(payload)]
        elif kind == Frame.BUFFER:
            kernels = [at for at in _records(payload) if payload[at] == 10]
            pointers = {int.from_bytes(payload[at + 104 : at + 112], "little") for at in kernels}
            assert pointers <= set(known)
    assert len(known) == len(set(known))


def _records(payload: bytes) -> list[int]:
    sizes = {1: 112, 2: 104, 5: 40, 10: 248, 12: 56, 38: 56, 39: 24}
    at, found = 0, []
    while at < len(payload):
        found.append(at)
        at += sizes[payload[at]]
    return found


def test_hello_says_who_the_process_is(built: Built, tap: Tap) -> None:
    """CUPTI's version, every device under the uuid that DCGM gives it, resource attributes, the state."""
    more = {"OTEL_SERVICE_NAME": "chat", "OTEL_RESOURCE_ATTRIBUTES": "workload=decode,bad,k8s.pod.name=a-0"}
    with Program(built, tap.path, **more) as program:
        program.start().ask("context")
        until(lambda: bool(tap.connections and tap.connections[0].frames), "HELLO")
        program.ended_well()
    said = tap.connections[0].hello
    assert len(said.pop("session")) == 16
    assert said == {
        "cupti_version": "130500",
        "gpu.0.uuid": "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
        "gpu.0.name": "Mock 0",
        "gpu.0.pci_bus_id": "0000:00:00.0",
        "gpu.0.compute_major": "9",
        "gpu.0.compute_minor": "0",
        "gpu.0.multiprocessors": "132",
        "gpu.1.uuid": "MIG-ff111213-1415-1617-1819-1a1b1c1d1e1f",
        "gpu.1.name": "Mock 1",
        "gpu.1.pci_bus_id": "0000:01:00.0",
        "gpu.1.compute_major": "9",
        "gpu.1.compute_minor": "0",
        "gpu.1.multiprocessors": "132",
        "resource.process.executable.name": built.executable,
        "resource.service.name": "chat",
        "resource.workload": "decode",
        "resource.k8s.pod.name": "a-0",
        "resource.cupti.path": str(built.cupti),
        "resource.spanlite.collector.state": "active",
        "resource.spanlite.collector.sampling": "full",
    }


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_agent_makes_the_spans_of_the_records(built: Built, place: Path, tmp_path: Path, name: str) -> None:
    """Through a real agent, what comes out equals the recorded buffers decoded without a collector; no span is lost."""
    what = fired(name, built.arena)
    broker, counts = MemoryBroker(), AgentCounts()
    server = AgentServer(place, MemoryProducer(broker), SystemClock(), counts)
    server.start()
    with Program(built, place) as program:
        _whole(program, what, tmp_path)
        until(lambda: counts.value(catalogue.AGENT_SPANS_RECEIVED) >= what.spans, "delivery")
        program.ended_well()
    server.stop()
    assert server.failures == []
    batches = [decode_batch(record.value) for record in MemoryConsumer(broker, SPANS_TOPIC).poll(1 << 30, 0)]
    direct = process({"cupti_version": str(what.version)})
    expected = take(direct, [(Frame.NAMES, pack_names(what.names)), (Frame.BUFFER, what.records)])
    expected += list(direct.finish())
    found, wanted = ordered(rows(batches)), ordered(rows(expected))
    for column in wanted.keys() - set(_OF_PROCESSES):
        np.testing.assert_array_equal(found[column], wanted[column], err_msg=column)
    ranges = counts.value(catalogue.AGENT_SPANS_RECEIVED) - what.spans
    assert ranges == int((wanted["range_number"] >= 0).sum())
    assert counts.value(catalogue.AGENT_SPANS_SENT) == counts.value(catalogue.AGENT_SPANS_RECEIVED)


def test_the_clock_is_bracketed(built: Built, tap: Tap) -> None:
    """The reading of CUPTI's clock (here the wall clock) lies within its own uncertainty of the wall clock's."""
    with Program(built, tap.path) as program:
        program.start().ask("context")
        until(lambda: bool(tap.connections and tap.connections[0].of(Frame.CLOCK)), "CLOCK")
        program.ended_well()
    reading = unpack_clock(tap.connections[0].of(Frame.CLOCK)[0])
    assert abs(reading.cupti_ns - reading.unix_ns) <= reading.uncertainty_ns + 1


def test_a_program_that_uses_no_gpu_is_not_troubled(built: Built, tap: Tap) -> None:
    """cuInit alone: subscribed, but no thread and no connection until there is a context."""
    with Program(built, tap.path) as program:
        program.start()
        assert program.ask("state") == "waiting"
        assert program.number("tasks") == 1
        assert program.number("sockets") == 0
        program.ended_well()
    assert tap.connections == []

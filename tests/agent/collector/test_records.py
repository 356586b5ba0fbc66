"""Records, names and buffers out of the ordinary: what is no span is counted, the rest arrives."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Frame, unpack_names
from spanlite.agent.server import AgentServer
from spanlite.contract import catalogue
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryProducer
from tests.agent.collector.building import Built
from tests.agent.collector.kernels import KERNEL_BYTES, PER_BUFFER, SMALL, delivered, ended_quietly, kernels, put, told
from tests.agent.collector.program import Program, until
from tests.agent.collector.recorded import fired
from tests.agent.collector.tap import Tap
from tests.agent.records import kernel


def test_records_that_cupti_dropped_are_counted(built: Built, tap: Tap, tmp_path: Path) -> None:
    """What CUPTI says it lost is told under its reason, once."""
    with Program(built, tap.path) as program:
        program.start().ask("context")
        program.ask("set dropped 7")
        program.ask(f"fire {put(tmp_path, kernels(3))}")
        program.ask("flush")
        until(lambda: delivered(tap) == 3 and told(tap, "dropped.cupti"), "delivery and STATS")
        ended_quietly(program)
    assert tap.dropped() == {"dropped.cupti": 7}


def test_impossible_times_pass_through_and_are_counted_by_the_agent(built: Built, place: Path, tmp_path: Path) -> None:
    """Zero times, a kernel without an end as a forced flush gives it, 2^63, an end before the start: none is a span."""
    now = SystemClock().unix_ns()
    bad = [(0, 0), (now, 0), (1 << 63, (1 << 63) + 5), (now, now - 5), (now, now)]
    records = b"".join(kernel(start, end, at) for at, (start, end) in enumerate(bad, 1)) + kernels(4, first=10)
    counts = AgentCounts()
    server = AgentServer(place, MemoryProducer(MemoryBroker()), SystemClock(), counts)
    server.start()
    with Program(built, place) as program:
        program.start().ask("context")
        program.ask(f"fire {put(tmp_path, records.replace(struct.pack('<Q', 0x10), struct.pack('<Q', 0)))}")
        program.ask("flush")
        program.ended_well()
    server.stop()
    assert server.failures == []
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 9
    assert counts.value(catalogue.AGENT_SPANS_SENT) == 4
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {
        "zero_timestamp": 2,
        "sentinel": 1,
        "negative_duration": 1,
        "zero_duration": 1,
    }


def test_a_buffer_that_turns_into_rubbish_is_cut_there(built: Built, tap: Tap, tmp_path: Path) -> None:
    """Whole records arrive, the bytes behind them are counted as the kernels that they might have been."""
    rubbish = b"\xff" * (2 * KERNEL_BYTES + 8)
    with Program(built, tap.path) as program:
        program.start().ask("context")
        program.ask(f"fire {put(tmp_path, kernels(5) + rubbish)}")
        program.ask("flush")
        until(lambda: delivered(tap) == 5 and told(tap, "dropped.broken_buffer"), "delivery and STATS")
        ended_quietly(program)
    assert tap.dropped() == {"dropped.broken_buffer": 3}


def test_a_name_that_changes_under_its_address_is_sent_again(built: Built, tap: Tap, tmp_path: Path) -> None:
    """A module is unloaded and another takes its memory: each buffer comes after the name that it had then."""
    at = built.arena
    with Program(built, tap.path) as program:
        program.start(f"arena {at} {put(tmp_path, b'first' + bytes(91))}").ask("context")
        path = put(tmp_path, kernels(2, name=at))
        until(lambda: bool(tap.connections and tap.connections[0].of(Frame.CLOCK)), "CLOCK")
        tap.reading.clear()  # all of them wait in the queue before the first is sent
        for text in ("first", "second", "first"):
            program.ask(f"poke {at} {text}")
            program.ask(f"fire {path}")
            program.ask("flush")
        tap.reading.set()
        until(lambda: delivered(tap) == 6, "delivery")
        ended_quietly(program)
    story: list[str | int] = []
    for kind, _, payload in tap.connections[0].frames:
        if kind == Frame.NAMES:
            story += [name for _, name in unpack_names(payload)]
        elif kind == Frame.BUFFER:
            story.append(len(payload) // KERNEL_BYTES)
    assert story == ["first", 2, "second", 2, "first", 2]


def test_cupti_that_holds_the_whole_pool_gets_scratch_and_never_nothing(built: Built, tap: Tap, tmp_path: Path) -> None:
    """With the pool and the scratch gone, requests are answered all the same; what lands there is counted as lost."""
    with Program(built, tap.path, **SMALL) as program:
        program.start().ask("context")
        program.ask("hold 4")
        taken = program.number(f"fire {put(tmp_path, kernels(2 * PER_BUFFER))}") // KERNEL_BYTES
        program.ask("flush")
        until(lambda: told(tap, "dropped.collector_pool"), "STATS")
        assert taken == 2 * PER_BUFFER
        program.ask("hold 100")
        program.ask("release")
        program.ask("hold 4")
        program.ask(f"fire {tmp_path / 'records0'}")
        program.ask("flush")
        program.ask("release")
        program.ask(f"fire {put(tmp_path, kernels(6))}")
        program.ask("flush")
        until(lambda: delivered(tap) == 6, "delivery once the pool is back")
        assert program.ask("get completed_null") != "0"
        ended_quietly(program)
    assert tap.dropped() == {"dropped.collector_pool": 4 * PER_BUFFER}


def test_many_threads_complete_buffers_at_once(built: Built, tap: Tap, tmp_path: Path) -> None:
    """Eight threads: nothing is lost or doubled, each name comes before all of its records."""
    what = fired("streams-cupti130500", built.arena)
    names, _ = what.put(tmp_path)
    with Program(built, tap.path, SPANLITE_BUFFER_KIB="64", SPANLITE_POOL_KIB="262144") as program:
        program.start(names).ask("context")
        assert program.number(f"threads 8 {tmp_path / 'records'} 5") == 40 * len(what.records)
        program.ask("flush")
        until(lambda: bool(tap.connections) and len(tap.connections[0].bytes) == 40 * len(what.records), "delivery")
        ended_quietly(program)
    assert tap.dropped() == {}
    assert tap.connections[0].names() == what.names


@pytest.mark.parametrize(
    ("version", "size"),
    [(24, 208), (26, 208), (27, 208), (28, 208), (130000, 216), (130100, 224), (130300, 232), (130400, 248)],
)
def test_records_of_older_layouts_arrive_whole(
    built: Built, place: Path, tmp_path: Path, version: int, size: int
) -> None:
    """A kernel record is as long as its CUPTI makes it: the agent, told the version, reads each of them."""
    records = kernels(300)
    cut = b"".join(records[at : at + size] for at in range(0, len(records), KERNEL_BYTES))
    counts = AgentCounts()
    server = AgentServer(place, MemoryProducer(MemoryBroker()), SystemClock(), counts)
    server.start()
    with Program(built, place, SPANLITE_BUFFER_KIB="16") as program:
        program.start(f"set version {version}").ask("context")
        assert program.number(f"fire {put(tmp_path, cut)}") == 300 * size
        program.ask("flush")
        until(lambda: counts.value(catalogue.AGENT_SPANS_SENT) == 300, "delivery")
        ended_quietly(program)
    server.stop()
    assert server.failures == []


def test_no_clock_is_registered_with_cupti(built: Built, tap: Tap, tmp_path: Path) -> None:
    """Registering one spoils the first records of each session in some releases; ours begins three times here."""
    path = put(tmp_path, kernels(2))
    with Program(built, tap.path) as program:
        program.start().ask("context")
        for _ in range(2):
            program.ask(f"fire {path}")
            program.ask("pause")
            program.ask("resume")
        program.ask(f"fire {path}")
        program.ask("flush")
        until(lambda: delivered(tap) == 6, "delivery")
        assert program.ask("get clocks") == "0"
        ended_quietly(program)


def test_a_buffer_that_cupti_withholds_is_waited_for_and_never_forced_out(
    built: Built, tap: Tap, tmp_path: Path
) -> None:
    """A plain flush gives nothing back while a kernel runs that the buffer has a record of: a later one does."""
    with Program(built, tap.path) as program:
        program.start("set withhold 1000000").ask("context")
        program.ask(f"fire {put(tmp_path, kernels(5))}")
        before = program.number("get flushes")
        until(lambda: program.number("get flushes") >= before + 3, "flushes that give nothing")
        assert delivered(tap) == 0
        program.ask("set withhold 0")
        until(lambda: delivered(tap) == 5, "delivery")
        ended_quietly(program)
    assert tap.dropped() == {}


def test_cupti_is_asked_for_drops_without_a_lock(built: Built, tap: Tap, tmp_path: Path) -> None:
    """While CUPTI answers, another thread completes a buffer: a lock that both take would stop the program for ever."""
    with Program(built, tap.path) as program:
        program.start().ask("context")
        program.ask("set nested 1")
        program.ask(f"fire {put(tmp_path, kernels(3))}")
        program.ask("flush")
        until(lambda: delivered(tap) == 3, "delivery")
        assert program.ask("get nested") == "0"
        ended_quietly(program)

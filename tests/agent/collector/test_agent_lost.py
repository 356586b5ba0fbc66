"""An agent that is absent, hangs, or restarts: memory stays bounded and each lost span is told under its reason."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Frame
from spanlite.agent.server import AgentServer
from spanlite.contract import catalogue
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryProducer
from tests.agent.collector.building import Built
from tests.agent.collector.kernels import KERNEL_BYTES, PER_BUFFER, SMALL, delivered, ended_quietly, kernels, put, told
from tests.agent.collector.program import Program, until
from tests.agent.collector.recorded import fired, spans_in
from tests.agent.collector.tap import Tap


def _has_clock(tap: Tap) -> bool:
    return bool(tap.connections and tap.connections[0].of(Frame.CLOCK))


def _has_come(tap: Tap, spans: int) -> bool:
    return delivered(tap) == spans


def test_without_an_agent_spans_are_counted_and_told_to_the_one_that_comes(
    built: Built, place: Path, tmp_path: Path
) -> None:
    """Nobody listens, then somebody does: fired = delivered + dropped, and the names come along again."""
    at = built.arena
    with Program(built, place) as program:
        program.start(f"arena {at} {put(tmp_path, b'gemm' + bytes(92))}").ask("context")
        program.ask(f"fire {put(tmp_path, kernels(50, name=at))}")
        program.ask("flush")
        program.ask(f"fire {put(tmp_path, kernels(8, name=at))}")
        tap = Tap(place)
        until(lambda: told(tap, "dropped.no_agent") or delivered(tap) > 0, "the first word to the agent")
        program.ask("flush")
        until(lambda: delivered(tap) + tap.dropped().get("dropped.no_agent", 0) == 58, "everything told")
        program.ask(f"fire {put(tmp_path, kernels(4, name=at))}")
        program.ask("flush")
        ended_quietly(program)
    until(lambda: tap.connections[0].over, "the end of the connection")
    tap.stop()
    assert delivered(tap) + tap.dropped().get("dropped.no_agent", 0) == 62
    assert tap.connections[0].names() == {at: "gemm"}


@pytest.mark.parametrize("name", ["serve-cupti130500", "streams-cupti130500"])
def test_copies_and_memory_sets_count_as_lost_like_kernels(
    built: Built, place: Path, tmp_path: Path, name: str
) -> None:
    """Recordings with all kinds, fired while nobody listens: lost and delivered make up what the recording holds."""
    what = fired(name, built.arena)
    names, records = what.put(tmp_path)
    with Program(built, place) as program:
        program.start(names).ask("context")
        program.ask(records)
        program.ask("flush")
        tap = Tap(place)
        until(lambda: told(tap, "dropped.no_agent") or bool(tap.connections and tap.connections[0].bytes), "a word")
        program.ask("flush")
        program.ended_well()
    until(lambda: tap.connections[0].over, "the end of the connection")
    tap.stop()
    delivered_spans = sum(spans_in(one.bytes, what.version) for one in tap.connections)
    assert delivered_spans + tap.dropped().get("dropped.no_agent", 0) == what.spans


def test_an_agent_that_hangs_costs_memory_up_to_the_pool_and_no_more(built: Built, tap: Tap, tmp_path: Path) -> None:
    """It reads nothing while 40 MiB are fired into a pool of 256 KiB: what is over is dropped and counted."""
    path = put(tmp_path, kernels(PER_BUFFER))
    tap.reading.clear()
    with Program(built, tap.path, **SMALL, SPANLITE_HUNG_MS="3600000") as program:
        program.start().ask("context")
        before = program.number("rss")
        fires = program.number(f"fire {path} 640") // KERNEL_BYTES
        program.ask("flush")
        assert program.number("rss") - before < 256 + 4096
        tap.reading.set()
        until(lambda: delivered(tap) + tap.dropped().get("dropped.agent_slow", 0) == fires, "everything told")
        assert program.number("get requests") >= 640
        ended_quietly(program)
    assert fires == 640 * PER_BUFFER
    assert tap.dropped().keys() == {"dropped.agent_slow"}
    assert delivered(tap) >= PER_BUFFER


@pytest.mark.parametrize("spans", [8 * PER_BUFFER, 5], ids=["more than the socket holds", "less"])
def test_an_agent_that_hangs_is_left_and_the_next_connection_is_a_new_session(
    built: Built, tap: Tap, tmp_path: Path, spans: int
) -> None:
    """After the patience the collector hangs up: what it counts as lost is no frame, and all begins anew."""
    tap.reading.clear()
    big = put(tmp_path, kernels(spans))
    with Program(built, tap.path, SPANLITE_HUNG_MS="50") as program:
        program.start().ask("context")
        program.ask(f"fire {big}")
        program.ask("flush")
        until(lambda: len(tap.connections) >= 2, "a second connection")
        tap.reading.set()
        until(lambda: told(tap, "dropped.agent_hung"), "STATS")
        program.ask(f"fire {put(tmp_path, kernels(3))}")
        program.ask("flush")
        until(lambda: len(tap.connections[-1].of(Frame.BUFFER)) > 0, "the next buffer")
        ended_quietly(program)
    assert delivered(tap) + tap.dropped()["dropped.agent_hung"] == spans + 3
    assert len({found.hello["session"] for found in tap.connections if found.frames}) > 1


def test_an_agent_that_restarts_gets_names_and_clock_again(built: Built, place: Path, tmp_path: Path) -> None:
    """A new agent knows nothing: HELLO, CLOCK and all names come before the next buffer."""
    at = built.arena
    path = put(tmp_path, kernels(3, name=at))
    with Program(built, place) as program:
        program.start(f"arena {at} {put(tmp_path, b'gemm' + bytes(92))}").ask("context")
        sessions = set()
        for _ in range(3):
            tap = Tap(place)
            until(partial(_has_clock, tap), "CLOCK")
            program.ask(f"fire {path}")
            program.ask("flush")
            until(partial(_has_come, tap, 3), "delivery")
            tap.stop()
            sessions.add(tap.connections[0].hello["session"])
            kinds = tap.connections[0].kinds
            assert [kind for kind in kinds if kind != Frame.STATS][:4] == [
                Frame.HELLO,
                Frame.CLOCK,
                Frame.NAMES,
                Frame.BUFFER,
            ]
        assert len(sessions) == 3
        ended_quietly(program)


def test_what_an_agent_had_not_read_when_it_died_is_lost_and_told(built: Built, place: Path, tmp_path: Path) -> None:
    """The socket took the buffer, the agent did not: it counts as lost, and the next agent hears of it."""
    tap = Tap(place)
    with Program(built, place) as program:
        program.start().ask("context")
        until(lambda: _has_clock(tap), "CLOCK")
        tap.reading.clear()
        program.ask(f"fire {put(tmp_path, kernels(5))}")
        program.ask("flush")
        until(lambda: program.number("unread") > 5 * KERNEL_BYTES, "the buffer in the socket")
        tap.vanish()
        after = Tap(place)
        until(lambda: told(after, "dropped.disconnect"), "STATS")
        ended_quietly(program)
    after.stop()
    assert after.dropped() == {"dropped.disconnect": 5}
    assert delivered(tap) == 0


def test_what_is_left_at_the_exit_is_counted(built: Built, tap: Tap, tmp_path: Path) -> None:
    """More than can be sent in a fraction of a second: delivered and dropped make up all, the last STATS says so."""
    path = put(tmp_path, kernels(66))
    with Program(built, tap.path, SPANLITE_BUFFER_KIB="16", SPANLITE_FLUSH_MS="0") as program:
        program.start().ask("context")
        until(lambda: bool(tap.connections and tap.connections[0].of(Frame.CLOCK)), "CLOCK")
        fires = program.number(f"fire {path} 3000") // KERNEL_BYTES
        program.ended_well()
    until(lambda: tap.connections[0].over, "the end of the connection")
    assert delivered(tap) + sum(tap.dropped().values()) == fires
    assert told(tap, "dropped.process_exit")


def test_stats_are_lines_that_the_agent_reads(built: Built, place: Path, tmp_path: Path) -> None:
    """Received = sent + dropped in a real agent, with spans that were lost before it was there."""
    counts = AgentCounts()
    server = AgentServer(place, MemoryProducer(MemoryBroker()), SystemClock(), counts)
    with Program(built, place) as program:
        program.start().ask("context")
        program.ask("set dropped 11")
        program.ask(f"fire {put(tmp_path, kernels(20))}")
        program.ask("flush")
        server.start()
        until(lambda: counts.value(catalogue.AGENT_SPANS_RECEIVED) == 31, "everything told")
        ended_quietly(program)
    server.stop()
    assert server.failures == []
    sent, dropped = counts.value(catalogue.AGENT_SPANS_SENT), counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    assert sent + sum(dropped.values()) == 31
    assert dropped["cupti"] == 11

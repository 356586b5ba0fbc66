"""Ranges that the program marks: stamps that put each launch into its stage, at any nesting and from any thread."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import STAMP, Frame, unpack_names
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.contract import catalogue
from spanlite.contract.codec import decode_batch
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.agent.collector.building import Built, library
from tests.agent.collector.program import Program, until
from tests.agent.collector.tap import Connection, Tap
from tests.agent.playing import rows
from tests.agent.records import kernel

STEPS = ("push outer", "launch", "pushex in a", "launch", "launch", "pop", "launch", "pushreg reg", "launch")
MORE = ("pushdomain dom", "launch", "popdomain", "launch", "pop", "launch", "pop", "launch")
STAGES = ["outer", "in a", "in a", "outer", "reg", "dom", "reg", "outer", ""]


def _stamps(connection: Connection) -> list[tuple[str, int]]:
    """(name, delta) of every stamp, in order."""
    names = {pointer: name for payload in connection.of(Frame.NAMES) for pointer, name in unpack_names(payload)}
    raw = np.concatenate([np.zeros(0, STAMP), *(np.frombuffer(one, STAMP) for one in connection.of(Frame.RANGES))])
    assert (raw["correlation"] > 0).all()
    assert (np.diff(raw["time_ns"]) >= 0).all()
    return [
        (names.get(name, ""), delta) for name, delta in zip(raw["name"].tolist(), raw["delta"].tolist(), strict=True)
    ]


def _with_ranges(program: Program, *before: str) -> Program:
    program.start(*before)
    assert program.ask(f"nvtx {program.built.collector}") == "1"
    program.ask("context")
    return program


def test_launches_get_the_stage_they_lie_in(built: Built, place: Path, tmp_path: Path) -> None:
    """Every way to push and pop, nested: a real agent gives each kernel the name of its innermost range."""
    broker, counts = MemoryBroker(), AgentCounts()
    server = AgentServer(place, MemoryProducer(broker), SystemClock(), counts)
    server.start()
    now = SystemClock().unix_ns()
    with Program(built, place) as program:
        _with_ranges(program)
        answers = [(step, program.number(step)) for step in STEPS + MORE]
        ids = [answer for step, answer in answers if step == "launch"]
        records = b"".join(kernel(now + 10 * at, now + 10 * at + 5, launch, name=0) for at, launch in enumerate(ids))
        (tmp_path / "records").write_bytes(records)
        program.ask(f"fire {tmp_path / 'records'}")
        program.ask("flush")
        until(lambda: counts.value(catalogue.AGENT_SPANS_RECEIVED) >= len(ids), "delivery")
        program.ended_well()
    server.stop()
    assert server.failures == []
    depths = [answer for step, answer in answers if step != "launch"]
    assert depths == [0, 1, 1, 1, 2, 2, 1, 0]
    found = rows(decode_batch(one.value) for one in MemoryConsumer(broker, SPANS_TOPIC).poll(1 << 30, 0))
    work = found["range_number"] < 0
    stages = dict(zip(found["correlation"][work].tolist(), found["stage"][work].tolist(), strict=True))
    assert [stages[launch] for launch in ids] == STAGES
    assert sorted(found["name"][~work].tolist()) == ["dom", "in a", "outer", "reg"]


def test_ranges_before_cuda_make_no_stamps_and_nest_all_the_same(built: Built, tap: Tap) -> None:
    """A range that opens before cuInit and closes after it, around one that is stamped: only the inner one is sent."""
    with Program(built, tap.path) as program:
        program.ask(f"preload {built.cuda}")
        program.ask(f"preload {built.cupti}")
        assert program.ask(f"nvtx {built.collector}") == "1"
        assert program.ask("push early") == "0"
        assert program.ask(f"init {built.collector}") == "1"
        program.ask("context")
        assert [program.ask(step) for step in ("push inner", "pop", "pop", "push late", "pop")] == list("11000")
        until(lambda: bool(tap.connections) and len(_stamps(tap.connections[0])) == 4, "stamps")
        program.ended_well()
    assert _stamps(tap.connections[0]) == [("inner", 1), ("", -1), ("late", 1), ("", -1)]


def test_pops_without_a_push_and_endless_pushes_are_borne(built: Built, tap: Tap) -> None:
    """Stray pops make no stamp; of ranges nested 70 deep the outer 64 are stamped, and closings match openings."""
    with Program(built, tap.path) as program:
        _with_ranges(program)
        assert [program.ask("pop") for _ in range(3)] == ["0"] * 3
        for at in range(70):
            assert program.number(f"push r{at}") == at
        for at in range(70):
            assert program.number("pop") == 69 - at
        until(lambda: bool(tap.connections) and len(_stamps(tap.connections[0])) == 128, "stamps")
        program.ended_well()
    assert _stamps(tap.connections[0]) == [(f"r{at}", 1) for at in range(64)] + [("", -1)] * 64


def test_a_stamp_names_process_and_thread_and_a_text_has_one_pointer(built: Built, tap: Tap) -> None:
    """The same text, pushed twice, is sent once, under a pointer that no address can equal."""
    with Program(built, tap.path) as program:
        _with_ranges(program)
        for _ in range(2):
            program.ask("push step")
            program.ask("pop")
        until(lambda: bool(tap.connections) and len(_stamps(tap.connections[0])) == 4, "stamps")
        raw = np.frombuffer(b"".join(tap.connections[0].of(Frame.RANGES)), STAMP)
        assert set(raw["thread"].tolist()) == {program.child.pid << 32 | program.child.pid}
        program.ended_well()
    (pointer,) = set(raw["name"].tolist()) - {0}
    assert pointer >> 63 == 1
    names = [one for payload in tap.connections[0].of(Frame.NAMES) for one in unpack_names(payload)]
    assert names == [(pointer, "step")]


def test_more_stamps_than_the_ring_holds_keep_their_nesting(built: Built, tap: Tap) -> None:
    """An agent that hangs while 200,000 stamps are made: what is lost is told, and what arrives pairs up."""
    tap.reading.clear()
    with Program(built, tap.path, SPANLITE_HUNG_MS="3600000") as program:
        _with_ranges(program)
        program.ask("bench 100000")
        tap.reading.set()
        until(lambda: "stamps_dropped" in tap.dropped(), "STATS")
        dropped = tap.dropped()["stamps_dropped"]
        until(lambda: len(_stamps(tap.connections[0])) + dropped == 200000, "the rest")
        program.ended_well()
    depth = np.cumsum([delta for _, delta in _stamps(tap.connections[0])])
    assert depth[-1] == 0
    assert set(depth.tolist()) == set(range(6))


def test_stages_can_be_switched_off(built: Built, tap: Tap) -> None:
    """SPANLITE_STAGES=0: NVTX is told that there is no tool, and no driver callback is asked for."""
    with Program(built, tap.path, SPANLITE_STAGES="0") as program:
        program.start()
        assert program.ask(f"nvtx {built.collector}") == "0"
        program.ask("context")
        assert program.ask("push a") == "-2"
        program.ended_well()


_NEXT = """
#include <stddef.h>
#include <stdint.h>
typedef void (*function)(void);
struct callbacks { size_t size; int (*get)(int, function ***, unsigned *); };
static int push(const char *text) { return text[0]; }
int InitializeInjectionNvtx2(const void *(*tables)(uint32_t)) {
  const struct callbacks *callbacks = tables(1);
  function **table;
  unsigned length;
  if (!TAKES || !callbacks->get(1, &table, &length)) return 0;
  *table[9] = (function)push;
  return 1;
}
"""


@pytest.mark.parametrize("takes", [True, False])
def test_the_tool_that_was_there_before_goes_first(
    native_built: Built, tap: Tap, tmp_path: Path, *, takes: bool
) -> None:
    """SPANLITE_NVTX_NEXT: if it takes the ranges they are its own, else they are ours."""
    (tmp_path / "next.c").write_text(_NEXT)
    after = library(tmp_path / "next.c", tmp_path / "libnext.so", f"-DTAKES={int(takes)}")
    with Program(native_built, tap.path, SPANLITE_NVTX_NEXT=str(after)) as program:
        program.start()
        assert program.ask(f"nvtx {native_built.collector}") == "1"
        assert program.number("push A") == (ord("A") if takes else 0)
        program.ended_well()


def test_python_programs_push_by_ctypes(native_built: Built, tap: Tap) -> None:
    """spanlite_push and spanlite_pop stamp as NVTX does, and unpaired or without CUDA they do nothing."""
    script = (
        "import ctypes, sys; c = ctypes.CDLL(sys.argv[1]); c.spanlite_state.restype = ctypes.c_char_p;"
        "print(c.spanlite_pop(), c.spanlite_push(b'a'), c.spanlite_push(b'b'), c.spanlite_pop(), c.spanlite_state())"
    )
    command = [sys.executable, "-c", script, str(native_built.collector)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    assert done.stdout == "0 0 1 1 b'idle'\n"
    assert tap.connections == []


def test_there_is_no_end_of_trace_contexts(native_built: Built, tap: Tap) -> None:
    """One a request, more than the texts that are kept for good: each is told once, and plain ranges go on."""
    most, chunk = 70_000, 2_000
    contexts = [f"00-{number + 1:032x}-{number + 1:016x}-01" for number in range(most)]
    with Program(native_built, tap.path) as program:
        _with_ranges(program)
        until(lambda: bool(tap.connections), "the connection")

        def came(count: int) -> bool:
            return len(_stamps(tap.connections[0])) == count

        for at in range(0, most, chunk):
            program.tell(*(line for text in contexts[at : at + chunk] for line in (f"push {text}", "pop")))
            assert program.child.stdout
            for _ in range(2 * chunk):
                program.child.stdout.readline()
            until(partial(came, 2 * (at + chunk)), "the stamps")
        program.ask("push request")
        program.ask("pop")
        program.ended_well()
    (connection,) = tap.connections
    until(lambda: connection.over, "the end of the connection")
    stamps = _stamps(connection)
    assert [name for name, delta in stamps if delta == 1] == [*contexts, "request"]
    assert tap.dropped() == {}

"""Tracing within a budget: windows, their weights, who speaks for whom. The mock numbers launches as CUPTI does."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Frame, unpack_text
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.agent.windows import unpack_windows
from spanlite.contract import catalogue
from spanlite.contract.codec import decode_batch
from spanlite.contract.columns import KERNEL, SamplingMode
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.agent.collector.building import Built
from tests.agent.collector.program import Program, until
from tests.agent.collector.recorded import fired
from tests.agent.collector.tap import Tap
from tests.agent.records import KERNEL as KERNEL_RECORD
from tests.agent.records import walk

SPEAK, REST = b"\x11", b"\x13"


@pytest.fixture
def record(native_built: Built, tmp_path: Path) -> tuple[str, str]:
    """The commands that map names, and the file of one kernel record."""
    what = fired("serve-cupti130500", native_built.arena)
    names, _ = what.put(tmp_path)
    at = next(offset for kind, offset in walk("serve-cupti130500") if kind == KERNEL_RECORD)
    path = tmp_path / "record"
    path.write_bytes(what.records[at : at + 248])
    return names, str(path)


def load(program: Program, path: str, rate: int, ms: int, spans: int) -> tuple[int, int]:
    """Launches and kernels that ran."""
    launches, kernels = program.ask(f"load {path} {rate} {ms} {spans}").split()
    return int(launches), int(kernels)


def told(tap: Tap, key: str) -> list[str]:
    """What HELLO and all STATS said under a key."""
    said = []
    for connection in tap.connections:
        for payload in [*connection.of(Frame.HELLO), *connection.of(Frame.STATS)]:
            text = unpack_text(payload)
            said += [text[name] for name in (key, f"resource.spanlite.collector.{key}") if name in text]
    return said


def test_weighted_counts_are_those_of_what_ran(native_built: Built, place: Path, record: tuple[str, str]) -> None:
    """A fifth of the time is traced; what the spans stand for and what is told as lost is what ran, within 1 %."""
    broker, counts = MemoryBroker(), AgentCounts()
    server = AgentServer(place, MemoryProducer(broker), SystemClock(), counts)
    server.start()
    with Program(native_built, place, SPANLITE_DUTY="40/200") as program:
        program.start(record[0]).ask("context")
        until(lambda: program.number("get enables") > 0, "the first window")
        kernels = load(program, record[1], 4000, 2000, 3)[1] + load(program, record[1], 1000, 1000, 3)[1]
        program.ended_well()
    server.stop()
    assert server.failures == []
    batches = [decode_batch(each.value) for each in MemoryConsumer(broker, SPANS_TOPIC).poll(1 << 30, 0)]
    spans = sum(len(batch.columns) for batch in batches)
    weight = sum(int(batch.columns.weight[batch.columns.kind == KERNEL].sum()) for batch in batches)
    lost = counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    assert set(lost) <= {"process_exit"}
    assert spans < kernels / 3
    assert weight + lost.get("process_exit", 0) == pytest.approx(kernels, rel=0.01)
    assert {batch.sampling for batch in batches} == {SamplingMode.DUTY_CYCLE}


def test_cupti_is_not_touched_before_there_is_work_and_an_agent(native_built: Built, place: Path) -> None:
    """Subscribed, it costs CUDA graphs a percent although nothing is recorded; that cannot be undone."""
    with Program(native_built, place, SPANLITE_BUDGET="1") as program:
        program.start()
        assert program.ask("state") == "waiting"
        program.ask("context")
        load_nothing = program.number("get calls")
        tap = Tap(place)
        until(lambda: bool(tap.connections), "the connection")
        assert program.number("get calls") == load_nothing == 0
        tap.say(SPEAK)
        until(lambda: program.ask("state") == "active", "tracing")
        until(lambda: program.number("get enables") > 0, "kinds")
        program.ended_well()
    tap.stop()


def test_an_agent_that_says_nothing_objects_to_nothing(native_built: Built, tap: Tap) -> None:
    """One of an older release knows no such word."""
    with Program(native_built, tap.path, SPANLITE_BUDGET="1") as program:
        program.start().ask("context")
        until(lambda: program.number("get enables") > 0, "kinds")
        assert program.ask("state") == "active"
        program.ended_well()
    assert told(tap, "state")[0] == "waiting"


def test_a_context_that_is_no_primary_one_is_found_in_the_end(native_built: Built, tap: Tap) -> None:
    """Programs of the driver's API make their own: after five seconds the agent is asked all the same."""
    with Program(native_built, tap.path, SPANLITE_BUDGET="1") as program:
        program.start()
        until(lambda: bool(tap.connections), "the connection")
        tap.say(SPEAK)
        until(lambda: program.ask("state") == "active", "tracing")
        program.ended_well()
    assert told(tap, "state")[0] == "waiting"


def test_a_quiet_program_is_traced_in_full_and_a_busy_one_in_windows(
    native_built: Built, tap: Tap, record: tuple[str, str]
) -> None:
    """Full, windows under load, full again; each window stands for what ran since the one before it."""
    with Program(native_built, tap.path, SPANLITE_BUDGET="3") as program:
        program.start(record[0]).ask("context")
        until(lambda: bool(tap.connections), "the connection")
        tap.say(SPEAK)
        until(lambda: told(tap, "sampling")[-1:] == ["full"], "full")
        load(program, record[1], 100, 500, 3)
        load(program, record[1], 30_000, 3500, 1)
        until(lambda: told(tap, "sampling")[-2:] == ["duty", "full"], "windows, and full again")
        program.ended_well()
    windows = [
        one for connection in tap.connections for part in connection.of(Frame.WINDOWS) for one in unpack_windows(part)
    ]
    modes = [int(one["mode"]) for one in windows]
    assert modes[0] == SamplingMode.FULL
    assert modes.count(SamplingMode.DUTY_CYCLE) >= 2
    assert modes[-1] == SamplingMode.FULL
    assert all(one["launched"] >= one["traced"] for one in windows)
    assert [int(one["open_ns"]) for one in windows] == sorted(int(one["open_ns"]) for one in windows)
    assert max(one["launched"] / one["traced"] for one in windows) > 2


def test_a_process_that_another_speaks_for_is_left_alone_until_it_is_called(
    native_built: Built, tap: Tap, record: tuple[str, str]
) -> None:
    """Told to rest, CUPTI is not touched, and ranges make no stamps."""
    with Program(native_built, tap.path, SPANLITE_BUDGET="1") as program:
        program.start(record[0]).ask("context")
        program.ask(f"nvtx {native_built.collector}")
        until(lambda: bool(tap.connections), "the connection")
        tap.say(REST)
        until(lambda: program.ask("state") == "resting", "rest")
        program.ask("push request")
        load(program, record[1], 5000, 1000, 1)
        program.ask("pop")
        assert program.number("get calls") == 0
        assert tap.connections[0].of(Frame.RANGES) == []
        tap.say(SPEAK)
        until(lambda: program.number("get enables") > 0, "kinds")
        program.ended_well()
    assert told(tap, "state")[0] == "waiting"
    assert "resting" in told(tap, "state")


def test_what_it_costs_is_told(native_built: Built, tap: Tap, record: tuple[str, str]) -> None:
    """A price within the budget after some seconds of work: the agent may let others of its kind be traced, too."""
    with Program(native_built, tap.path, SPANLITE_BUDGET="1") as program:
        program.start(record[0]).ask("context")
        until(lambda: bool(tap.connections), "the connection")
        tap.say(SPEAK)
        until(lambda: program.number("get enables") > 0, "kinds")
        load(program, record[1], 1000, 6500, 1)
        until(lambda: told(tap, "affordable") == ["1"], "the price")
        load(program, record[1], 30_000, 1000, 1)
        until(lambda: told(tap, "affordable") == ["1", "0"], "the price")
        program.ended_well()
    assert told(tap, "affordable") == ["1", "0"]


def test_without_an_agent_nothing_is_done(native_built: Built, place: Path, record: tuple[str, str]) -> None:
    """Nobody listens: tracing would cost and help nobody."""
    with Program(native_built, place, SPANLITE_BUDGET="1") as program:
        program.start(record[0]).ask("context")
        load(program, record[1], 1000, 1000, 1)
        assert program.number("get calls") == 0
        program.ended_well()


def test_what_ran_while_the_agent_was_away_is_lost_and_told(
    native_built: Built, place: Path, record: tuple[str, str]
) -> None:
    """The next window does not stand for it: an hour's absence would be one window's weight."""
    first = Tap(place)
    with Program(native_built, place, SPANLITE_DUTY="40/200") as program:
        program.start(record[0]).ask("context")
        until(lambda: bool(first.connections), "the first agent")
        load(program, record[1], 4000, 600, 2)
        first.stop()
        launches, kernels = load(program, record[1], 4000, 2000, 2)
        second = Tap(place)
        until(lambda: bool(second.connections), "the second agent")
        load(program, record[1], 4000, 1000, 2)
        until(lambda: second.dropped().get("dropped.no_agent", 0) > 0, "what is lost")
        program.ended_well()
    second.stop()
    windows = [
        one
        for connection in second.connections
        for part in connection.of(Frame.WINDOWS)
        for one in unpack_windows(part)
    ]
    assert max(int(one["launched"]) for one in windows) < launches / 2
    assert second.dropped()["dropped.no_agent"] > kernels / 3


def test_what_cupti_still_holds_at_the_end_is_lost_and_told(
    native_built: Built, tap: Tap, record: tuple[str, str]
) -> None:
    """A kernel that runs when the program ends keeps all records of its buffer: they are reckoned, not forgotten."""
    with Program(native_built, tap.path, SPANLITE_FLUSH_MS="0") as program:
        program.start(record[0], "set withhold 100").ask("context")
        until(lambda: bool(tap.connections), "the connection")
        launches, _ = load(program, record[1], 2000, 500, 1)
        program.ended_well()
    until(lambda: "dropped.process_exit" in tap.dropped(), "the loss")
    lost = tap.dropped()
    assert set(lost) == {"dropped.process_exit"}
    # The imitation's counter begins at 100; readings of it count as well.
    assert launches + 100 < lost["dropped.process_exit"] < launches + 110


@pytest.mark.parametrize("budget", ["full", "100"])
def test_launches_without_records_are_an_alarm_until_some_come(
    native_built: Built, tap: Tap, record: tuple[str, str], budget: str
) -> None:
    """A CUPTI that the driver does not go with is silent for ever: nobody would notice but who counts launches."""
    more = {"SPANLITE_BUDGET": budget, "SPANLITE_NO_RECORDS_MS": "300"}
    with Program(native_built, tap.path, **more) as program:
        program.start(record[0], "set withhold 1000000").ask("context")
        until(lambda: bool(tap.connections), "the connection")
        tap.say(SPEAK)
        until(lambda: program.number("get enables") > 0, "kinds")
        load(program, record[1], 3000, 2000, 1)
        until(lambda: program.ask("state") == "no_records", "the alarm")
        until(lambda: "no_records" in told(tap, "state"), "word of it")
        program.ask("set withhold 0")
        until(lambda: program.ask("state") == "active", "the end of the alarm")
        program.ended_well()
    said = told(tap, "state")
    assert said.count("no_records") == 1

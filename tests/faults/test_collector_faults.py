"""The native collector under load against agents that die, hang or come late, and programs that die or fork.

    launched = delivered + in the spool + told as dropped + what killed agents had in hand

holds for each launch; the last term is 0 where no agent was killed.
"""

from __future__ import annotations

import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.agent.collector.building import Built, build
from tests.faults.agents import until
from tests.faults.collectors import PER_BUFFER, Account, ForkedAgent, Launcher, Load, Nursery, in_spool

RATE = 2000
PATIENT = {"SPANLITE_HUNG_MS": "3600000"}


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The collector and the imitations of libcuda and libcupti."""
    return build(tmp_path_factory.mktemp("collector"))


@pytest.fixture(scope="module")
def running_nursery() -> Iterator[Nursery]:
    """A process that forks agents."""
    running = Nursery()
    yield running
    running.end()


@pytest.fixture
def nursery(running_nursery: Nursery) -> Iterator[Nursery]:
    """The same with no agent left over."""
    yield running_nursery
    running_nursery.clear()


@pytest.fixture
def socket() -> Iterator[Path]:
    """A path for the agent's socket, short enough for one."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "agent.sock"


def _under_way(agent: ForkedAgent) -> None:
    """The collector has found this agent and spans arrive."""
    until(lambda: agent.received() > 0, "spans at the agent")


def _all_told(agent: ForkedAgent, spans: int) -> None:
    """All have come, and nothing of them is in the agent's hands any more."""
    until(lambda: agent.received() == spans and agent.adds_up(), f"{spans} spans received")


def _lost_by_kills(account: Account, fired: int) -> None:
    """Each killed agent had at most one buffer in hand: the collector sends no other before one has been read."""
    assert 0 <= account.without_a_word(fired) <= account.kills * PER_BUFFER


def test_an_agent_killed_under_load_costs_one_buffer_at_most(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path
) -> None:
    """All in the spool was launched, nothing is there twice, the rest is told or was in the hands of a killed agent."""
    account, chance = Account(), random.Random(7)  # noqa: S311  # repeatable, not secret
    agent = ForkedAgent(nursery, tmp_path, socket)
    with Launcher(native, tmp_path / "program", socket) as program:
        with Load(program, RATE):
            for _ in range(3):
                _under_way(agent)
                threading.Event().wait(chance.uniform(0, 0.2))
                account.kill(agent)
                agent = ForkedAgent(nursery, tmp_path, socket)
            _under_way(agent)
        fired = program.ended_as_without()
        until(lambda: agent.collectors() == 0, "the end of the connection")
        assert agent.adds_up()
        account.kill(agent)
        account.kills -= 1  # it had nothing in hand any more
    arrived = in_spool(tmp_path)
    account.left = len(arrived)
    assert len(np.unique(arrived)) == len(arrived)
    assert np.isin(arrived, program.started_ns()).all()
    assert set(account.told) <= {"no_agent", "disconnect"}
    assert account.told["no_agent"] > 0
    _lost_by_kills(account, fired)


def test_an_agent_that_is_ended_under_load_loses_nothing_without_a_word(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path
) -> None:
    """SIGTERM, then another: launched = delivered + told as dropped, to the last span."""
    account = Account()
    with Launcher(native, tmp_path / "program", socket) as program:
        agent = ForkedAgent(nursery, tmp_path, socket, takes_all=True)
        with Load(program, RATE):
            _under_way(agent)
            account.end(agent)
            agent = ForkedAgent(nursery, tmp_path, socket, takes_all=True)
            _under_way(agent)
        fired = program.ended_as_without()
        account.end(agent)
    assert set(account.told) <= {"no_agent", "disconnect"}
    assert account.left == 0
    assert account.without_a_word(fired) == 0


@pytest.mark.soak
def test_twenty_restarts_under_load(native: Built, nursery: Nursery, socket: Path, tmp_path: Path) -> None:
    """SIGKILL with Kafka away and SIGTERM with Kafka there, in turns: the spool carries over, the account is closed."""
    account = Account()
    with Launcher(native, tmp_path / "program", socket) as program:
        with Load(program, RATE):
            for turn in range(20):
                agent = ForkedAgent(nursery, tmp_path, socket, takes_all=turn % 2 == 1)
                _under_way(agent)
                threading.Event().wait(0.2)
                (account.end if turn % 2 else account.kill)(agent)
            agent = ForkedAgent(nursery, tmp_path, socket, takes_all=True)
            _under_way(agent)
        fired = program.ended_as_without()
        account.end(agent)
    assert set(account.told) <= {"no_agent", "disconnect"}
    assert account.left == 0
    assert account.delivered > 0
    _lost_by_kills(account, fired)


def test_an_agent_that_comes_late_is_told_what_it_missed(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path
) -> None:
    """Absent from the start and in the end as well: nobody waits for it, and each span is in the spool or told."""
    with Launcher(native, tmp_path / "alone", socket) as program:
        program.ask("launch 1000 20000")
        program.ended_as_without()
    with Launcher(native, tmp_path / "program", socket) as program:
        program.ask("launch 1000 4000")
        agent = ForkedAgent(nursery, tmp_path, socket)
        with Load(program, RATE):
            until(lambda: agent.metrics()["spool_spans"] > 0, "spans in the spool")
        fired = program.ended_as_without()
        _all_told(agent, fired)
        assert set(agent.dropped()) == {"no_agent"}
        assert agent.metrics()["spool_spans"] + agent.dropped().total() == fired
        agent.kill()


def test_a_program_never_waits_for_an_agent_that_hangs(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path
) -> None:
    """Three seconds of launches are done while it is still stopped; what the pool could not hold is told."""
    agent = ForkedAgent(nursery, tmp_path, socket)
    with Launcher(native, tmp_path / "program", socket, PATIENT) as program:
        program.ask(f"launch 200 {RATE}")
        _under_way(agent)
        nursery.signal(signal.SIGSTOP)
        program.ask(f"launch {3 * RATE} {RATE}")  # answered: nothing of it waited
        nursery.signal(signal.SIGCONT)
        _all_told(agent, 200 + 3 * RATE)
        assert program.ended_as_without() == 200 + 3 * RATE
        told = agent.dropped()
        assert set(told) == {"agent_slow"}
        assert agent.adds_up()
        agent.kill()
    assert len(np.unique(in_spool(tmp_path))) == 200 + 3 * RATE - told.total()


def test_what_an_agent_hung_over_is_not_delivered_after_all(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path
) -> None:
    """The collector loses patience and counts the buffer as lost: the agent that wakes up must not take it too."""
    agent = ForkedAgent(nursery, tmp_path, socket)
    with Launcher(native, tmp_path / "program", socket, {"SPANLITE_HUNG_MS": "100"}) as program:
        program.ask(f"launch 200 {RATE}")
        _under_way(agent)
        nursery.signal(signal.SIGSTOP)
        program.ask(f"launch {RATE} {RATE}")
        nursery.signal(signal.SIGCONT)
        with Load(program, RATE):
            until(lambda: agent.dropped()["agent_hung"] > 0, "the loss told")
        fired = program.ended_as_without()
        until(lambda: agent.collectors() == 0, "the end of the connection")
        assert set(agent.dropped()) <= {"agent_hung", "agent_slow", "no_agent"}
        assert agent.metrics()["spool_spans"] + agent.dropped().total() == fired
        assert agent.adds_up()
        agent.kill()


def test_a_socket_that_is_removed_harms_nobody_who_is_connected(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path
) -> None:
    """Its file is gone: who is connected goes on whole, who comes is traced by nobody, the next agent is found."""
    account = Account()
    agent = ForkedAgent(nursery, tmp_path, socket)
    with Launcher(native, tmp_path / "program", socket) as program:
        program.ask("launch 200 4000")
        _under_way(agent)
        before = agent.dropped()  # what was launched before it was found
        socket.unlink()
        program.ask(f"launch 1000 {RATE}")
        with Launcher(native, tmp_path / "late", socket) as late:
            late.ask("launch 200 4000")
            late.ended_as_without()
        _all_told(agent, 1200)
        assert agent.dropped() == before
        account.kill(agent)
        agent = ForkedAgent(nursery, tmp_path, socket)
        with Load(program, RATE):
            _under_way(agent)
        fired = program.ended_as_without()
        until(lambda: agent.collectors() == 0, "the end of the connection")
        account.left = int(agent.metrics()["spool_spans"])
        account.told += agent.dropped()
        agent.kill()
    assert account.without_a_word(fired) == 0  # nothing was in hand when the first was killed: all had been received


@pytest.mark.parametrize(
    "last",
    [f"raise {int(signal.SIGKILL)}", f"raise {int(signal.SIGTERM)}", "abort"],
    ids=["SIGKILL", "SIGTERM", "abort"],
)
def test_a_program_that_dies_is_forgotten_and_others_are_served(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path, last: str
) -> None:
    """What it had sent counts, thread and descriptors of its connection are given back, the other loses nothing."""
    agent = ForkedAgent(nursery, tmp_path, socket)
    with Launcher(native, tmp_path / "other", socket) as other:
        other.ask(f"launch 100 {RATE}")
        _all_told(agent, 100)
        threads, descriptors = agent.threads(), agent.descriptors()
        with Launcher(native, tmp_path / "program", socket) as program:
            program.ask(f"launch 300 {RATE}")
            _all_told(agent, 400)
            assert agent.collectors() == 2
            with Load(other, RATE):
                program.ask(f"launch 300 {RATE}")
                died = program.ended_as_without(last)
                until(lambda: agent.collectors() == 1, "the end of its connection")
            assert program.child.returncode < 0  # a signal, and the one that ends it without spanlite
        rest = other.ended_as_without()
        until(lambda: agent.collectors() == 0, "the end of the other connection")
    assert 300 + rest <= agent.received() <= died + rest
    assert agent.adds_up()
    assert agent.metrics()["frame_memory_bytes"] == 0
    until(lambda: agent.threads() <= threads - 1, "its threads")
    until(lambda: agent.descriptors() <= descriptors - 1, "its descriptors")
    agent.kill()


def test_children_leave_the_collector_of_their_parent_alone(
    native: Built, nursery: Nursery, socket: Path, tmp_path: Path
) -> None:
    """32 forks and 32 that execute, while launches go on: children inert, nothing left behind, no span missing."""
    agent = ForkedAgent(nursery, tmp_path, socket)
    with Launcher(native, tmp_path / "program", socket) as program:
        process = Path(f"/proc/{program.child.pid}")
        program.ask(f"launch 100 {RATE}")
        _all_told(agent, 100)
        before = [len(list((process / part).iterdir())) for part in ("fd", "task")]
        program.ask(f"background {RATE} {RATE}")
        assert program.ask("fork 32") == "10:11 11:11 12:10"
        assert program.ask("execute 32") == "0:32"
        program.ask("join")
        _all_told(agent, 100 + RATE)
        assert [len(list((process / part).iterdir())) for part in ("fd", "task")] == before
        assert agent.collectors() == 1
        assert program.ended_as_without() == 100 + RATE
        until(lambda: agent.collectors() == 0, "the end of the connection")
        dropped = agent.dropped()
        assert agent.metrics()["spool_spans"] + dropped.total() == 100 + RATE
        agent.kill()
    arrived = in_spool(tmp_path)
    assert len(np.unique(arrived)) == 100 + RATE - dropped.total()
    assert np.isin(arrived, program.started_ns()).all()

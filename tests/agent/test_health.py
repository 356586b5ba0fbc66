"""Whether an agent does its work: by what moves, with a real spool and sender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.health import Health
from spanlite.agent.sender import Sender
from spanlite.agent.server import AgentServer
from spanlite.agent.spool.spool import Spool
from spanlite.contract import catalogue
from spanlite.runtime.clock import ManualClock
from tests.agent.spool.items import SMALL, item
from tests.agent.test_sender import Told
from tests.agent.waiting import until

_S = 10**9
WELL = {"socket": "", "spool": "", "kafka": ""}


@dataclass
class _Producer:
    """Keeps reports open until the test gives them; or raises."""

    open: list[Told] = field(default_factory=list)
    fault: Exception | None = None

    def send(self, _topic: str, _key: bytes, _value: bytes, _timestamp_ms: int, on_delivery: Told) -> None:
        if self.fault is not None:
            raise self.fault
        self.open.append(on_delivery)

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # what Producer asks for
        return 0


class _SteppedClock(ManualClock):
    """A clock whose Unix time can be set."""

    set_by_ns = 0

    def unix_ns(self) -> int:
        return super().unix_ns() + self.set_by_ns


@dataclass
class _Agent:
    health: Health
    sender: Sender
    producer: _Producer
    clock: _SteppedClock
    counts: AgentCounts


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[_Agent]:
    counts, clock, producer = AgentCounts(), _SteppedClock(), _Producer()
    sender = Sender(Spool(tmp_path / "spool", counts, SMALL), producer, clock, counts)
    server = AgentServer(tmp_path / "s", sender, clock, counts)
    server.start()
    sender.start()
    yield _Agent(Health(server, sender, clock, counts, stall_s=60), sender, producer, clock, counts)
    server.stop(0)
    sender.stop(0)


def test_an_agent_with_nothing_to_do_is_well(agent: _Agent) -> None:
    """For a week: nothing to deliver is no stall."""
    for _ in range(7 * 24):
        agent.clock.advance_ns(3600 * _S)
        agent.health.look()
        assert agent.health.problems() == WELL


def test_batches_that_wait_with_none_delivered_are_a_stall(agent: _Agent) -> None:
    """After more than 60 s without a delivery, with the reasons so far; well again when one is delivered."""
    for number in range(3):
        agent.sender.put(item(number))
    until(lambda: len(agent.producer.open) == 3)
    agent.health.look()
    agent.clock.advance_ns(60 * _S)
    agent.health.look()
    assert agent.health.problems() == WELL
    agent.counts.add(catalogue.AGENT_SEND_FAILURES, 2, "timed_out")
    agent.clock.advance_ns(_S)
    told = "3 batches wait and none was delivered for 61 s; failures so far: 2 timed_out"
    assert agent.health.problems() == {**WELL, "kafka": told}
    agent.producer.open[0](None)
    agent.health.look()
    assert agent.health.problems() == WELL


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_sender_is_told(agent: _Agent) -> None:
    """Batches only pile up then, whatever the clock says."""
    agent.producer.fault = ZeroDivisionError("no")
    agent.sender.put(item(0))
    agent.sender._thread.join(60)
    assert agent.health.problems()["kafka"] == "sending ended by a fault: no"


def test_a_disk_that_takes_nothing_is_told(agent: _Agent) -> None:
    """Batches that are in memory alone are a crash away from being lost."""
    agent.sender.spool._set_degraded(OSError(28, "full"))
    agent.sender.put(item(0))
    found = agent.health.problems()["spool"]
    assert found.startswith("the disk takes nothing; ")
    assert found.endswith(" bytes of batches are in memory alone")


def test_steps_of_the_clock_are_counted(agent: _Agent) -> None:
    """Back by a second, on by an hour: two; what NTP slews in between is none."""
    for ns in (0, -_S, -_S, -_S + 50_000_000, 3600 * _S, 3600 * _S):
        agent.clock.set_by_ns = ns
        agent.clock.advance_ns(_S)
        agent.health.look()
    assert agent.counts.value(catalogue.AGENT_CLOCK_STEPS) == 2

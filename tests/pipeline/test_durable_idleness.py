"""The runner with a state file against stops, backlogs and restarts: whose rest waits is not taken for silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spanlite.contract.codec import encode_batch
from spanlite.contract.point_codec import decode_point
from spanlite.pipeline.durable import Cadence, DurablePipeline, Topics
from spanlite.pipeline.kept import KeptState
from spanlite.pipeline.windows import SECOND_NS, WindowPolicy
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.pipeline.conftest import Span, make_batch

IDLE_S = 10
POLICY = WindowPolicy(idle_ns=IDLE_S * SECOND_NS)
START_S = 10**9


class Runner:
    """A pipeline over memory, with one window a producer that only idleness closes."""

    def __init__(self, state: KeptState) -> None:
        self.clock = ManualClock(START_S * SECOND_NS)
        self._broker = MemoryBroker()
        self._state = state
        self.restart()

    def restart(self) -> None:
        """Another pipeline on the same state."""
        self._pipeline = DurablePipeline(
            self._state,
            MemoryConsumer(self._broker, "spans"),
            MemoryProducer(self._broker),
            Topics("spans", "points", "late", "dead"),
            policy=POLICY,
            clock=self.clock,
            top_k=10,
            cadence=Cadence(emit=1, commit=1),
        )

    def send(self, number: int, age_s: float = 0, sequence: int = 0) -> None:
        """A span of a process on a GPU of its own, sent so long ago."""
        name = f"GPU-{number}"
        value = encode_batch(
            make_batch([Span(SECOND_NS, gpu=name, row=sequence)], producer=bytes([number]) * 16, sequence=sequence)
        )
        self._broker.put("spans", b"", value, (self.clock.unix_ns() - round(age_s * 1e9)) // 10**6)
        self._pipeline.run_once(0)

    def go_on(self, seconds: int) -> dict[str, float]:
        """Rounds of a second; GPUs that are told of, and after how many."""
        told: dict[str, float] = {}
        for second in range(1, seconds + 1):
            self.clock.advance_ns(SECOND_NS)
            self._pipeline.run_once(0)
            told |= {
                decode_point(record.value).series.gpu_uuid: second for record in self._broker.take("points", 100, 0)
            }
        return told


@pytest.fixture
def runner() -> Iterator[Runner]:
    """A pipeline on a state that is gone afterwards."""
    state = KeptState(Path(":memory:"))
    yield Runner(state)
    state.close()


def test_a_silent_producer_is_closed_after_idle(runner: Runner) -> None:
    """It would be open for ever; one whose last message was old has more time, as its next may wait."""
    runner.send(1)
    runner.send(2, age_s=5.1)
    runner.send(3, age_s=5)
    assert runner.go_on(100) == {"GPU-1": IDLE_S, "GPU-2": 6 * IDLE_S, "GPU-3": IDLE_S}


def test_a_stop_closes_nobody(runner: Runner) -> None:
    """A minute of SIGSTOP would close everybody before what waits is read."""
    runner.send(1)
    runner.go_on(5)
    runner.clock.advance_ns(60 * SECOND_NS)
    assert runner.go_on(20) == {"GPU-1": 1 + IDLE_S}, "its first round notices the stop"


def test_a_backlog_closes_nobody(runner: Runner) -> None:
    """While all that is read is old, the messages of who is not heard wait further back."""
    runner.send(1)
    for sequence in range(50):
        runner.go_on(1)
        runner.send(2, age_s=300, sequence=sequence)
    assert runner.go_on(100) == {"GPU-1": IDLE_S, "GPU-2": 6 * IDLE_S}


def test_a_restart_closes_nobody_at_once(runner: Runner) -> None:
    """Whoever is in the state of the life before may have sent more; in the end it is closed."""
    runner.send(1)
    runner.go_on(2)
    runner.clock.advance_ns(3600 * SECOND_NS)
    runner.restart()
    assert runner.go_on(100) == {"GPU-1": 6 * IDLE_S}

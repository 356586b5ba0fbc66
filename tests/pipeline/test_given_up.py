"""A gap that is closed to bound memory is counted by every runner: what comes for it later would vanish silently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spanlite.contract.codec import encode_batch
from spanlite.pipeline.archivestage import ArchiveStage
from spanlite.pipeline.durable import DurablePipeline, Topics
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.pipeline.foldstage import FoldStage
from spanlite.pipeline.kept import KeptState
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from tests.pipeline.conftest import Span, make_batch
from tests.pipeline.simulator import MemoryLog, MemoryValue, Store

PRODUCER = b"a" * 16
POLICY = WindowPolicy(100, lateness_ns=50)
_METRIC = "spanlite_pipeline_sequences_given_up_total"
# 1,026 runs with three sequences missing between two: two gaps more than are kept.
MESSAGES = [encode_batch(make_batch([Span(5, row=at)], producer=PRODUCER, sequence=4 * at)) for at in range(1026)]
GIVEN_UP = 2 * 3


def by_step(counters: Mapping[str, list[tuple[Mapping[str, str], float]]]) -> dict[str, float]:
    """The metric's values by their one label."""
    return {labels["stage"]: value for labels, value in counters[_METRIC]}


def test_both_stages_count_it_over_restarts() -> None:
    """Each of the six missing batches once, although the stage is made anew in the middle."""
    store = Store({})
    store.key = PRODUCER
    folds = [FoldStage(POLICY, MemoryValue(store, "f"), MemoryLog(store, "p")) for _ in range(2)]
    archives = [ArchiveStage(lambda _: 0, MemoryValue(store, "a"), MemoryLog(store, "b")) for _ in range(2)]
    for at, message in enumerate(MESSAGES):
        second = at > 1024
        assert list(folds[second].take(PRODUCER, message)) == []
        assert archives[second].take(PRODUCER, message)
    for stages in (folds, archives):
        assert [stage.counts.by_name()["sequences_given_up"] for stage in stages] == [3, 3]
        assert [stage.counts.duplicates for stage in stages] == [0, 0]


def test_the_embedded_runner_tells_it() -> None:
    """Its counters hold the six, in the catalogue's words."""
    broker = MemoryBroker()
    for message in MESSAGES:
        broker.put("spans", b"", message, 0)
    broker.close()
    pipeline = EmbeddedPipeline(MemoryConsumer(broker, "spans"), Outputs(), policy=POLICY)
    assert sum(drain(pipeline)) == len(MESSAGES)
    assert by_step(pipeline.counters()) == {"fold": GIVEN_UP}


def test_the_durable_runner_tells_it_of_both_steps() -> None:
    """Metrics and archive remember sequences apart, and each may be short of them."""
    broker, state = MemoryBroker(), KeptState(Path(":memory:"))
    for message in MESSAGES:
        broker.put("spans", b"", message, 0)
    pipeline = DurablePipeline(
        state,
        MemoryConsumer(broker, "spans"),
        MemoryProducer(broker),
        Topics("spans", "points", "late", "dead"),
        policy=POLICY,
        clock=ManualClock(7),
        top_k=10,
        write=lambda _: 0,
    )
    while pipeline.run_once(0):
        pass
    assert by_step(pipeline.counters()) == {"fold": GIVEN_UP, "archive": GIVEN_UP}
    state.close()

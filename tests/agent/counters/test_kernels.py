"""What the agent's own batches tell of a GPU's kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spanlite.agent.counters.hold import FATES, Hold
from spanlite.agent.counters.kernels import Kernels, Looker
from spanlite.agent.counters.samples import METRICS
from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Frame, pack_names
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.columns import SamplingMode
from spanlite.runtime.clock import ManualClock
from tests.agent.counters.fakes import MS, START_NS, some
from tests.agent.playing import process, take
from tests.agent.records import kernel

S = 10**9


def batch(*records: bytes) -> Batch:
    """What a process with two GPUs sends of its records."""
    (made,) = take(process(), [(Frame.NAMES, pack_names({16: "a", 32: "b"})), (Frame.BUFFER, b"".join(records))])
    return made


def whose(*batches: Batch, kernels: Kernels | None = None) -> tuple[list[tuple[str, str]], int]:
    """Fate and kernel of three samples of GPU-1, and how many spans came late."""
    hold, kernels, counts, clock = Hold(), kernels or Kernels(), AgentCounts(), ManualClock(START_NS + S)
    hold.begin(METRICS)
    hold.add(some(0, 3))
    looker = Looker({"GPU-1": hold}, kernels, clock, counts)
    for one in batches:
        looker.look(one)
    settled = hold.settle(START_NS + 9 * S)
    names = [kernels.name(number) if number >= 0 else "" for number in settled.kernel.tolist()]
    fates = [FATES[fate] for fate in settled.fate.tolist()]
    return list(zip(fates, names, strict=True)), counts.value(catalogue.AGENT_COUNTER_LATE_SPANS)


def run(first: int, last: int, number: int, *, device: int = 1, name: int = 16) -> bytes:
    """A kernel from the start of one sample to the end of another."""
    return kernel(START_NS + first * MS, START_NS + (last + 1) * MS, number, device=device, name=name)


def test_kernels_are_those_of_the_gpu() -> None:
    """Another GPU's kernels would own its samples, or take them from their owners."""
    one = batch(run(0, 0, 1), run(1, 1, 2, name=32), run(0, 2, 3, device=0))
    assert whose(one) == ([("owned", "a"), ("owned", "b"), ("unseen", "")], 0)


@pytest.mark.parametrize("how", ["windows", "weights", "told"])
def test_a_process_that_is_sampled_makes_its_time_unknown(how: str) -> None:
    """A kernel would be said to run alone beside those that nobody recorded."""
    one = batch(run(0, 0, 1))
    if how == "windows":
        one = replace(one, sampling=SamplingMode.DUTY_CYCLE)
    elif how == "weights":
        one = replace(one, columns=replace(one.columns, weight=np.array([2], dtype=np.uint32)))
    else:
        one = replace(one, resource={**one.resource, "spanlite.collector.sampling": "duty"})
    assert whose(one)[0] == [("incomplete", "")] * 3


def test_kernels_beyond_the_cap_are_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Series of a node would grow with every kernel that is compiled."""
    monkeypatch.setattr("spanlite.agent.counters.kernels.MOST_KERNELS", 1)
    one = batch(run(0, 0, 1), run(1, 1, 2, name=32), run(2, 2, 3))
    assert whose(one)[0] == [("owned", "a"), ("owned", "other"), ("owned", "a")]

"""A GPU's thread: what it opens, how it paces itself, what it loses, and how it goes on after a failure."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from spanlite.agent.counters.common import Common
from spanlite.agent.counters.hold import Hold, Spans
from spanlite.agent.counters.kernels import Kernels
from spanlite.agent.counters.library import Device
from spanlite.agent.counters.node import NodeCounters
from spanlite.agent.counters.pace import PERIOD_S
from spanlite.agent.counters.samples import METRICS, NEEDED
from spanlite.agent.counters.sampling import Sampler
from spanlite.agent.counts import AgentCounts
from spanlite.contract import catalogue
from spanlite.contract.errors import CountersError
from spanlite.runtime.clock import ManualClock, SystemClock
from tests.agent.counters.fakes import MS, START_NS, FakeLibrary, Kept, some
from tests.agent.waiting import until

S = 10**9
GONE = (999, "cuptiPmSamplingDecodeData: CUPTI_ERROR_UNKNOWN (999)")


class Bench:
    """A sampler of one GPU whose steps the test makes."""

    def __init__(self, library: FakeLibrary | None = None, gpus: frozenset[str] = frozenset()) -> None:
        self.library = library or FakeLibrary()
        self.clock = ManualClock(START_NS)
        self.counts = AgentCounts()
        self.outlet = Kept(self.counts)
        self.holds: dict[str, Hold] = {}
        self.kernels = Kernels()
        common = Common(
            library=self.library,
            outlet=self.outlet,
            clock=self.clock,
            counts=self.counts,
            kernels=self.kernels,
            holds=self.holds,
            interval_ns=MS,
            gpus=gpus,
            host="n1",
            topic="spans",
        )
        self.sampler = Sampler(common, 0)

    def step(self, ns: int = 0) -> float:
        """A step, so much later."""
        self.clock.advance_ns(ns)
        return self.sampler.step()

    def lost(self) -> dict[str, int]:
        return self.counts.by_label(catalogue.AGENT_COUNTER_LOST)

    def samples(self) -> dict[str, int]:
        by_fate = self.counts.by_label(catalogue.AGENT_COUNTER_SAMPLES)
        return {fate: count for fate, count in by_fate.items() if count}


def test_once_a_second_everything_is_told() -> None:
    """Ratios would be means of something else, increments would be told twice, kernels would not be named."""
    bench = Bench()
    bench.library.queue = [some(0, 2, values=(50, 50, 25, 100, 10, 7)), some(2, 2, values=(0, 0, 0, 0, 0, 0))]
    assert bench.step() == PERIOD_S
    assert bench.outlet.told() == {}
    number = bench.kernels.number("gemm")
    start = np.array([START_NS], dtype=np.int64)
    spans = Spans(start, start + MS, np.array([number], dtype=np.int32))
    bench.holds["GPU-0"].offer(1, spans, complete=True, now_ns=START_NS)
    bench.step(S)
    bench.step(5 * S)
    bench.library.queue = [some(6000, 1, values=(100, 100, 100, 1, 1, 1))]
    bench.step(S)
    bench.step(6 * S)
    assert bench.outlet.told() == {
        "spanlite_gpu_sm_active_ratio": [0.25, 1.0],
        "spanlite_gpu_warps_active_ratio": [0.125, 1.0],
        "spanlite_gpu_tensor_active_ratio": [0.0625, 1.0],
        "spanlite_gpu_dram_read_bytes_total": [200, 1],
        "spanlite_gpu_dram_write_bytes_total": [20, 1],
        "spanlite_gpu_l2_sectors_total": [14, 1],
        'spanlite_kernel_achieved_active_nanoseconds_total{kernel="gemm"}': [500_000],
        'spanlite_kernel_achieved_warp_nanoseconds_total{kernel="gemm"}': [250_000],
    }
    assert bench.samples() == {"owned": 1, "idle": 2, "unseen": 2}
    batch = bench.outlet.batches[0]
    assert (batch.resource["host.name"], batch.gpus[0].uuid) == ("n1", "GPU-0")
    assert [one.sequence for one in bench.outlet.batches] == [0, 1, 2]
    counts = bench.counts
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == counts.value(catalogue.AGENT_SPANS_SENT) == 14


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        ({"permission": (35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")}, "forbidden"),
        ({"permission": (26, "CUPTI_ERROR_HARDWARE_BUSY")}, "busy"),
        ({"levels": {"supported": "no", "vgpu": "no"}}, "unsupported"),
        ({"fit": 1}, "unsupported"),
        ({"refuse": (-2, "no UUID of device 0: CUDA gives 101")}, "gone"),
        ({"refuse": GONE}, "failed"),
    ],
)
def test_what_stands_in_the_way_is_said_once_and_tried_again(
    fault: dict[str, object], state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator would not know what to mend, or would have to restart the agent after he has."""
    bench = Bench(FakeLibrary(**fault))  # type: ignore[arg-type]  # one of its fields
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert bench.step(30 * S) <= 1.0
    assert bench.sampler.state == state
    assert [state in record.getMessage() for record in caplog.records] == [True]
    well = FakeLibrary()
    for name in ("permission", "levels", "fit", "refuse"):
        setattr(bench.library, name, getattr(well, name))
    bench.step(30 * S)
    assert (bench.sampler.state, bench.library.opened) == ("sampling", 1)


def test_a_device_that_vanishes_is_sampled_again_when_it_is_back() -> None:
    """One Xid would end the counters until the agent is restarted; the pause would pass for lost samples."""
    bench = Bench()
    bench.library.queue = [some(0, 3)]
    bench.step()
    bench.library.refuse = GONE
    assert bench.step(S) <= 0.2
    assert (bench.sampler.state, bench.library.opened) == ("failed", 0)
    bench.library.refuse = (-2, "no device")
    bench.step(5 * S)
    assert bench.sampler.state == "gone"
    bench.library.refuse = None
    bench.library.queue = [some(20_000, 3)]
    bench.step(14 * S)
    assert (bench.sampler.state, bench.library.opened) == ("sampling", 1)
    bench.step(10 * S)
    assert bench.samples() == {"unseen": 6}
    assert bench.lost() == {}
    bench.sampler.end()
    assert bench.library.opened == 0


def test_slow_decoding_takes_a_fifth_of_a_core_and_then_fewer_samples() -> None:
    """The agent would eat the cores of the programs that it watches."""
    bench = Bench()
    bench.library.cost_ns = S // 4
    waits = [bench.step(S) for _ in range(25)]
    assert waits == [1.0] * 25
    assert bench.library.intervals == [(MS, False), (2 * MS, False)]
    assert (bench.sampler.state, bench.library.opened) == ("slowed", 1)
    bench.library.cost_ns = MS
    for _ in range(50):
        assert bench.step(S) == PERIOD_S
    assert len(bench.library.intervals) == 2
    assert bench.sampler.decode_ns == 25 * S // 4 + 50 * MS


@pytest.mark.parametrize("refused", [False, True])
def test_a_full_buffer_is_counted_and_gone_on_from(refused: bool) -> None:
    """Lost samples would pass for idle time; CUPTI says it with or without samples."""
    bench = Bench()
    bench.library.queue = [some(0, 3)]
    bench.step()
    if refused:
        bench.library.refuse = (8, "cuptiPmSamplingDecodeData: CUPTI_ERROR_OUT_OF_MEMORY (8)")
        assert bench.step(MS) == PERIOD_S
        bench.library.refuse = None
    else:
        bench.library.overflow = True
    bench.library.queue = [some(13, 2)]
    bench.step(MS)
    bench.library.overflow = False
    assert (bench.sampler.state, bench.library.opened) == ("sampling", 1)
    assert bench.lost() == {"overflow": 10}
    assert bench.counts.value(catalogue.AGENT_COUNTER_OVERFLOWS) == 1
    bench.library.queue = [some(17, 1), some(16, 1), some(18, 1, values=(50, 200, 0, 0, 0, 0))]
    bench.step(MS)
    assert bench.lost() == {"overflow": 10, "gap": 2, "order": 1, "value": 1}
    bench.sampler.end()
    assert bench.lost()["stopped"] == 6


def test_a_chip_takes_what_fits_and_by_cycles_if_it_must() -> None:
    """An A100 would not be sampled at all."""
    bench = Bench(FakeLibrary(fit=2, by_time=False))
    bench.step()
    assert (bench.sampler.state, bench.library.metrics) == ("sampling", NEEDED)
    assert bench.library.intervals == [(1_500_000, True)]
    bench.library.queue = [some(0, 1, values=(50.0, 50.0))]
    bench.step(2 * S)
    bench.step(2 * S)
    assert set(bench.outlet.told()) == {"spanlite_gpu_sm_active_ratio", "spanlite_gpu_warps_active_ratio"}
    assert METRICS[: len(NEEDED)] == NEEDED


def test_a_call_that_does_not_come_back_is_told() -> None:
    """The last state would stand for ever while the driver hangs."""
    bench = Bench()
    bench.step()
    bench.clock.advance_ns(15 * S + round(PERIOD_S * S))
    assert bench.sampler.told_state == "sampling"
    bench.clock.advance_ns(1)
    assert bench.sampler.told_state == "stuck"
    bench.step()
    assert bench.sampler.told_state == "sampling"


def test_other_gpus_are_left_alone() -> None:
    """A GPU that somebody else profiles would be taken away from him."""
    bench = Bench(gpus=frozenset({"GPU-7"}))
    bench.step()
    assert (bench.sampler.uuid, bench.sampler.state, bench.library.opened, bench.holds) == ("GPU-0", "", 0, {})


class Faulty(FakeLibrary):
    """A fault of ours."""

    def probe(self, device: int) -> Device:
        raise ZeroDivisionError(device)


@pytest.fixture
def node() -> Iterator[list[NodeCounters]]:
    """Those that a test starts are stopped with it."""
    started: list[NodeCounters] = []
    yield started
    for one in started:
        one.stop()


def states(counters: NodeCounters) -> dict[str, str]:
    """State by UUID."""
    told = counters.gauges()[catalogue.AGENT_COUNTERS_STATE.name]
    return {labels["UUID"]: labels["state"] for labels, value in told if value == 1.0}


def test_threads_wait_for_the_driver_and_end(node: list[NodeCounters]) -> None:
    """An agent that starts before the driver would never sample, or would not stop."""
    counts = AgentCounts()
    outlet = Kept(counts)
    library = FakeLibrary()
    tries = []

    def load() -> FakeLibrary:
        tries.append(1)
        if len(tries) < 2:
            raise CountersError(-1, "no libcuda")
        return library

    counters = NodeCounters(load, outlet, SystemClock(), counts, gpus=frozenset({"GPU-0", "GPU-9"}))
    node.append(counters)
    assert states(counters) == {"GPU-0": "starting", "GPU-9": "starting"}
    counters.start()
    until(lambda: states(counters) == {"GPU-0": "unavailable", "GPU-9": "unavailable"} or len(tries) > 1)
    until(lambda: states(counters) == {"GPU-0": "sampling", "GPU-9": "absent"})
    library.queue = [some(0, 4)]
    until(lambda: bool(counts.by_label(catalogue.AGENT_COUNTER_SAMPLES)))
    counters.stop()
    assert library.opened == 0
    assert outlet.told()["spanlite_gpu_sm_active_ratio"] == [1.0]


def test_a_fault_of_ours_is_a_state(node: list[NodeCounters]) -> None:
    """The thread would die and the last state stand for ever."""
    counts = AgentCounts()
    counters = NodeCounters(Faulty, Kept(counts), SystemClock(), counts)
    node.append(counters)
    counters.start()
    until(lambda: list(states(counters).values()) == ["failed"])
    assert counts.by_label(catalogue.AGENT_COUNTER_SAMPLES) == {}

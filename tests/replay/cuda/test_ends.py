"""How runs end: stops, faults of the GPU, and what is left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.cuda.library import Enactor
from tests.replay.cuda.imitated import CLOCK, Gpu, Shape, Timeline, feed, prepare, until

MS, S = 1_000_000, 1_000_000_000
SOON_NS = 5 * S
"""Far less than the kernels would take, far more than a busy machine needs."""


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _begun(enactor: Enactor, timeline: Timeline, ahead_ns: int = 2 * MS, queues: int = 1) -> None:
    """Fed, and not waited for."""
    prepare(enactor, [Shape()], [0] * queues)
    enactor.calibrate()
    enactor.begin(CLOCK.monotonic_ns(), ahead_ns)
    columns = timeline.queue.astype(np.int32), timeline.launch.astype(np.int32)
    assert enactor.feed(timeline.due, timeline.duration, *columns) == len(timeline)


def test_a_stop_in_the_middle(gpu: Gpu) -> None:
    """What runs and what waits behind it would last for minutes; what was not launched is left out."""
    timeline = Timeline.of(np.arange(5000) * MS, 100 * S, queue=np.arange(5000) % 2)
    with gpu.opened() as enactor:
        _begun(enactor, timeline, queues=2)
        until(lambda: enactor.stand.started >= 2, "the first two to begin")
        asked = CLOCK.monotonic_ns()
        enactor.stop()
        until(lambda: enactor.drained, "all to end")
        late = enactor.started()
        assert CLOCK.monotonic_ns() - asked < SOON_NS
        stand = enactor.stand
        assert enactor.feed(timeline.due, timeline.duration, np.zeros(5000, np.int32), np.zeros(5000, np.int32)) == 0
        assert enactor.drained
    assert 2 <= stand.launched == stand.started == stand.fed == len(late) < 5000
    log = gpu.log(stand.launched)
    assert np.all(log["end"] - asked < SOON_NS)
    assert len(log) == stand.launched


def test_a_stop_begins_nothing_early(gpu: Gpu) -> None:
    """The kernel that the player waits for would be launched before its time."""
    with gpu.opened() as enactor:
        _begun(enactor, Timeline.of([0, 100 * S], 1000), ahead_ns=200 * S)
        until(lambda: enactor.stand.launched == 1, "the first to be launched")
        enactor.stop()
        until(lambda: enactor.drained, "all to end")
        assert enactor.stand.launched == 1


@pytest.mark.parametrize("timeline", [Timeline.of([0, 0], 100 * S), Timeline.of([0, 100 * S], 1000)])
def test_giving_it_back_in_the_middle(gpu: Gpu, timeline: Timeline) -> None:
    """An error elsewhere would wait for a kernel that runs, or is due long after."""
    threads = _threads()
    with gpu.opened() as enactor:
        _begun(enactor, timeline, ahead_ns=200 * S)
        until(lambda: enactor.stand.launched >= 1, "the first to be launched")
        asked = CLOCK.monotonic_ns()
    assert CLOCK.monotonic_ns() - asked < SOON_NS
    assert _threads() == threads


def test_no_thread_is_left(gpu: Gpu) -> None:
    """Each run would leave one behind."""
    threads = _threads()
    for _ in range(2):
        gpu.play(Timeline.of(np.arange(20) * 100_000, 10_000))
        assert _threads() == threads
    with gpu.opened():
        pass
    assert _threads() == threads


def test_a_run_of_nothing_has_ended(gpu: Gpu) -> None:
    """It would be waited for without end."""
    played = gpu.play(Timeline.of([], 0))
    assert len(played.late) == len(played.log) == played.stand.launched == 0


def test_what_is_fed_once_all_has_ended_is_waited_for(gpu: Gpu) -> None:
    """A run would be given up between two chunks."""
    one = Timeline.of([0], 1000)
    with gpu.opened() as enactor:
        _begun(enactor, one)
        for fed in range(2, 500):
            until(lambda: enactor.drained, "the kernels to end")
            enactor.feed(one.due, one.duration, np.zeros(1, np.int32), np.zeros(1, np.int32))
            until(lambda: enactor.drained, "the further kernel to end")
            assert enactor.stand.started == fed


@pytest.mark.parametrize(
    ("settings", "device", "said"),
    [
        ({"init": 803}, 0, "cuInit: system has unsupported display driver .* \\(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH\\)"),
        ({"init": 4711}, 0, "cuInit: unknown \\(\\?\\)"),
        ({"devices": 0}, 0, "cuInit: no CUDA-capable device is detected \\(CUDA_ERROR_NO_DEVICE\\)"),
        ({"devices": 2}, 2, "there is no GPU 2; CUDA sees 2"),
        ({}, -1, "there is no GPU -1; CUDA sees 1"),
    ],
)
def test_no_gpu(gpu: Gpu, settings: dict[str, int], device: int, said: str) -> None:
    """Who has none must read so, and what to do."""
    with (
        pytest.raises(UsageError, match=f"needs the driver of an NVIDIA GPU .*: {said}$"),
        gpu.opened(settings, device=device),
    ):
        pass


def test_no_driver_and_an_old_one(gpu: Gpu, tmp_path: Path) -> None:
    """A call of a function that the driver lacks would end the process."""
    with pytest.raises(UsageError, match="cannot open shared object file"), gpu.opened(cuda=tmp_path / "libcuda.so.1"):
        pass
    said = "libcuda.so.old: no cuStreamCreateWithPriority: the driver is too old$"
    with pytest.raises(UsageError, match=said), gpu.opened(cuda=gpu.built.old_cuda):
        pass


def test_a_text_that_does_not_compile(gpu: Gpu) -> None:
    """It is told which; the next one compiles."""
    with gpu.opened() as enactor:
        with pytest.raises(
            ReplayError, match="Mock 0: axpy: a PTX JIT compilation failed \\(CUDA_ERROR_INVALID_PTX\\)"
        ):
            enactor.function("no PTX", "axpy")
        prepare(enactor, [Shape()], [0])


def test_shared_memory_that_does_not_fit(gpu: Gpu) -> None:
    """The first launch of the run would be the first to fail."""
    with gpu.opened() as enactor, pytest.raises(ReplayError, match="cuFuncSetAttribute: invalid argument"):
        prepare(enactor, [Shape(dynamic=228 * 1024)], [0])


def test_too_many_queues(gpu: Gpu) -> None:
    """Memory beyond the last one's would be written."""
    with gpu.opened() as enactor:
        prepare(enactor, [Shape()], [0] * 128)
        with pytest.raises(ReplayError, match="more than 128 streams"):
            enactor.queue(0)


@pytest.mark.parametrize("good", [0, 50, 90])
@pytest.mark.parametrize(
    ("fault", "said"),
    [("refused", "cuLaunchKernel: too many resources"), ("faulty", "an illegal memory access was encountered")],
)
def test_a_gpu_that_fails_while_it_is_measured(gpu: Gpu, fault: str, said: str, good: int) -> None:
    """Nothing hangs, and the GPU is given back."""
    threads = _threads()
    with gpu.opened() as enactor:
        prepare(enactor, [Shape()], [0])
        gpu.set(fault, good)
        with pytest.raises(ReplayError, match=said if good or fault == "faulty" else "too many resources"):
            enactor.calibrate()
    assert _threads() == threads


@pytest.mark.parametrize("good", [0, 1, 2000])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("refused", "cuLaunchKernel: too many resources requested for launch \\(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES\\)"),
        ("faulty", "an illegal memory access was encountered \\(CUDA_ERROR_ILLEGAL_ADDRESS\\)"),
    ],
)
def test_a_gpu_that_fails_in_the_middle(gpu: Gpu, fault: str, said: str, good: int) -> None:
    """The error is told to whoever feeds or waits, every time; nothing hangs, and the GPU can be opened again."""
    timeline = Timeline.of(np.arange(5000) * 20_000, 10_000, queue=np.arange(5000) % 2)
    threads = _threads()
    with gpu.opened() as enactor:
        prepare(enactor, [Shape()], [0, 0])
        enactor.calibrate()
        gpu.set(fault, good)
        enactor.begin(CLOCK.monotonic_ns(), 2 * MS)
        with pytest.raises(ReplayError, match=f"Mock 0: .*{said}"):
            feed(enactor, timeline)
        assert enactor.stand.launched <= (good if fault == "refused" else 5000)
        with pytest.raises(ReplayError, match=said):
            enactor.feed(timeline.due, timeline.duration, np.zeros(5000, np.int32), np.zeros(5000, np.int32))
        with pytest.raises(ReplayError, match=said):
            _ = enactor.drained
        enactor.stop()
    assert _threads() == threads
    assert len(gpu.play(Timeline.of([0], 1000)).late) == 1


def test_calls_out_of_order_are_refused(gpu: Gpu) -> None:
    """What is fed before it begins would be lost, and a second player would launch everything twice."""
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int32)
    with gpu.opened() as enactor:
        prepare(enactor, [Shape()], [0])
        with pytest.raises(ReplayError, match="fed before it begins"):
            enactor.feed(one, one, zero, zero)
        with pytest.raises(ReplayError, match="after it was calibrated"):
            enactor.begin(CLOCK.monotonic_ns(), 1_000_000)
        enactor.calibrate()
        with pytest.raises(ReplayError, match="calibrated once"):
            enactor.calibrate()
        enactor.begin(CLOCK.monotonic_ns(), 1_000_000)
        with pytest.raises(ReplayError, match="begins once"):
            enactor.begin(CLOCK.monotonic_ns(), 1_000_000)
        with pytest.raises(ReplayError, match="queues are made before"):
            enactor.queue(0)
        with pytest.raises(ReplayError, match="not told before"):
            enactor.feed(one, one, zero + 1, zero)

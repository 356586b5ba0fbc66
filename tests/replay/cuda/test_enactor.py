"""What is asked of the GPU: order, times never early, durations, shapes, lanes, and that nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanlite.replay.cuda.library import LAUNCH
from spanlite.replay.cuda.ptx import busy_text
from tests.replay.cuda.imitated import (
    FLOOR,
    GAP,
    LAUNCHING,
    TICK,
    TRAIN_GAP,
    TRAIN_LAUNCHING,
    WAVE,
    Gpu,
    Played,
    Shape,
    Timeline,
    prepare,
)

MS, S = 1_000_000, 1_000_000_000
LANES = 4


def _held(played: Played, timeline: Timeline) -> None:
    """What holds for every run: all began once, in order, none early, as long as asked."""
    n, log = len(timeline), played.log
    assert (played.stand.fed, played.stand.launched, played.stand.started) == (n, n, n)
    assert len(played.late) == len(log) == n
    assert np.min(played.truly_late - played.earliest) >= 0
    assert np.array_equal(log["duration"], np.maximum(timeline.duration - played.floors[timeline.launch], 0))
    for stream in np.unique(log["stream"]):
        there = log[log["stream"] == stream]
        gap = np.where(there["place"][1:] > 1, TRAIN_GAP, GAP)
        assert np.all(there["start"][1:] >= there["end"][:-1] + gap)


def test_what_a_gpu_takes_is_measured(gpu: Gpu) -> None:
    """A wrong gap, floor or clock would put every kernel of a run in the wrong place."""
    shapes = [Shape(), Shape("gemm", 128, grid=(132 * 4 * 7 + 1, 1, 1))]
    offset = -123_456_789_012
    with gpu.opened({"offset": offset}) as enactor:
        prepare(enactor, shapes, [0])
        found, floors, least = enactor.calibrate()
        assert (enactor.gpu, enactor.processors, enactor.driver) == ("Mock 0", 132, 13000)
    assert found.gap == (FLOOR + GAP) // 2
    assert list(floors + found.gap) == [FLOOR + GAP, FLOOR + GAP + 7 * WAVE]  # 4 blocks of 128 registers fit
    assert np.array_equal(least, floors)  # of this GPU, in a graph too
    assert found.train_gap == FLOOR + TRAIN_GAP - (FLOOR + GAP - found.gap)
    assert found.clock_step == TICK
    assert abs(found.clock_offset - offset) <= found.clock_uncertainty + TICK
    assert found.launch >= LAUNCHING - found.clock_uncertainty - TICK
    assert found.train_launch >= TRAIN_LAUNCHING - found.clock_uncertainty - TICK


def test_kernels_have_the_names_shapes_and_priorities_asked_for(gpu: Gpu) -> None:
    """Exchanged columns would give a trace of other kernels."""
    shapes = [
        Shape("first", 18, grid=(1, 2, 3), block=(32, 4, 2)),
        Shape("second", 64, grid=(70000, 1, 1), block=(1024, 1, 1), dynamic=100 * 1024),
        Shape("second", 64, grid=(5, 1, 1), block=(64, 1, 1), dynamic=1024),
        Shape("third", 64),
    ]
    launch = np.arange(90) % 4
    timeline = Timeline.of(np.arange(90) * 50_000, 10_000 + launch * 1000, queue=np.arange(90) // 3 % 2, launch=launch)
    played = gpu.play(timeline, shapes=shapes, priorities=[-5, 0])
    _held(played, timeline)
    for at, shape in enumerate(shapes):
        for row in played.log[launch == at]:
            told = (row["name"].decode(), tuple(row["grid"]), tuple(row["block"]), row["dynamic_shared"])
            assert told == (shape.name, shape.grid, shape.block, shape.dynamic)
    assert np.array_equal(played.log["priority"], np.where(timeline.queue == 0, -5, 0))


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        (Shape(), 16),  # 2,048 threads
        (Shape(block=(32, 1, 1)), 32),
        (Shape(registers=128, block=(256, 1, 1)), 2),  # 65,536 registers
        (Shape(registers=129, block=(256, 1, 1)), 1),  # of which a thread has 136
        (Shape(dynamic=100 * 1024), 2),  # 227 KiB
        (Shape(dynamic=228 * 1024), 0),
        (Shape(registers=128, block=(1024, 1, 1)), 0),
        (Shape(block=(1024, 2, 1)), 0),
    ],
)
def test_how_many_blocks_a_multiprocessor_holds(gpu: Gpu, shape: Shape, blocks: int) -> None:
    """A launch that does not fit would end the run at its first kernel."""
    with gpu.opened() as enactor:
        function, registers = enactor.function(busy_text(shape.name, shape.registers), shape.name)
        assert registers == shape.registers
        launch = np.array((function, shape.grid, shape.block, shape.dynamic), LAUNCH)
        assert enactor.resident(launch) == blocks


@pytest.mark.parametrize("pause", [0, 1000, 40_000])
def test_a_queue_keeps_its_order_and_begins_nothing_early(gpu: Gpu, pause: int) -> None:
    """Kernels that follow closely wait for each other, the others for their time."""
    duration = np.random.default_rng(1).integers(0, 60_000, 1000)
    due = np.concatenate([[0], np.cumsum(duration + pause)[:-1]])
    timeline = Timeline.of(due, duration)
    played = gpu.play(timeline)
    _held(played, timeline)
    assert len(np.unique(played.log["stream"])) == 1
    assert np.all(np.diff(played.log["start"]) > 0)


def test_a_queue_that_is_late_stays_in_its_lane(gpu: Gpu) -> None:
    """Kernels that never ran at a time would do so after each hiccup of the host."""
    timeline = Timeline.of(np.arange(300) * 100_000, 90_000)
    played = gpu.play(timeline, from_ns=-5 * MS)
    _held(played, timeline)
    assert len(np.unique(played.log["stream"])) == 1


def test_kernels_shorter_than_the_gpus_gap_make_their_queue_late(gpu: Gpu) -> None:
    """What cannot be played in time is told, and stays in order."""
    timeline = Timeline.of(np.arange(3000) * 1000, 500)
    played = gpu.play(timeline)
    _held(played, timeline)
    assert len(np.unique(played.log["stream"])) == 1
    least = 2999 * (FLOOR + TRAIN_GAP - 1000) + played.earliest
    assert played.late[-1] >= least - played.calibration.clock_uncertainty - TICK


def test_kernels_of_one_queue_that_ran_at_a_time_do_so_again(gpu: Gpu) -> None:
    """In one lane they would wait for each other; there are four at the most."""
    timeline = Timeline.of(np.arange(3) * 100_000, 300 * MS)
    played = gpu.play(timeline)
    _held(played, timeline)
    assert np.max(played.log["start"]) < np.min(played.log["end"])
    timeline = Timeline.of(np.arange(6) * 100_000, 100 * MS)
    played = gpu.play(timeline)
    _held(played, timeline)
    assert len(np.unique(played.log["stream"])) == LANES


def test_queues_do_not_wait_for_each_other(gpu: Gpu) -> None:
    """A long kernel of one stream would hold up all others."""
    timeline = Timeline.of(np.arange(51) * 100_000, np.array([400 * MS] + [20_000] * 50), np.array([0] + [1] * 50))
    played = gpu.play(timeline, priorities=[0, 0])
    _held(played, timeline)
    assert np.max(played.log["end"][1:]) < played.log["end"][0]


def test_nothing_is_lost_when_cells_and_rows_are_used_again(gpu: Gpu) -> None:
    """200,000 kernels go three times through the 65,536 places of the rings; four queues, each four of five close."""
    n = 200_000
    at = np.arange(n)
    timeline = Timeline.of(at // 4 * 12_000 + at // 20 * 100, 10_000, queue=at % 4)
    played = gpu.play(timeline, priorities=[0] * 4, ahead_ns=4 * MS)
    _held(played, timeline)
    error = played.late - played.truly_late
    assert np.ptp(error) <= played.calibration.clock_uncertainty + 2 * TICK + S // 5000


def test_kernels_that_follow_closely_are_launched_together(gpu: Gpu) -> None:
    """One by one the host could not launch as many a second as programs with graphs run."""
    shapes = [Shape(), Shape("gemm", 64, grid=(1000, 1, 1), dynamic=64 * 1024)]
    at = np.arange(3000)
    timeline = Timeline.of(at * 5800 + at // 100 * 50_000, 5000, launch=at % 2)
    played = gpu.play(timeline, shapes=shapes)
    _held(played, timeline)
    place = played.log["place"]
    assert played.stand.in_trains == np.count_nonzero(place) > 500
    assert len(np.unique(played.log["stream"])) == 1
    assert np.array_equal(played.log["name"] == b"gemm", at % 2 == 1)


def test_kernels_launched_together_do_not_keep_other_queues(gpu: Gpu) -> None:
    """A graph runs once at a time: whoever launches it again, in whatever stream, waits."""
    burst = np.repeat(np.arange(31), 3)  # the first is launched alone
    due = burst * MS + np.tile([0, 20_000, 40_000], 31)
    duration = np.full(93, 20_000)
    duration[2] = 400 * MS
    timeline = Timeline.of(due, duration, np.minimum(burst, 1))
    played = gpu.play(timeline, priorities=[0, 0])
    _held(played, timeline)
    assert played.stand.in_trains >= 20
    assert np.max(played.log["end"][3:]) < played.log["end"][2]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kernels=st.lists(
        st.tuples(
            st.one_of(st.just(0), st.integers(0, 3000), st.integers(0, MS)),  # after the one before
            st.one_of(st.integers(0, 3000), st.integers(0, 200_000)),
            st.integers(0, 2),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=60,
    ),
    from_ns=st.sampled_from([-3 * MS, MS, 3 * MS]),
    ahead_ns=st.sampled_from([0, 200_000, 10 * MS]),
)
def test_any_timeline(gpu: Gpu, kernels: list[tuple[int, int, int, int]], from_ns: int, ahead_ns: int) -> None:
    """Whatever overlaps and whatever rests: all begin once, each lane in order, none early."""
    after, duration, queue, launch = np.array(kernels).T
    timeline = Timeline.of(np.cumsum(after), duration, queue, launch)
    shapes = [Shape(), Shape("gemm", 200, grid=(132 * 30, 1, 1))]
    played = gpu.play(timeline, shapes=shapes, priorities=[0, 0, -1], from_ns=from_ns, ahead_ns=ahead_ns)
    _held(played, timeline)
    assert np.all(np.abs(played.late - played.truly_late) <= played.calibration.clock_uncertainty + 2 * TICK + 20_000)

"""Traces: the attribution of recorded launches against a plain replay, and of made-up ones against reasoning."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent.activity import Activity, decode
from spanlite.agent.anchors import Anchors, Externals, anchors_of, externals_of, unwrap
from spanlite.agent.boundaries import Boundaries, stamped_boundaries
from spanlite.agent.nesting import ranges_from_boundaries, ranges_from_markers
from spanlite.agent.ranges import NONE, UNKNOWN, Ranges
from spanlite.agent.recording import read_recording
from spanlite.agent.traces import Attribution, Status, attribute, stream_keys

DATA = Path(__file__).parent.parent / "data" / "h200"
A, B = (7 << 32) | 1, (7 << 32) | 2
CUDA_LAUNCH_KERNEL = 211
RUNTIME = 5


def load(name: str) -> Activity:
    recording = read_recording(DATA / f"{name}.bin.xz")
    return decode(recording.data, recording.layout())


def attribute_kernels(
    activity: Activity, ranges: Ranges | None = None, externals: Externals | None = None
) -> Attribution:
    kernels = activity.kernels
    return attribute(
        kernels["correlation_id"].astype(np.int64),
        stream_keys(kernels["context_id"], kernels["stream_id"]),
        gpu_start_ns=kernels["start"].astype(np.int64),
        ranges=ranges or ranges_from_markers(activity.markers),
        anchors=anchors_of(activity),
        externals=externals_of(activity) if externals is None else externals,
    )


def without_queueing_times(activity: Activity) -> Activity:
    kernels = activity.kernels.copy()
    kernels["queued"] = 0
    return replace(activity, kernels=kernels, externals=activity.externals[:0])


@dataclass(frozen=True)
class Truth:
    """A recording whose every call is recorded, and what each kernel belongs to by replaying it call by call."""

    activity: Activity
    stage: npt.NDArray[np.int64]
    root: npt.NDArray[np.int64]


@pytest.fixture(scope="module")
def truth() -> Truth:
    activity = load("stages-cupti130401")
    called = dict(zip(activity.apis["correlation_id"].tolist(), activity.apis["start"].tolist(), strict=True))
    events = [
        (time, flag, 0)
        for flag, time in zip(activity.markers["flags_"], activity.markers["timestamp"].tolist(), strict=True)
    ]
    events += [(called[launch], 0, row) for row, launch in enumerate(activity.kernels["correlation_id"].tolist())]
    stack: list[int] = []
    opened = 0
    found = np.zeros((len(activity.kernels), 2), np.int64)
    for _, flag, row in sorted(events):
        if flag == 2:
            stack.append(opened)
            opened += 1
        elif flag == 4:
            stack.pop()
        else:
            found[row] = (stack[-1], stack[0]) if stack else (-1, -1)
    return Truth(activity, found[:, 0], found[:, 1])


@pytest.fixture(scope="module")
def serving() -> Activity:
    return load("serve-cupti130500")


def assert_never_wrong(found: Attribution, truth: Truth) -> None:
    """Whatever is claimed is true, and an unknown stage still has a parent that encloses the true one."""
    claimed = found.stage != UNKNOWN
    assert found.stage[claimed].tolist() == truth.stage[claimed].tolist()
    rooted = found.root != UNKNOWN
    assert found.root[rooted].tolist() == truth.root[rooted].tolist()
    parents = ranges_from_markers(truth.activity.markers).parent.tolist()
    for parent, stage in zip(found.range_number[~claimed].tolist(), truth.stage[~claimed].tolist(), strict=True):
        up = stage
        while up not in (parent, NONE):
            up = parents[up]
        assert up == parent


def test_every_kernel_of_a_fully_recorded_run_has_its_stage_parent_and_root(truth: Truth) -> None:
    """27,152 kernels equal a replay of the recording, call by call, with a stack."""
    found = attribute_kernels(truth.activity)
    assert len(found.stage) == 27152
    assert found.stage.tolist() == truth.stage.tolist()
    assert found.range_number.tolist() == truth.stage.tolist()
    assert found.root.tolist() == truth.root.tolist()
    assert set(found.status.tolist()) == {Status.EXACT}


def test_queueing_times_stand_in_for_call_records(truth: Truth) -> None:
    """With latency timestamps on, kernels alone tell their stage: no call, no external id is needed."""
    found = attribute_kernels(replace(truth.activity, apis=truth.activity.apis[:0]))
    assert found.stage.tolist() == truth.stage.tolist()


def test_launch_calls_alone_never_give_a_wrong_stage(truth: Truth) -> None:
    """Only cudaLaunchKernel recorded, as in production runs: nothing wrong, few stages unknown, no trace unknown."""
    apis = truth.activity.apis
    kept = (apis["kind"] == RUNTIME) & (apis["cbid"] == CUDA_LAUNCH_KERNEL)
    found = attribute_kernels(without_queueing_times(replace(truth.activity, apis=apis[kept])))
    assert_never_wrong(found, truth)
    assert Counter(found.status.tolist())[Status.EXACT] == 14668
    assert found.stage_unknown.mean() < 0.08
    assert found.trace_unknown.sum() == 0


@settings(max_examples=12, deadline=None)
@given(share=st.sampled_from([0.5, 0.1, 0.01]), seed=st.integers(0, 2**32 - 1))
def test_calls_recorded_at_random_never_give_a_wrong_stage(truth: Truth, share: float, seed: int) -> None:
    """Whichever launches are recorded, what is claimed is true."""
    apis = truth.activity.apis
    launches = np.isin(apis["correlation_id"], truth.activity.kernels["correlation_id"])
    kept = launches & (np.random.default_rng(seed).random(len(apis)) < share)
    found = attribute_kernels(without_queueing_times(replace(truth.activity, apis=apis[kept])))
    assert_never_wrong(found, truth)
    assert found.stage_unknown.mean() < {0.5: 0.25, 0.1: 0.85, 0.01: 1.0}[share]


def test_stamps_alone_give_every_stage(truth: Truth) -> None:
    """Without any call record, boundaries stamped with the newest correlation id tell every kernel's stage."""
    markers, apis = truth.activity.markers, truth.activity.apis
    issued = dict(enumerate(np.searchsorted(apis["start"], markers["timestamp"]).tolist()))
    newest = [int(apis["correlation_id"][count - 1]) if count else 0 for count in issued.values()]
    stamps = stamped_boundaries(
        np.array(newest, np.int64),
        np.full(len(markers), A, np.uint64),
        delta=np.where(markers["flags_"] == 2, 1, -1),
        name=markers["name"].astype(np.uint64),
    )
    bare = without_queueing_times(
        replace(truth.activity, apis=apis[:0], synchronizations=truth.activity.synchronizations[:0])
    )
    found = attribute_kernels(bare, ranges_from_boundaries(stamps))
    assert found.stage.tolist() == truth.stage.tolist()
    assert found.root.tolist() == truth.root.tolist()
    assert set(found.status.tolist()) == {Status.STAMPED}


def request_of_kernels(activity: Activity) -> npt.NDArray[np.int64]:
    """Each request waits for the GPU before it ends, so a kernel ran within the host times of its own."""
    depth, bounds = 0, []
    for marker in activity.markers.tolist():
        if marker[1] == 2:
            bounds += [marker[2]] if depth == 0 else []
            depth += 1
        else:
            depth -= 1
            bounds += [marker[2]] if depth == 0 else []
    place = np.searchsorted(np.array(bounds), activity.kernels["start"])
    assert (place % 2 == 1).all()
    return place // 2


def test_kernels_take_the_external_id_of_their_call_or_of_their_request(serving: Activity) -> None:
    """32,718 kernels have their own id, the other 27,762 that of their request; no trace and no stage is unknown."""
    own = dict(
        zip(serving.externals["correlation_id"].tolist(), serving.externals["external_id"].tolist(), strict=True)
    )
    launches = serving.kernels["correlation_id"].tolist()
    found = attribute_kernels(serving)
    recorded = [row for row, launch in enumerate(launches) if launch in own]
    assert len(recorded) == 32718
    assert found.external_id[recorded].tolist() == [own[launches[row]] for row in recorded]
    assert found.external_id.tolist() == (1000 + request_of_kernels(serving)).tolist()
    assert [found.traces.key(row) for row in found.trace[[0, -1]].tolist()] == [1000, 1023]
    assert len(found.traces) == 24
    assert (int(found.trace_unknown.sum()), int(found.stage_unknown.sum())) == (0, 0)


def test_ranges_alone_group_kernels_by_request(serving: Activity) -> None:
    """Without external ids every request is a trace of its own, named by its range and started with it."""
    found = attribute_kernels(replace(serving, externals=serving.externals[:0]))
    ranges = ranges_from_markers(serving.markers)
    assert found.trace.tolist() == request_of_kernels(serving).tolist()
    assert found.traces.start_ns.tolist() == ranges.start_ns[ranges.depth == 0].tolist()
    assert [found.traces.key(row) for row in (0, 1)] == [-1, -1 - int(ranges.number[ranges.depth == 0][1])]
    assert found.traces.of_ranges(ranges).tolist() == (np.cumsum(ranges.depth == 0) - 1).tolist()


def test_external_ids_alone_reach_the_launches_between_them(serving: Activity) -> None:
    """Without ranges a kernel between two recorded launches of one id has that id."""
    found = attribute_kernels(replace(serving, markers=serving.markers[:0]))
    assert found.external_id.tolist() == (1000 + request_of_kernels(serving)).tolist()
    assert set(found.status.tolist()) == {Status.NONE}


def test_without_recorded_calls_nothing_is_guessed() -> None:
    """Six synchronisations bound no launch on one side of a request's edge: all 19,628 kernels stay unknown."""
    activity = load("serve-cupti130001")
    found = attribute_kernels(activity)
    assert Counter(found.status.tolist()) == {Status.UNKNOWN: 19628}
    assert set(found.trace.tolist()) == {NONE}
    assert int(found.trace_unknown.sum()) == 19628


def ranges_of(*rows: tuple[int, int, int]) -> Ranges:
    """(thread, time, +1 or -1)."""
    return ranges_from_boundaries(
        Boundaries(
            time_ns=np.array([time for _, time, _ in rows], np.int64),
            thread=np.array([thread for thread, _, _ in rows], np.uint64),
            opens=np.array([delta > 0 for _, _, delta in rows], np.bool_),
            key=np.zeros(len(rows), np.int64),
            name=np.zeros(len(rows), np.uint64),
        )
    )


def anchors(*rows: tuple[int, int, int]) -> Anchors:
    """(correlation, time, thread)."""
    ids, times, threads = (np.array(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return Anchors(np.asarray(ids, np.int64), np.asarray(times, np.int64), np.asarray(threads, np.uint64))


def attribute_launches(
    *launches: tuple[int, int, int], ranges: Ranges, calls: Anchors, externals: Externals | None = None
) -> Attribution:
    """(correlation, stream, GPU start)."""
    ids, streams, starts = np.array(launches, np.int64).reshape(-1, 3).T
    return attribute(ids, streams, gpu_start_ns=starts, ranges=ranges, anchors=calls, externals=externals)


TWO_THREADS = ranges_of((A, 10, 1), (B, 11, 1), (A, 90, -1), (B, 91, -1))


def test_stream_tells_the_thread_of_an_unrecorded_launch() -> None:
    """Each thread launches into its own stream: the launches between are in that thread's range."""
    calls = anchors((1, 20, A), (2, 21, B), (5, 30, A), (6, 31, B))
    found = attribute_launches(
        (1, 1, 25), (2, 2, 26), (3, 1, 27), (4, 2, 28), (5, 1, 40), (6, 2, 41), ranges=TWO_THREADS, calls=calls
    )
    assert found.stage.tolist() == [0, 1, 0, 1, 0, 1]
    assert found.status.tolist() == [
        Status.EXACT,
        Status.EXACT,
        Status.BETWEEN,
        Status.BETWEEN,
        Status.EXACT,
        Status.EXACT,
    ]


def test_stream_of_two_threads_tells_nothing() -> None:
    """An unrecorded launch into a stream that two threads use is unknown; recorded ones are not."""
    calls = anchors((1, 20, A), (2, 21, B), (5, 30, A), (6, 31, B))
    found = attribute_launches(
        (1, 1, 25), (2, 1, 26), (3, 1, 27), (5, 1, 40), (6, 1, 41), ranges=TWO_THREADS, calls=calls
    )
    assert found.stage.tolist() == [0, 1, UNKNOWN, 0, 1]
    assert found.root.tolist() == [0, 1, UNKNOWN, 0, 1]
    assert found.range_number[2] == NONE


def test_another_threads_calls_bound_nothing() -> None:
    """Ids and times of two threads need not agree on an order, so only the launching thread's calls count."""
    ranges = ranges_of((A, 10, 1), (A, 20, 1), (A, 30, -1), (A, 90, -1))
    calls = anchors((1, 12, A), (2, 13, B), (4, 14, B), (5, 40, A))
    found = attribute_launches((1, 1, 50), (3, 1, 60), (2, 2, 50), (5, 1, 70), ranges=ranges, calls=calls)
    assert found.stage.tolist() == [0, UNKNOWN, NONE, 0]
    assert found.range_number.tolist() == [0, 0, NONE, 0]
    assert found.status[1] == Status.UNKNOWN_STAGE


def test_backward_thread_without_ranges_is_outside_them() -> None:
    """A training step: recorded launches of the backward thread have no stage, unrecorded ones on the shared stream
    are unknown, not taken for the forward thread's."""
    ranges = ranges_of((A, 10, 1), (A, 90, -1))
    calls = anchors((1, 20, A), (2, 30, B), (4, 40, B), (5, 80, A))
    found = attribute_launches((1, 7, 25), (2, 7, 35), (3, 7, 38), (4, 7, 45), (5, 7, 85), ranges=ranges, calls=calls)
    assert found.stage.tolist() == [0, NONE, UNKNOWN, NONE, 0]
    assert found.trace.tolist() == [0, NONE, NONE, NONE, 0]


def test_gpu_start_bounds_a_launch_whose_next_call_is_missing() -> None:
    """A launch came before its own start on the GPU, and before that of any later one."""
    ranges = ranges_of((A, 10, 1), (A, 50, -1))
    found = attribute_launches((3, 1, 60), (4, 1, 45), (5, 1, 70), ranges=ranges, calls=anchors((1, 20, A)))
    assert found.stage.tolist() == [0, 0, UNKNOWN]
    assert found.waiting.tolist() == [False, False, True]


def test_executions_of_one_graph_launch_share_its_stage() -> None:
    """Kernels of a graph carry the id of the one launch call."""
    ranges = ranges_of((A, 10, 1), (A, 20, -1), (A, 30, 1), (A, 40, -1))
    calls = anchors((1, 12, A), (2, 35, A))
    found = attribute_launches(
        *[(1, 1, 100 + i) for i in range(3)], *[(2, 1, 110 + i) for i in range(3)], ranges=ranges, calls=calls
    )
    assert found.stage.tolist() == [0, 0, 0, 1, 1, 1]


def test_stage_in_a_range_that_outlived_its_parent_is_unknown() -> None:
    """Whether it is the range or its parent that was left cannot be told; the parent surely encloses."""
    boundaries = Boundaries(
        time_ns=np.array([10, 20, 30, 40], np.int64),
        thread=np.full(4, A, np.uint64),
        opens=np.array([True, True, False, False]),
        key=np.array([1, 2, 1, 2], np.int64),
        name=np.zeros(4, np.uint64),
    )
    calls = anchors((1, 15, A), (2, 25, A), (3, 35, A))
    found = attribute_launches(*[(i, 1, 99) for i in (1, 2, 3)], ranges=ranges_from_boundaries(boundaries), calls=calls)
    assert found.stage.tolist() == [0, UNKNOWN, NONE]
    assert found.range_number.tolist() == [0, 0, NONE]
    assert found.root.tolist() == [0, 0, NONE]


def test_launch_between_two_external_ids_has_neither() -> None:
    """Outside ranges, neighbours with different ids leave a launch without an id and without a trace."""
    externals = Externals(np.array([1, 3, 5]), np.array([50, 50, 60], np.uint64))
    calls = anchors((1, 11, A), (3, 13, A), (5, 15, A))
    found = attribute_launches(*[(i, 1, 95) for i in range(7)], ranges=ranges_of(), calls=calls, externals=externals)
    assert found.has_external.tolist() == [False, True, True, True, False, True, False]
    assert found.external_id.tolist() == [0, 50, 50, 50, 0, 60, 0]
    assert found.trace.tolist() == [NONE, 0, 0, 0, NONE, 1, NONE]
    assert found.traces.start_ns.tolist() == [95, 95]


def test_root_whose_launches_have_several_ids_hands_on_none() -> None:
    """A training loop in one range, one id a step: own id, else that of agreeing neighbours, else the range's trace."""
    ranges = ranges_of((A, 10, 1), (A, 90, -1))
    calls = anchors(*[(i, 10 + i, A) for i in range(1, 7)])
    externals = Externals(np.array([1, 3, 4, 6]), np.array([50, 50, 60, 60], np.uint64))
    found = attribute_launches(*[(i, 1, 95) for i in range(1, 7)], ranges=ranges, calls=calls, externals=externals)
    assert found.external_id.tolist() == [50, 50, 50, 60, 60, 60]
    later = attribute_launches(
        (7, 1, 95), (1, 1, 95), (6, 1, 95), ranges=ranges, calls=anchors((1, 11, A), (7, 17, A)), externals=externals
    )
    assert later.has_external.tolist() == [False, True, True]
    assert [later.traces.key(row) for row in later.trace.tolist()] == [-1, 50, 60]


def test_ranges_nested_beyond_measure_are_given_up_not_searched() -> None:
    """A common range more than a few hundred levels up is unknown; one a few levels up is found."""
    steps = [(A, 10 + 2 * i, 1) for i in range(2000)] + [(A, 10000 + 2 * i, -1) for i in range(2000)]
    calls = anchors((2, 13, A), (5, 3001, A), (8, 9001, A), (11, 10005, A), (14, 13981, A))
    found = attribute_launches(*[(i, 1, 20000) for i in (3, 6, 9, 12)], ranges=ranges_of(*steps), calls=calls)
    assert found.range_number.tolist() == [NONE, 1495, 1996, NONE]
    assert found.root.tolist() == [UNKNOWN, 0, 0, UNKNOWN]


def test_no_ranges_is_no_stage_and_not_unknown() -> None:
    """A program without NVTX has nothing to be unknown about, even with two threads on one stream."""
    found = attribute_launches((1, 1, 5), (2, 1, 6), ranges=ranges_of(), calls=anchors((1, 1, A), (3, 2, B)))
    assert found.status.tolist() == [Status.NONE, Status.NONE]
    assert found.trace.tolist() == [NONE, NONE]


def test_nothing_gives_nothing() -> None:
    """No launches: empty columns; the ranges still have their traces."""
    found = attribute_launches(ranges=TWO_THREADS, calls=anchors())
    assert len(found.stage) == len(found.trace) == 0
    assert found.traces.of_ranges(TWO_THREADS).tolist() == [0, 1]


def test_external_kinds_are_chosen_in_the_documented_order() -> None:
    """Custom 0 before custom 1 before unknown; of one kind the last."""
    records = np.zeros(4, load("serve-cupti130500").externals.dtype)
    records["correlation_id"], records["external_kind"], records["external_id"] = 9, (1, 4, 3, 3), (1, 2, 3, 4)
    activity = replace(load("serve-cupti130500"), externals=records)
    found = externals_of(activity)
    assert (found.correlation.tolist(), found.external_id.tolist()) == ([9], [4])


@given(st.integers(0, 2**40), st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_unwrapped_ids_go_on_growing(reference: int, distances: list[int]) -> None:
    """Whatever 2^32 did to them, ids near the reference come back whole."""
    ids = np.array([reference + distance for distance in distances], np.int64)
    assert unwrap((ids % 2**32).astype(np.uint32), reference).tolist() == ids.tolist()

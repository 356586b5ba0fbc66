"""Tracker: a recording played flush by flush is attributed like the whole of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from spanlite.agent.activity import Activity, decode
from spanlite.agent.anchors import anchors_of, externals_of
from spanlite.agent.boundaries import Boundaries, stamped_boundaries
from spanlite.agent.nesting import ranges_from_markers
from spanlite.agent.ranges import OPEN_NS, UNKNOWN
from spanlite.agent.recording import read_recording
from spanlite.agent.traces import Attribution, attribute, stream_keys
from spanlite.agent.tracker import PATIENCE_NS, Tracker

DATA = Path(__file__).parent.parent / "data" / "h200"
FLUSHES = 12
LAUNCHES_PER_LAP = 2**32


@pytest.fixture(scope="module")
def serving() -> Activity:
    recording = read_recording(DATA / "serve-cupti130500.bin.xz")
    return decode(recording.data, recording.layout())


def whole(activity: Activity) -> Attribution:
    kernels = activity.kernels
    return attribute(
        kernels["correlation_id"].astype(np.int64),
        stream_keys(kernels["context_id"], kernels["stream_id"]),
        gpu_start_ns=kernels["start"].astype(np.int64),
        ranges=ranges_from_markers(activity.markers),
        anchors=anchors_of(activity),
        externals=externals_of(activity),
    )


def flushes(activity: Activity) -> list[Activity]:
    """Host records by the time they began, kernels by the time they ended, as a profiler hands them out."""
    cuts = np.linspace(activity.kernels["start"].min(), activity.kernels["end"].max() + 1, FLUSHES)[:-1]
    when = {"kernels": "end", "markers": "timestamp", "apis": "start", "synchronizations": "start"}
    turn = {name: np.searchsorted(cuts, getattr(activity, name)[field], side="right") for name, field in when.items()}
    call = np.searchsorted(activity.apis["correlation_id"], activity.externals["correlation_id"])
    turn["externals"] = turn["apis"][call]
    return [
        replace(activity, **{name: getattr(activity, name)[turns == index] for name, turns in turn.items()})
        for index in range(FLUSHES + 1)
    ]


def play(parts: list[Activity], tracker: Tracker) -> tuple[npt.NDArray[np.int64], list[int], list[int]]:
    """Id, stage, root and external id of kernels, waiting ones handed in again; the ranges that ended, and when."""
    held = parts[0].kernels[:0]
    done: list[npt.NDArray[np.int64]] = []
    ended: list[int] = []
    ends: list[int] = []
    for index, part in enumerate(parts):
        rows = np.concatenate((held, part.kernels))
        step = tracker.feed(
            part,
            rows["correlation_id"],
            stream=stream_keys(rows["context_id"], rows["stream_id"]),
            gpu_start_ns=rows["start"].astype(np.int64),
        )
        ended += step.ranges.number[step.ended].tolist()
        ends += step.ranges.end_ns[step.ended].tolist()
        found = step.attribution
        waiting = found.waiting & (index < len(parts) - 1)
        columns = (rows["correlation_id"].astype(np.int64), found.stage, found.root, found.external_id.astype(np.int64))
        done.append(np.stack(columns, axis=1)[~waiting])
        held = rows[waiting]
    table = np.concatenate(done)
    return table, ended, ends


@pytest.mark.parametrize("history_ns", [10**12, 10**9])
def test_flush_by_flush_is_like_the_whole(serving: Activity, history_ns: int) -> None:
    """Every kernel gets the stage, root and external id that it has in the whole recording, once; also when all but
    the last second is forgotten on the way."""
    table, ended, ends = play(flushes(serving), Tracker(history_ns=history_ns))
    expected = whole(serving)
    assert table[:, 0].tolist() == serving.kernels["correlation_id"].tolist()
    assert table[:, 1].tolist() == expected.stage.tolist()
    assert table[:, 2].tolist() == expected.root.tolist()
    assert table[:, 3].tolist() == expected.external_id.tolist()
    ranges = ranges_from_markers(serving.markers)
    assert sorted(ended) == ranges.number.tolist()
    assert ends == np.sort(ranges.end_ns).tolist()


def test_flush_by_flush_with_few_calls_is_never_wrong(serving: Activity) -> None:
    """With one call in fifty recorded, a stage that is claimed flush by flush is the one of the full recording."""
    few = replace(serving, apis=serving.apis[::50], externals=serving.externals[::50])
    table, _, _ = play(flushes(few), Tracker())
    truth = dict(zip(serving.kernels["correlation_id"].tolist(), whole(serving).stage.tolist(), strict=True))
    assert len(table) == len(truth)
    claimed = table[table[:, 1] != UNKNOWN]
    assert claimed[:, 1].tolist() == [truth[launch] for launch in claimed[:, 0].tolist()]
    assert len(claimed) > 0.2 * len(table)


def test_external_ids_are_remembered_until_their_kernels_come(serving: Activity) -> None:
    """Without ranges: a kernel that ends after the flush of its call still has the call's id, others none or theirs."""
    table, _, _ = play(flushes(replace(serving, markers=serving.markers[:0])), Tracker())
    truth = whole(serving).external_id.astype(np.int64)
    recorded = np.isin(serving.kernels["correlation_id"], serving.externals["correlation_id"])
    assert table[recorded, 3].tolist() == truth[recorded].tolist()
    assert ((table[:, 3] == 0) | (table[:, 3] == truth)).all()


def test_ids_that_wrap_go_on(serving: Activity) -> None:
    """CUPTI's 32-bit ids start over in the middle of the recording; nothing changes."""
    shift = LAUNCHES_PER_LAP - int(np.median(serving.kernels["correlation_id"]))

    def wrapped(records: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        records = records.copy()
        records["correlation_id"] = (records["correlation_id"].astype(np.int64) + shift) % LAUNCHES_PER_LAP
        return records

    parts = [
        replace(
            part,
            kernels=wrapped(part.kernels),
            apis=wrapped(part.apis),
            externals=wrapped(part.externals),
            synchronizations=wrapped(part.synchronizations),
        )
        for part in flushes(serving)
    ]
    table, _, _ = play(parts, Tracker())
    expected = whole(serving)
    assert table[0, 0] > table[-1, 0]
    assert table[:, 1].tolist() == expected.stage.tolist()
    assert table[:, 3].tolist() == expected.external_id.tolist()


def test_launches_wait_only_while_a_call_may_still_come(serving: Activity) -> None:
    """Of the launches after the last recorded call those of the last 100 ms wait; where no call comes along, none."""
    at = int(serving.apis["start"][-1])
    quiet = replace(serving, kernels=serving.kernels[:0])
    ids = quiet.synchronizations["correlation_id"].max() + np.array([1, 2], np.uint32)
    launches = {"stream": np.ones(2, np.int64), "gpu_start_ns": np.array([at + 10**9, at + 10**9 + 2 * PATIENCE_NS])}
    tracker = Tracker()
    first = tracker.feed(quiet, ids, stream=launches["stream"], gpu_start_ns=launches["gpu_start_ns"])
    assert first.attribution.stage_unknown.tolist() == [True, True]
    assert first.attribution.waiting.tolist() == [False, True]
    silent = replace(quiet, apis=quiet.apis[:0], markers=quiet.markers[:0])
    second = tracker.feed(silent, ids, stream=launches["stream"], gpu_start_ns=launches["gpu_start_ns"])
    assert second.attribution.waiting.tolist() == [False, False]


def test_stamps_replace_markers_and_an_open_range_reaches_into_the_next_flush(serving: Activity) -> None:
    """A range opened in one flush encloses launches of the next one; its end is reported once, when it comes."""
    nothing = replace(
        serving,
        kernels=serving.kernels[:0],
        markers=serving.markers[:0],
        apis=serving.apis[:0],
        externals=serving.externals[:0],
        synchronizations=serving.synchronizations[:0],
    )
    thread = (7 << 32) | 1

    def stamps(correlation: list[int], delta: list[int], time_ns: list[int]) -> Boundaries:
        return stamped_boundaries(
            np.array(correlation, np.int64),
            np.full(len(delta), thread, np.uint64),
            delta=np.array(delta, np.int64),
            name=np.zeros(len(delta), np.uint64),
            time_ns=np.array(time_ns, np.int64),
        )

    tracker = Tracker()
    found = []
    for launches, told in (([5, 11], ([10], [1], [100])), ([12, 21], ([20], [-1], [200])), ([22], ([], [], []))):
        ids = np.array(launches, np.uint32)
        step = tracker.feed(
            nothing, ids, stream=np.ones(len(ids), np.int64), gpu_start_ns=np.full(len(ids), 150), stamps=stamps(*told)
        )
        found.append((step.attribution.stage.tolist(), step.ranges.end_ns.tolist(), step.ended.tolist()))
    assert found == [([-1, 0], [OPEN_NS], []), ([0, -1], [200], [0]), ([-1], [200], [])]

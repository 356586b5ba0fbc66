"""Ranges: pairing, nesting and counting of NVTX boundaries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spanlite.agent.activity import OBJECT_PROCESS, OBJECT_THREAD, Activity, decode
from spanlite.agent.boundaries import Boundaries, marker_boundaries, stamped_boundaries
from spanlite.agent.layouts import layout_for
from spanlite.agent.nesting import Nesting, ranges_from_boundaries, ranges_from_markers
from spanlite.agent.ranges import NONE, OPEN_NS, UNKNOWN
from spanlite.agent.recording import read_recording

DATA = Path(__file__).parent.parent / "data" / "h200"
A, B = (7 << 32) | 1, (7 << 32) | 2
PROCESS = 7 << 32


def boundaries(*rows: tuple[int, int, int]) -> Boundaries:
    """(thread, time, key): the first boundary of a key opens, the next one closes; -key closes at once."""
    seen: set[int] = set()
    opens = []
    for _, _, key in rows:
        opens.append(key > 0 and key not in seen)
        seen.add(key)
    return Boundaries(
        time_ns=np.array([time for _, time, _ in rows], np.int64),
        thread=np.array([thread for thread, _, _ in rows], np.uint64),
        opens=np.array(opens, np.bool_),
        key=np.array([abs(key) for _, _, key in rows], np.int64),
        name=np.array([abs(key) * 10 for _, _, key in rows], np.uint64),
    )


@pytest.fixture(scope="module")
def stages() -> Activity:
    recording = read_recording(DATA / "stages-cupti130401.bin.xz")
    return decode(recording.data, recording.layout())


def test_recorded_ranges_nest_as_a_stack_per_thread_says(stages: Activity) -> None:
    """All 7,260 ranges of the recording have the times, parents, roots and depths of a plain stack."""
    expected: list[list[int]] = []
    stack: list[int] = []
    for marker in stages.markers.tolist():
        time = marker[2]
        if marker[1] == 2:
            expected.append([time, 0, stack[-1] if stack else -1, stack[0] if stack else len(expected), len(stack)])
            stack.append(len(expected) - 1)
        else:
            expected[stack.pop()][1] = time
    ranges = ranges_from_markers(stages.markers)
    found = np.stack((ranges.start_ns, ranges.end_ns, ranges.parent, ranges.root, ranges.depth), axis=1)
    assert len(ranges) == 7260
    assert found.tolist() == expected
    assert ranges.number.tolist() == list(range(7260))
    assert (ranges.unmatched_ends, ranges.crossings, ranges.ignored) == (0, 0, 0)


def test_markers_keep_their_names_and_the_timeline_its_segments(stages: Activity) -> None:
    """Names are the pointers of the opening markers; a timeline has one more segment than boundaries."""
    ranges = ranges_from_markers(stages.markers)
    assert ranges.name.tolist() == stages.markers["name"][stages.markers["flags_"] == 2].tolist()
    (timeline,) = ranges.timelines.values()
    assert (len(timeline.at), len(timeline.innermost)) == (14520, 14521)
    assert timeline.innermost[:3].tolist() == [NONE, 0, 1]


def test_threads_nest_on_their_own() -> None:
    """Ranges of two threads that overlap in time are no parents of each other."""
    ranges = ranges_from_boundaries(boundaries((A, 1, 1), (B, 2, 2), (A, 3, 3), (A, 4, 1 + 2), (B, 5, 2), (A, 6, 1)))
    assert ranges.parent.tolist() == [NONE, NONE, 0]
    assert ranges.root.tolist() == [0, 1, 0]
    assert ranges.end_ns.tolist() == [6, 5, 4]
    assert ranges.timelines[B].innermost.tolist() == [NONE, 1, NONE]


def test_end_without_start_is_counted_and_makes_what_was_before_unknown() -> None:
    """A range that began before the data did hides what its thread was in; ranges seen inside it stay known."""
    ranges = ranges_from_boundaries(boundaries((A, 1, 1), (A, 2, 1), (A, 3, -9), (A, 4, 2), (A, 5, 2)))
    assert ranges.unmatched_ends == 1
    assert ranges.timelines[A].innermost.tolist() == [UNKNOWN, 0, UNKNOWN, NONE, 1, NONE]


def test_open_range_ends_never() -> None:
    """A start without an end encloses everything after it."""
    ranges = ranges_from_boundaries(boundaries((A, 1, 1), (A, 2, 2), (A, 3, 2)))
    assert ranges.end_ns.tolist() == [OPEN_NS, 3]
    assert ranges.timelines[A].innermost.tolist() == [NONE, 0, 1, 0]


def test_range_that_outlives_its_parent_is_doubtful() -> None:
    """Crossing ranges are counted once; the inner one ends with the outer and its late end is no unmatched one."""
    ranges = ranges_from_boundaries(boundaries((A, 1, 1), (A, 2, 2), (A, 3, 1), (A, 4, 2)))
    assert (ranges.crossings, ranges.unmatched_ends) == (1, 0)
    assert ranges.doubtful.tolist() == [False, True]
    assert ranges.end_ns.tolist() == [3, 3]
    assert ranges.timelines[A].innermost.tolist() == [NONE, 0, 1, NONE, NONE]


def test_ranges_of_a_process_do_not_nest() -> None:
    """Start/end ranges cross freely, have no parent and no root, and define no timeline."""
    ranges = ranges_from_boundaries(boundaries((PROCESS, 1, 1), (A, 2, 2), (PROCESS, 3, 3), (PROCESS, 4, 1), (A, 5, 2)))
    assert ranges.nested.tolist() == [False, True, False]
    assert ranges.parent.tolist() == [NONE, NONE, NONE]
    assert ranges.root.tolist() == [NONE, 1, NONE]
    assert ranges.end_ns.tolist() == [4, 5, OPEN_NS]
    assert list(ranges.timelines) == [A]


def test_markers_that_are_no_boundaries_are_ignored_and_counted() -> None:
    """An instantaneous marker neither opens nor closes; a marker of a process has thread id 0."""
    markers = np.zeros(3, layout_for(130400).dtypes[12])
    markers["timestamp"], markers["id"], markers["flags_"] = (30, 20, 10), (5, 6, 5), (4, 1, 2)
    markers["object_kind"] = (OBJECT_THREAD, OBJECT_THREAD, OBJECT_THREAD)
    markers.view(np.uint32).reshape(3, 14)[:, 6:8] = (7, 1)
    found = marker_boundaries(markers)
    assert (found.ignored, found.opens.tolist(), found.time_ns.tolist()) == (1, [True, False], [10, 30])
    assert found.thread.tolist() == [A, A]
    markers["object_kind"] = OBJECT_PROCESS
    assert marker_boundaries(markers).thread.tolist() == [PROCESS, PROCESS]


def test_stamps_pair_by_nesting() -> None:
    """Stamps carry no range id: a pop closes the innermost range of its thread."""
    stamps = stamped_boundaries(
        np.array([5, 5, 9, 12], np.int64),
        np.full(4, A, np.uint64),
        delta=np.array([1, 1, -1, -1], np.int64),
        name=np.array([3, 4, 0, 0], np.uint64),
        time_ns=np.array([100, 101, 102, 103], np.int64),
    )
    ranges = ranges_from_boundaries(stamps)
    assert ranges.by_correlation
    assert (ranges.start_ns.tolist(), ranges.end_ns.tolist()) == ([100, 101], [103, 102])
    assert ranges.timelines[A].at.tolist() == [5, 5, 9, 12]


@pytest.mark.parametrize("cut", range(1, 6))
def test_cut_anywhere_boundaries_nest_the_same(cut: int) -> None:
    """Numbers, parents and ends carry over from one feed to the next, whatever is open in between."""
    rows = ((A, 1, 1), (A, 2, 2), (B, 3, 3), (A, 4, 2), (B, 5, 3), (A, 6, 1))
    every = boundaries(*rows)
    nesting = Nesting()
    ended = [
        number
        for part in (slice(0, cut), slice(cut, None))
        for number in nesting.feed(
            Boundaries(*(getattr(every, name)[part] for name in ("time_ns", "thread", "opens", "key", "name")))
        ).tolist()
    ]
    whole, parts = ranges_from_boundaries(every), nesting.ranges()
    assert ended == [1, 2, 0]
    for name in ("number", "start_ns", "end_ns", "parent", "root", "depth"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
    assert parts.timelines[A].innermost.tolist() == whole.timelines[A].innermost.tolist()


def test_forgotten_boundaries_leave_the_unknown_behind_and_keep_open_ranges() -> None:
    """What lies before the forgotten time is unknown, what is open stays, what ended is gone."""
    nesting = Nesting()
    nesting.feed(boundaries((A, 1, 1), (A, 2, 2), (A, 3, 2), (A, 4, 3), (A, 9, 3)))
    nesting.forget(5)
    ranges = nesting.ranges()
    assert ranges.number.tolist() == [0, 2]
    assert ranges.rows(np.array([2, 0])).tolist() == [1, 0]
    assert ranges.timelines[A].innermost.tolist() == [UNKNOWN, 2, 0]


def test_threads_that_are_gone_are_forgotten() -> None:
    """A thread that has no open range and no recent boundary leaves nothing behind; the others stay."""
    nesting = Nesting()
    nesting.feed(boundaries((A, 1, 1), (A, 2, 1), (B, 3, 2), (B, 4, 3)))
    nesting.forget(5)
    ranges = nesting.ranges()
    assert list(ranges.timelines) == [B]
    assert ranges.number.tolist() == [1, 2]


def test_few_old_boundaries_are_kept() -> None:
    """Forgetting costs a pass over all, so it waits until a quarter is old."""
    nesting = Nesting()
    nesting.feed(boundaries((A, 1, 1), (A, 2, 1), *((A, 10 + i, 2 + i // 2) for i in range(8))))
    nesting.forget(5)
    assert len(nesting.ranges()) == 5


def test_nothing_gives_nothing() -> None:
    """No boundaries: no ranges, no timelines, no error."""
    ranges = ranges_from_boundaries(boundaries())
    assert len(ranges) == 0
    assert not ranges.timelines
    assert not ranges.by_correlation

"""Comparisons of small random batches: all that went wrong is found, counted exactly, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ReplayError
from spanlite.replay.compare.told import Told
from spanlite.replay.identity import Keys
from spanlite.replay.selection import Selection
from tests.replay.compare import brute
from tests.replay.compare.made import Change, compared, emitted, faults, originals, told, with_column, without_row

RUNS = (
    told(),
    told(offset_ns=7_200_000_000_123),
    told(remapped=True),
    told(remapped=True, loops=3, offset_ns=-55, period_ns=10**10),
)


def _exploded(batches: list[Batch], run: Told, *, came: bool) -> list[tuple[brute.Identity, brute.Span]]:
    found = []
    producers = {bytes(15) + bytes([session]) for session in (11, 12)}
    for at, one in enumerate(batches):
        loops = range(run.loops) if not came else (_loop(one, run, producers),)
        for loop in loops:
            keys = Keys.of(run.run, run.seed, loop) if came and run.remapped else None
            back = run.moved_ns(loop) if came else 0
            found += [(loop, at, (loop, *key), span) for key, span in brute.spans_of(one, keys, back)]
    return [(identity, span) for _, _, identity, span in sorted(found, key=lambda row: row[0] if not came else 0)]


def _loop(one: Batch, run: Told, producers: set[bytes]) -> int:
    for loop in range(run.loops):
        key = Keys.of(run.run, run.seed, loop).producer
        if bytes(a ^ b for a, b in zip(one.producer, key, strict=True)) in producers:
            return loop
    return 0


@settings(max_examples=70, deadline=None)
@given(original=originals(), change=faults(), run=st.sampled_from(RUNS), window=st.sampled_from([1, 4, 1 << 18]))
def test_what_went_wrong_is_found_exactly(original: list[Batch], change: Change, run: Told, window: int) -> None:
    """Whatever is dropped, sent again, swapped or changed, every count is that of dictionaries in plain Python."""
    came = change(emitted(original, run))
    ours, theirs = _exploded(original, run, came=False), _exploded(came, run, came=True)
    wanted = brute.expected(ours, theirs)
    if not came or wanted["missing"] == wanted["spans_original"]:
        with pytest.raises(ReplayError):
            compared(original, came, run, window_spans=window)
        return
    report = compared(original, came, run, window_spans=window)
    columns, failed = wanted.pop("columns"), wanted.pop("failed")
    assert {name: report.figures.values[name] for name in wanted} == wanted
    assert report.changed == columns
    traces = {trace.hex() + (f" of turn {loop}" if loop else "") for loop, trace in failed}
    named = {one["trace"] for one in report.failed_traces}
    assert named <= traces
    assert len(named) == min(len(traces), 10)
    if wanted["traces_original"]:
        everything = {(key[0], span["trace_id"]) for key, span in (*ours, *theirs) if span["trace_id"]}
        assert report.figures.values["topology"] == 100 * (len(everything) - len(failed)) / len(everything)


@settings(max_examples=30, deadline=None)
@given(original=originals(), run=st.sampled_from(RUNS), window=st.sampled_from([1, 1 << 18]), seed=st.randoms())
def test_a_faithful_replay_compares_as_equal(original: list[Batch], run: Told, window: int, seed: object) -> None:
    """Kept, shifted, mapped and looped: nothing is missing, foreign or changed, in whatever order messages come."""
    came = emitted(original, run)
    seed.shuffle(came)  # type: ignore[attr-defined]  # hypothesis' random
    report = compared(original, came, run, window_spans=window)
    values = report.figures.values
    for name in ("missing", "duplicate", "foreign", "changed", "traces_failed", "timing_error_ns", "repeated_batches"):
        assert values[name] == 0, name
    assert values["spans_replay"] == values["spans_original"] == run.loops * sum(len(one.columns) for one in original)
    assert values["batches_replay"] == values["batches_original"] == run.loops * len(original)
    assert values.get("topology", 100) == 100
    assert report.changed == {}
    assert report.failed_traces == []


@pytest.fixture
def one(small: list[Batch]) -> list[Batch]:
    """Two recorded batches of a hundred spans."""
    return small[:2]


def test_one_dropped_span_is_one_missing_span(one: list[Batch]) -> None:
    """One row left out: one missing, its trace fails and is named, nothing else is wrong."""
    came = emitted(one, told())
    row = int(np.flatnonzero(one[0].columns.trace >= 0)[3])
    report = compared(one, [*without_row(came[0], row), came[1]], told())
    values = report.figures.values
    assert (values["missing"], values["duplicate"], values["foreign"], values["changed"]) == (1, 0, 0, 0)
    trace = one[0].columns.traces["id"][one[0].columns.trace[row]].tobytes().hex()
    assert report.failed_traces == [{"trace": trace, "why": "a span is missing"}]


def test_another_parent_fails_its_trace_alone(one: list[Batch]) -> None:
    """A parent that differs is one changed span, in one column, and one trace that is not what it was."""
    came = emitted(one, told())
    row = int(np.flatnonzero(one[0].columns.parent >= 0)[0])
    changed = with_column(came[0], "parent", row, int(one[0].columns.parent[row]) + 1)
    report = compared(one, [changed, came[1]], told())
    assert report.changed == {"parent_span_id": 1}
    assert [one["why"] for one in report.failed_traces] == ["a parent differs"]
    traces = report.figures.values["traces_original"]
    assert report.figures.values["topology"] == 100 * (traces - 1) / traces


def test_a_parent_in_another_process_is_part_of_it(one: list[Batch]) -> None:
    """A trace that names another parent elsewhere fails, though each of its spans is as it was."""
    came = emitted(one, told(remapped=True))
    for batch in came:
        batch.columns.traces["remote_parent"][:] = 99
    report = compared(one, came, told(remapped=True))
    assert {one["why"] for one in report.failed_traces} == {"its parent in another process differs"}
    assert set(report.changed) == {"trace_remote_parent"}


def test_errors_of_times_are_told_in_nanoseconds(one: list[Batch]) -> None:
    """One start a nanosecond off and one duration two: maxima, means and classes say so."""
    came = emitted(one, told(offset_ns=5))
    start, duration = int(came[0].columns.start_ns[1]), int(came[0].columns.duration_ns[2])
    changed = with_column(with_column(came[0], "start_ns", 1, start - 1), "duration_ns", 2, duration + 2)
    values = compared(one, [changed, came[1]], told(offset_ns=5)).figures.values
    spans = sum(len(batch.columns) for batch in one)
    assert (values["start_error_max_ns"], values["duration_error_max_ns"], values["timing_error_ns"]) == (1, 2, 2)
    assert (values["start_error_mean_ns"], values["duration_error_mean_ns"]) == (1 / spans, 2 / spans)


def test_swapped_messages_are_out_of_order(small: list[Batch]) -> None:
    """A message that comes late is one out of order; all others are where they were."""
    came = emitted(small[:6], told())
    came.insert(4, came.pop(1))
    values = compared(small[:6], came, told()).figures.values
    assert (values["out_of_order"], values["changed"], values["missing"]) == (1, 0, 0)


def test_others_messages_are_set_aside(one: list[Batch]) -> None:
    """What says that it is of another run, or of none, is counted and neither foreign nor a duplicate."""
    came = [*emitted(one, told()), *one, *emitted(one, told(run="other"))]
    report = compared(one, came, told())
    values = report.figures.values
    assert (values["other_batches"], values["duplicate"], values["foreign"]) == (4, 0, 0)
    assert any("set aside" in note for note in report.notes)


def test_a_span_that_the_original_holds_twice_counts_once(one: list[Batch]) -> None:
    """A damaged archive is told in a note, wherever its second copy stands, and does not make spans missing."""
    for window in (1, 1 << 18):
        report = compared([*one, one[0]], emitted(one, told()), told(), window_spans=window)
        values = report.figures.values
        assert (values["missing"], values["spans_original"]) == (0, sum(len(batch.columns) for batch in one))
        assert any("more than once" in note for note in report.notes)


@pytest.mark.parametrize("fault", ["wrong", "empty", "nothing"])
def test_sides_that_have_nothing_in_common_are_told(one: list[Batch], small: list[Batch], fault: str) -> None:
    """Another archive, nothing of the run, and a selection of nothing are errors and no report."""
    run = told(selection=Selection(hosts=("nowhere",))) if fault == "nothing" else told()
    came = [] if fault == "empty" else emitted(one, told())
    with pytest.raises(ReplayError, match="name"):
        compared(small[5:] if fault == "wrong" else one, came, run)

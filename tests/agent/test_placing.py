"""Placing: made-up programs of two threads, attributed, against bounds and stacks taken one launch at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent.anchors import Anchors
from spanlite.agent.boundaries import Boundaries, stamped_boundaries
from spanlite.agent.nesting import ranges_from_boundaries
from spanlite.agent.ranges import NONE, UNKNOWN
from spanlite.agent.traces import attribute

THREADS = ((7 << 32) | 1, (7 << 32) | 2)
STEP_NS = 10


@dataclass
class Program:
    """What two threads did, in order of time: boundaries, and launches each into its thread's stream."""

    boundaries: list[tuple[int, int, int, int]] = field(default_factory=list)  # time, thread, delta, newest id
    launches: list[tuple[int, int, int, bool]] = field(default_factory=list)  # time, thread, GPU start, recorded
    stacks: list[tuple[int, int, list[int]]] = field(default_factory=list)  # time, thread, ranges open from then on
    truth: list[list[int]] = field(default_factory=list)  # ranges open at each launch


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs in which every thread's first launch is recorded, so that its stream has an owner."""
    program, stacks, opened = Program(), ([], []), 0  # type: tuple[Program, tuple[list[int], list[int]], int]
    known = [False, False]
    steps = draw(st.lists(st.tuples(st.integers(0, 1), st.sampled_from("+-lll"), st.integers(1, 60), st.booleans())))
    for index, (who, what, delay, recorded) in enumerate(steps):
        time, stack = (index + 1) * STEP_NS, stacks[who]
        if what == "l":
            program.launches.append((time, who, time + delay, recorded or not known[who]))
            program.truth.append(list(stack))
            known[who] = True
        elif what == "+" or stack:
            if what == "+":
                stack.append(opened)
                opened += 1
            else:
                stack.pop()
            program.boundaries.append((time, who, 1 if what == "+" else -1, len(program.launches)))
            program.stacks.append((time, who, list(stack)))
    return program


def expected(program: Program, row: int) -> tuple[int, int]:
    """Stage and parent of one launch by everything its thread may have been in when it launched."""
    time, who, _, recorded = program.launches[row]
    peers = [(index, launch) for index, launch in enumerate(program.launches) if launch[1] == who]
    low = max([launch[0] for index, launch in peers if launch[3] and index < row], default=0)
    high = min([launch[0] for index, launch in peers if launch[3] and index > row], default=10**9)
    high = min([high, *(launch[2] for index, launch in peers if index >= row)])
    if recorded:
        low = high = time
    mine = [(at, stack) for at, thread, stack in program.stacks if thread == who]
    before = [stack for at, stack in mine if at < low]
    possible = [before[-1] if before else [], *(stack for at, stack in mine if low <= at <= high)]
    common = [number for number, *others in zip(*possible, strict=False) if all(other == number for other in others)]
    parent = common[-1] if common else NONE
    return (parent if len(possible) == 1 else UNKNOWN), parent


@settings(max_examples=300, deadline=None)
@given(programs())
def test_launches_of_two_threads_are_placed_as_far_as_their_bounds_allow(program: Program) -> None:
    """Neither more nor less is claimed than that all possible places have in common; and all claimed is true."""
    ranges = ranges_from_boundaries(
        Boundaries(
            time_ns=np.array([time for time, *_ in program.boundaries], np.int64),
            thread=np.array([THREADS[who] for _, who, *_ in program.boundaries], np.uint64),
            opens=np.array([delta > 0 for _, _, delta, _ in program.boundaries], np.bool_),
            key=np.zeros(len(program.boundaries), np.int64),
            name=np.zeros(len(program.boundaries), np.uint64),
        )
    )
    calls = [(row + 1, time, THREADS[who]) for row, (time, who, _, recorded) in enumerate(program.launches) if recorded]
    rows = np.arange(len(program.launches))
    shuffled = np.random.default_rng(len(rows)).permutation(rows)
    found = attribute(
        shuffled + 1,
        np.array([who for _, who, *_ in program.launches], np.int64)[shuffled],
        gpu_start_ns=np.array([start for _, _, start, _ in program.launches], np.int64)[shuffled],
        ranges=ranges,
        anchors=Anchors(
            np.array([launch for launch, *_ in calls], np.int64),
            np.array([time for _, time, _ in calls], np.int64),
            np.array([thread for *_, thread in calls], np.uint64),
        ),
    )
    assert list(zip(found.stage.tolist(), found.range_number.tolist(), strict=True)) == [
        expected(program, row) for row in shuffled.tolist()
    ]
    for row, stage, root in zip(shuffled.tolist(), found.stage.tolist(), found.root.tolist(), strict=True):
        truth = program.truth[row]
        assert stage in (UNKNOWN, truth[-1] if truth else NONE)
        assert root in (UNKNOWN, truth[0] if truth else NONE)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_stamps_of_one_thread_place_every_launch(program: Program) -> None:
    """Of the first thread's launches, stamps alone tell the whole truth."""
    rows = [row for row, (_, who, *_) in enumerate(program.launches) if who == 0]
    mine = [(newest, delta) for _, who, delta, newest in program.boundaries if who == 0]
    stamps = stamped_boundaries(
        np.array([newest for newest, _ in mine], np.int64),
        np.full(len(mine), THREADS[0], np.uint64),
        delta=np.array([delta for _, delta in mine], np.int64),
        name=np.zeros(len(mine), np.uint64),
    )
    none = np.zeros(0, np.int64)
    found = attribute(
        np.array(rows, np.int64) + 1,
        np.zeros(len(rows), np.int64),
        gpu_start_ns=np.zeros(len(rows), np.int64),
        ranges=ranges_from_boundaries(stamps),
        anchors=Anchors(none, none, none.astype(np.uint64)),
    )
    opens = [who for _, who, delta, _ in program.boundaries if delta > 0]
    numbers = {old: new for new, old in enumerate(number for number, who in enumerate(opens) if who == 0)}
    truth = [program.truth[row] for row in rows]
    assert found.stage.tolist() == [numbers[stack[-1]] if stack else NONE for stack in truth]
    assert found.root.tolist() == [numbers[stack[0]] if stack else NONE for stack in truth]

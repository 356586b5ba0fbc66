"""Placing: made-up programs of two threads, attributed, against bounds and stacks taken one launch at a time.

Some of their ranges are traceparents, of two traces and two spans each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent.anchors import Anchors
from spanlite.agent.boundaries import Boundaries, stamped_boundaries
from spanlite.agent.nesting import ranges_from_boundaries
from spanlite.agent.ranges import NONE, UNKNOWN, Ranges
from spanlite.agent.tracecontext import CONTEXT
from spanlite.agent.traces import Attribution, attribute

THREADS = ((7 << 32) | 1, (7 << 32) | 2)
STEP_NS = 10
PLAIN = (0, 0)
TRACES = {"A": (1, 1), "B": (1, 2), "C": (2, 1), "+": PLAIN}
"""What opens by the letter of a step: trace and span of a context, or a range that is none."""


@dataclass
class Program:
    """What two threads did, in order of time: boundaries, and launches each into its thread's stream."""

    boundaries: list[tuple[int, int, int, int]] = field(default_factory=list)  # time, thread, delta, newest id
    contexts: list[tuple[int, int]] = field(default_factory=list)  # of each boundary; of each opening in `opened`
    opened: list[tuple[int, int]] = field(default_factory=list)
    launches: list[tuple[int, int, int, bool]] = field(default_factory=list)  # time, thread, GPU start, recorded
    stacks: list[tuple[int, int, list[int]]] = field(default_factory=list)  # time, thread, ranges open from then on
    truth: list[list[int]] = field(default_factory=list)  # ranges open at each launch


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs in which every thread's first launch is recorded, so that its stream has an owner."""
    program, stacks = Program(), ([], [])  # type: tuple[Program, tuple[list[int], list[int]]]
    known = [False, False]
    letters = draw(st.sampled_from(["+-lll", "+ABC--llll"]))
    steps = draw(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(letters), st.integers(1, 60), st.booleans())))
    for index, (who, what, delay, recorded) in enumerate(steps):
        time, stack = (index + 1) * STEP_NS, stacks[who]
        if what == "l":
            program.launches.append((time, who, time + delay, recorded or not known[who]))
            program.truth.append(list(stack))
            known[who] = True
        elif what != "-" or stack:
            if what != "-":
                stack.append(len(program.opened))
                program.opened.append(TRACES[what])
            else:
                stack.pop()
            program.contexts.append(TRACES.get(what, PLAIN))
            program.boundaries.append((time, who, 1 if what != "-" else -1, len(program.launches)))
            program.stacks.append((time, who, list(stack)))
    return program


Place = tuple[int, int, tuple[int, int]]
"""Stage, parent, and the trace: (0, root), (trace, span), or (0, NONE or UNKNOWN)."""


def place(program: Program, stack: list[int]) -> Place:
    """What a launch within these ranges belongs to."""
    real = [number for number in stack if program.opened[number] == PLAIN]
    contexts = [program.opened[number] for number in stack if program.opened[number] != PLAIN]
    stage = real[-1] if real else NONE
    parent = stack[-1] if stack and stack[-1] in real else NONE
    return stage, parent, contexts[-1] if contexts else (0, stack[0] if stack else NONE)


def same_id(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two traces have one id: contexts by the first number, ranges by both."""
    return one[0] == other[0] if one[0] else one == other


def expected(program: Program, row: int) -> Place:
    """Where one launch belongs by everything its thread may have been in when it launched."""
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
    if len(possible) == 1 or not common:
        return place(program, possible[0]) if len(possible) == 1 else (UNKNOWN, NONE, (0, UNKNOWN))
    _, parent, trace = place(program, common)
    stages = {place(program, stack)[0] for stack in possible}
    stage = stages.pop() if len(stages) == 1 else UNKNOWN
    if not all(same_id(place(program, stack)[2], trace) for stack in possible):
        parent, trace = NONE, (0, UNKNOWN)
    return stage, parent, trace


def found_places(found: Attribution, ranges: Ranges) -> list[Place]:
    """Where launches were placed."""
    roots = found.root.tolist()
    contexts = dict(zip(ranges.number.tolist(), ranges.context.tolist(), strict=True))
    traces = [contexts[root][1:] if root >= 0 and contexts[root] != (0, 0, 0) else (0, root) for root in roots]
    return list(zip(found.stage.tolist(), found.range_number.tolist(), traces, strict=True))


def contexts_of(contexts: list[tuple[int, int]]) -> npt.NDArray[np.void]:
    return np.array([(0, trace, span) for trace, span in contexts], CONTEXT)


def told_traces(found: Attribution) -> list[tuple[int, int]]:
    """Trace and span of each launch by the table of traces; (0, 0) where no context gives it."""
    rows = [found.traces.context[row] if row >= 0 else np.zeros((), CONTEXT) for row in found.trace.tolist()]
    return [(int(row["low"]), int(row["remote_parent"])) for row in rows]


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
            context=contexts_of(program.contexts),
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
    places = [expected(program, row) for row in shuffled.tolist()]
    assert found_places(found, ranges) == places
    assert told_traces(found) == [trace if trace[0] else PLAIN for _, _, trace in places]
    for row, (stage, parent, trace) in zip(shuffled.tolist(), places, strict=True):
        truth = place(program, program.truth[row])
        assert stage in (UNKNOWN, truth[0])
        assert parent in (NONE, *program.truth[row])
        assert trace == (0, UNKNOWN) or same_id(trace, truth[2])


@settings(max_examples=100, deadline=None)
@given(programs())
def test_stamps_of_one_thread_place_every_launch(program: Program) -> None:
    """Of the first thread's launches, stamps alone tell the whole truth."""
    rows = [row for row, (_, who, *_) in enumerate(program.launches) if who == 0]
    mine = [(newest, delta) for _, who, delta, newest in program.boundaries if who == 0]
    contexts = [context for context, (_, who, *_) in zip(program.contexts, program.boundaries, strict=True) if who == 0]
    stamps = stamped_boundaries(
        np.array([newest for newest, _ in mine], np.int64),
        np.full(len(mine), THREADS[0], np.uint64),
        delta=np.array([delta for _, delta in mine], np.int64),
        name=np.zeros(len(mine), np.uint64),
    )
    ranges = ranges_from_boundaries(replace(stamps, context=contexts_of(contexts)))
    none = np.zeros(0, np.int64)
    found = attribute(
        np.array(rows, np.int64) + 1,
        np.zeros(len(rows), np.int64),
        gpu_start_ns=np.zeros(len(rows), np.int64),
        ranges=ranges,
        anchors=Anchors(none, none, none.astype(np.uint64)),
    )
    opens = [who for _, who, delta, _ in program.boundaries if delta > 0]
    numbers = {old: new for new, old in enumerate(number for number, who in enumerate(opens) if who == 0)}
    numbers[NONE] = NONE
    truth = [place(program, program.truth[row]) for row in rows]
    assert found_places(found, ranges) == [
        (numbers[stage], numbers[parent], trace if trace[0] else (0, numbers[trace[1]]))
        for stage, parent, trace in truth
    ]
    assert told_traces(found) == [trace if trace[0] else PLAIN for _, _, trace in truth]

"""Samples and spans that wait for each other: what is settled when, against a loop over all of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.counters.hold import FATES, NOBODY, Hold, Settled, Spans
from spanlite.agent.counters.samples import METRICS, Samples
from tests.agent.counters.fakes import MS, START_NS, some

S = 10**9


def hold() -> Hold:
    """One that has begun."""
    made = Hold()
    made.begin(METRICS)
    return made


def spans(*rows: tuple[int, int, int]) -> Spans:
    """Of (start, end) in ms after START_NS, and kernel."""
    start, end, kernel = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Spans(START_NS + start * MS, START_NS + end * MS, kernel.astype(np.int32))


def fates(settled: Settled) -> list[tuple[str, int]]:
    """Word and kernel of each sample."""
    return [(FATES[fate], kernel) for fate, kernel in zip(settled.fate.tolist(), settled.kernel.tolist(), strict=True)]


def test_a_sample_waits_for_every_process_and_then_for_none() -> None:
    """Samples would be given away before the spans of the slower process came, or never."""
    held, now = hold(), START_NS + 100 * MS
    held.add(some(0, 3))
    assert held.offer(1, spans((0, 1, 5), (2000, 2001, 5)), complete=True, now_ns=now) == 0
    assert held.offer(2, spans((1, 2, 6), (900, 901, 6)), complete=True, now_ns=now) == 0
    assert fates(held.settle(START_NS + 2 * S)) == []
    assert held.offer(2, spans((1002, 1003, 6)), complete=True, now_ns=now) == 0
    assert fates(held.settle(START_NS + 2 * S)) == [("owned", 5), ("owned", 6), ("unseen", NOBODY)]
    held.add(some(3000, 1))
    assert fates(held.settle(START_NS + 8 * S)) == []
    assert fates(held.settle(START_NS + 8 * S + MS)) == [("unseen", NOBODY)]


def test_what_comes_too_late_is_counted() -> None:
    """Nobody would know that samples were given to the wrong kernel."""
    held = hold()
    held.add(some(0, 2))
    assert fates(held.settle(START_NS + 6 * S)) == [("unseen", NOBODY)] * 2
    assert held.offer(1, spans((0, 2, 5), (1500, 1501, 5)), complete=True, now_ns=START_NS + 6 * S) == 1


def test_work_that_is_no_kernel_is_nobodys() -> None:
    """A memory set's warps would be a kernel's, and idle time would look as if spans were missing."""
    held = hold()
    held.add(some(0, 2))
    held.add(some(2, 1, values=(0, 0, 0, 0, 0, 0)))
    held.offer(1, spans((0, 1, NOBODY), (1, 2, 5), (1, 2, NOBODY)), complete=True, now_ns=START_NS)
    assert [word for word, _ in fates(held.settle(START_NS + 6 * S))] == ["copy", "shared", "idle"]


def test_where_spans_are_missing_nobody_owns_anything() -> None:
    """A kernel would be said to run alone while others of a sampled process ran unseen."""
    held = hold()
    held.add(some(0, 4))
    held.offer(1, spans((0, 1, 5)), complete=True, now_ns=START_NS)
    held.offer(2, spans((0, 0, 5), (1, 2, 5), (3, 4, 5)), complete=False, now_ns=START_NS)
    assert [word for word, _ in fates(held.settle(START_NS + 6 * S))] == ["incomplete"] * 4
    held.add(some(61_000, 1))
    held.offer(1, spans((61_000, 61_001, 5)), complete=True, now_ns=START_NS + 61 * S)
    assert fates(held.settle(START_NS + 67 * S)) == [("owned", 5)]


def test_gaps_begin_where_all_was_still_told() -> None:
    """What a process that went over to windows had run before would be lost as well."""
    held = hold()
    held.add(some(0, 4))
    held.offer(1, spans((0, 1, 5), (1, 2, 5)), complete=True, now_ns=START_NS)
    held.offer(1, spans((3, 4, 5)), complete=False, now_ns=START_NS)
    found = fates(held.settle(START_NS + 6 * S))
    assert found == [("owned", 5), ("owned", 5), ("incomplete", NOBODY), ("incomplete", NOBODY)]


def test_spans_beyond_memory_make_their_time_unknown() -> None:
    """A program of tiny kernels would fill the agent's memory, or look idle."""
    held = hold()
    held.add(some(0, 2))
    number = np.zeros(1 << 20, dtype=np.int64)
    many = Spans(START_NS + number, START_NS + number + 1, number.astype(np.int32))
    held.offer(1, many, complete=True, now_ns=START_NS)
    held.offer(1, spans((0, 1, 5)), complete=True, now_ns=START_NS)
    assert fates(held.settle(START_NS + 6 * S)) == [("incomplete", NOBODY), ("unseen", NOBODY)]
    held.add(some(7000, 1))
    held.offer(1, spans((7000, 7001, 5)), complete=True, now_ns=START_NS + 7 * S)
    assert fates(held.settle(START_NS + 13 * S)) == [("owned", 5)]


def test_ten_seconds_are_held_and_a_clock_that_is_set_back_begins_anew() -> None:
    """Samples would pile up where nobody fetches them, or be joined in the wrong order."""
    held = hold()
    assert held.add(some(0, 2)) == 0
    assert held.add(some(10_001, 1)) == 1
    assert held.add(some(0, 1)) == 2
    assert fates(held.settle(START_NS + 60 * S)) == [("unseen", NOBODY)]
    held.add(some(0, 1))
    held.offer(1, spans((0, 1, 5)), complete=True, now_ns=START_NS)
    assert fates(held.settle(START_NS)) == []
    assert fates(held.settle(START_NS + 6 * S)) == [("owned", 5)]
    held.add(some(7000, 3))
    assert (held.give_up(), held.give_up()) == (3, 0)


_TIME = st.integers(0, 40)


@given(
    st.lists(_TIME, max_size=30),
    st.lists(st.lists(st.tuples(_TIME, st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=6), max_size=4),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_every_sample_is_settled_once_by_all_spans(
    edges: list[int], sessions: list[list[tuple[int, int, int]]], steps: list[int]
) -> None:
    """The moment at which it is settled would change whose a sample is."""
    held = hold()
    pairs = list(pairwise(sorted(set(edges))))
    start, end = (START_NS + np.array([pair[side] for pair in pairs], dtype=np.int64) * MS for side in (0, 1))
    half = len(pairs) // 2
    samples = Samples(start, end, np.tile(np.array([100.0] * 6), (len(pairs), 1)))
    held.add(samples.take(slice(0, half)))
    held.add(samples.take(slice(half, None)))
    for number, rows in enumerate(sessions):
        told = spans(*((begin, begin + length, kernel) for begin, length, kernel in rows))
        held.offer(number, told, complete=True, now_ns=START_NS)
    found = []
    for step in [*sorted(steps), 60]:
        found += fates(held.settle(START_NS + 5 * S + step * MS))
    every = [(begin, begin + length, kernel) for rows in sessions for begin, length, kernel in rows if length]
    assert found == [_whose(begin, past, every) for begin, past in pairs]


def _whose(begin: int, past: int, every: list[tuple[int, int, int]]) -> tuple[str, int]:
    """The rule, word by word."""
    meets = [one for one in every if one[0] < past and one[1] > begin]
    if len(meets) != 1:
        return ("shared" if meets else "unseen", NOBODY)
    first, last, kernel = meets[0]
    return ("owned", kernel) if first <= begin and last >= past else ("partial", NOBODY)

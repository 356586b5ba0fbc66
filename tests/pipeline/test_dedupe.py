"""Each batch counts once, however often and in whatever order it is delivered."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.pipeline.dedupe import Run, Sequences

LAST = 2**64 - 1


def runs_of(sequences: set[int]) -> tuple[Run, ...]:
    """The runs of a set, number by number."""
    firsts = sorted(each for each in sequences if each - 1 not in sequences)
    lasts = sorted(each for each in sequences if each + 1 not in sequences)
    return tuple(zip(firsts, lasts, strict=True))


def test_a_batch_is_new_once() -> None:
    """The second and third delivery are duplicates."""
    seen = Sequences()
    assert [seen.first_time(0) for _ in range(3)] == [True, False, False]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 30), st.integers(LAST - 3, LAST)), max_size=80),
    st.randoms(use_true_random=False),
)
def test_any_order_is_exact_over_restarts(deliveries: list[int], random: Random) -> None:
    """With redelivery, disorder and restarts the new ones are a set's new members, and the runs are the set's."""
    random.shuffle(deliveries)
    seen, known = Sequences(), set[int]()
    for sequence in deliveries:
        assert (sequence in seen) is (sequence in known)
        assert seen.first_time(sequence) is (sequence not in known)
        known.add(sequence)
        assert sequence in seen
        assert seen.runs == runs_of(known)
        if random.random() < 0.2:
            seen = Sequences(seen.runs)
    assert seen.given_up == 0


def test_in_order_it_is_one_run() -> None:
    """However many batches come in order, what is kept of them is two numbers."""
    seen = Sequences()
    assert all(seen.first_time(sequence) for sequence in range(5, 20_000))
    assert seen.runs == ((5, 19_999),)


def test_a_gap_that_fills_joins_its_neighbours() -> None:
    """The last missing batch is new, and makes one run of two."""
    seen = Sequences([(0, 3), (5, 9)])
    assert seen.first_time(4)
    assert seen.runs == ((0, 9),)
    assert not seen.first_time(4)


def test_beyond_the_most_runs_the_lowest_gap_is_given_up() -> None:
    """Its batches are counted as given up; one that comes all the same is refused rather than counted twice."""
    seen = Sequences(most_runs=3)
    assert all(seen.first_time(sequence) for sequence in (0, 3, 5, 9))
    assert list(seen.runs) == [(0, 3), (5, 5), (9, 9)]
    assert seen.given_up == 2
    assert not seen.first_time(1)
    assert seen.first_time(4)
    assert list(seen.runs) == [(0, 5), (9, 9)]
    assert seen.given_up == 2


def test_what_lies_before_the_first_run_is_new() -> None:
    """A reader may begin in the middle: what was sent earlier and comes later is no gap that was given up."""
    seen = Sequences(most_runs=2)
    assert all(seen.first_time(sequence) for sequence in (10, 20, 8))
    assert seen.runs == ((8, 10), (20, 20))
    assert seen.given_up == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 5))
def test_with_any_bound_none_counts_twice(deliveries: list[int], most_runs: int) -> None:
    """For any bound the runs ascend with gaps between and stay few, none is new twice, all losses are counted."""
    seen, new = Sequences(most_runs=most_runs), list[int]()
    for sequence in deliveries:
        if seen.first_time(sequence):
            new.append(sequence)
        runs = seen.runs
        assert len(runs) <= most_runs
        assert all(first <= last for first, last in runs)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs))
    assert len(new) == len(set(new))
    assert sum(last - first + 1 for first, last in seen.runs) == len(new) + seen.given_up


def test_memory_stays_bounded() -> None:
    """A producer of which every other batch is missing keeps no more than the most runs."""
    seen = Sequences(most_runs=16)
    assert all(seen.first_time(sequence) for sequence in range(0, 4000, 2))
    assert len(seen.runs) == 16
    assert seen.given_up == 2000 - 16

"""Each batch counts once, however often and in whatever order it is delivered."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.pipeline.dedupe import Seen

A, B = b"a" * 16, b"b" * 16


def test_a_batch_is_new_once() -> None:
    """The second and third delivery are duplicates, and counted."""
    seen = Seen()
    assert [seen.first_time(A, 0) for _ in range(3)] == [True, False, False]
    assert seen.duplicates == 2


def test_producers_number_for_themselves() -> None:
    """The same sequence of another producer is another batch."""
    seen = Seen()
    assert seen.first_time(A, 0)
    assert seen.first_time(B, 0)
    assert (seen.duplicates, seen.given_up) == (0, 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 30)), max_size=80), st.randoms(use_true_random=False))
def test_any_order_within_the_horizon_is_exact(deliveries: list[tuple[bytes, int]], random: Random) -> None:
    """With redelivery and disorder the new ones are exactly a set's new members; nothing is given up."""
    random.shuffle(deliveries)
    seen, known = Seen(horizon=31), set[tuple[bytes, int]]()
    for delivery in deliveries:
        assert seen.first_time(*delivery) is (delivery not in known)
        known.add(delivery)
    assert seen.duplicates == len(deliveries) - len(known)
    assert seen.given_up == 0


def test_a_gap_that_fills_in_time_is_no_loss() -> None:
    """A batch that is overtaken by as many as the horizon allows is still new."""
    seen = Seen(horizon=4)
    assert all(seen.first_time(A, sequence) for sequence in (0, 2, 3, 4, 5))
    assert seen.first_time(A, 1)
    assert (seen.duplicates, seen.given_up) == (0, 0)


def test_a_gap_beyond_the_horizon_is_given_up() -> None:
    """The missing batches are counted as lost; one that comes all the same is refused, not counted twice."""
    seen = Seen(horizon=4)
    assert all(seen.first_time(A, sequence) for sequence in (0, 3, 4, 5, 6, 7))
    assert seen.given_up == 2
    assert not seen.first_time(A, 1)
    assert seen.duplicates == 1
    assert seen.first_time(A, 8)


def test_each_gap_is_given_up_on_its_own() -> None:
    """Giving up the oldest gap leaves later ones open, and their batches new."""
    seen = Seen(horizon=3)
    assert all(seen.first_time(A, sequence) for sequence in (1, 3, 5, 7))
    assert seen.given_up == 1
    assert seen.first_time(A, 2)
    assert seen.first_time(A, 4)
    assert not seen.first_time(A, 0)
    assert seen.given_up == 1


def test_memory_stays_within_the_horizon() -> None:
    """However long a producer with holes runs, no more than the horizon's sequences are kept."""
    seen = Seen(horizon=16)
    for sequence in range(0, 4000, 2):
        assert seen.first_time(A, sequence)
        assert len(seen._early[A]) <= 16
    assert seen.given_up + len(seen._early[A]) == 1999

"""Samples × spans, against a loop over both."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.counters.joining import IDLE, OWNED, PARTIAL, SHARED, join
from spanlite.agent.counters.samples import Samples
from spanlite.contract.columns import Int64

_TIME = st.integers(0, 60)


def _samples(edges: list[int]) -> Samples:
    """Intervals between neighbouring edges, every third left out."""
    edges = sorted(set(edges))
    pairs = [pair for at, pair in enumerate(pairwise(edges)) if at % 3 != 2]
    start, end = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    return Samples(start, end, np.zeros((len(pairs), 1)))


def _slowly(samples: Samples, start: Int64, end: Int64) -> list[tuple[int, int]]:
    """The rule, word by word."""
    found = []
    for begin, past in zip(samples.start_ns.tolist(), samples.end_ns.tolist(), strict=True):
        meets = [at for at in range(len(start)) if start[at] < end[at] and start[at] < past and end[at] > begin]
        if not meets:
            found.append((IDLE, -1))
        elif len(meets) > 1:
            found.append((SHARED, -1))
        elif start[meets[0]] <= begin and end[meets[0]] >= past:
            found.append((OWNED, meets[0]))
        else:
            found.append((PARTIAL, -1))
    return found


@given(st.lists(_TIME, max_size=30), st.lists(st.tuples(_TIME, st.integers(0, 20)), max_size=12))
def test_join_is_what_a_loop_over_both_finds(edges: list[int], spans: list[tuple[int, int]]) -> None:
    """Occupancy would go to a kernel that did not run alone."""
    samples = _samples(edges)
    start = np.array([begin for begin, _ in spans], dtype=np.int64)
    end = start + np.array([length for _, length in spans], dtype=np.int64)
    joined = join(samples, start, end)
    assert list(zip(joined.fate.tolist(), joined.owner.tolist(), strict=True)) == _slowly(samples, start, end)


def test_times_of_today_are_exact() -> None:
    """Unix nanoseconds, beyond 2^53, would be rounded to their neighbours."""
    base = 1_790_000_000_000_000_000
    samples = Samples(np.array([base, base + 100]), np.array([base + 100, base + 200]), np.zeros((2, 1)))
    joined = join(samples, np.array([base]), np.array([base + 199]))
    assert joined.fate.tolist() == [OWNED, PARTIAL]
    joined = join(samples, np.array([base + 1, base + 100]), np.array([base + 100, base + 200]))
    assert joined.fate.tolist() == [PARTIAL, OWNED]
    assert joined.owner.tolist() == [-1, 1]

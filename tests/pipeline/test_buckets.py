"""Buckets in a pool against a dictionary for each row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.pipeline.buckets import Buckets, Held

_INDEX = st.one_of(st.integers(-5, 5), st.sampled_from([-(2**31), 2**31 - 1, -960, 1060]))
_ROW = st.dictionaries(_INDEX, st.integers(1, 2**40), max_size=8)
_ADDITION = st.dictionaries(st.integers(0, 30), _ROW, max_size=6)


@settings(max_examples=300, deadline=None)
@given(st.lists(_ADDITION, max_size=20))
def test_any_additions_are_those_of_dictionaries(additions: list[dict[int, dict[int, int]]]) -> None:
    """Rows in any order, new, grown, moved or with nothing at all: what comes back is all that each of them holds."""
    pool = Buckets()
    reference: dict[int, dict[int, int]] = {}
    for addition in additions:
        flat = [pair for row in addition.values() for pair in sorted(row.items())]
        held = pool.add(
            np.array(list(addition), dtype=np.int32),
            Held(
                np.array([len(row) for row in addition.values()], dtype=np.int64),
                np.array([index for index, _ in flat], dtype=np.int32),
                np.array([count for _, count in flat], dtype=np.int64),
            ),
        )
        for number, row in addition.items():
            mine = reference.setdefault(number, {})
            for index, count in row.items():
                mine[index] = mine.get(index, 0) + count
        expected = [sorted(reference[number].items()) for number in addition]
        assert held.length.tolist() == [len(row) for row in expected]
        pairs = list(zip(held.index.tolist(), held.count.tolist(), strict=True))
        assert pairs == [pair for row in expected for pair in row]
        assert (held.index.dtype.name, held.count.dtype.name) == ("int32", "int64")

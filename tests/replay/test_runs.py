"""Helpers over columns against plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.replay import runs

SMALL = st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), st.integers(0, 2**63 - 1)), max_size=40)


@given(SMALL)
def test_joint_codes_tell_combinations_apart(rows: list[tuple[int, int, int]]) -> None:
    """Equal rows have equal codes, others have others, and each code's first row is its first."""
    columns = [np.array([row[at] for row in rows], dtype=np.int64) for at in range(3)]
    code, first = runs.joint_codes(columns, len(rows))
    seen = list(dict.fromkeys(rows))
    assert len(first) == len(seen)
    assert [rows[at] for at in first[code]] == rows
    assert len(set(code.tolist())) == len(seen)
    assert [rows.index(rows[at]) for at in first] == first.tolist()


def test_joint_codes_survive_a_hash_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the hash joins different combinations, they are counted out exactly instead."""
    monkeypatch.setattr(runs, "_FACTOR", np.uint64(0))
    columns = [np.array([1, 2, 1, 2, 3]), np.array([5, 5, 6, 5, 6])]
    code, first = runs.joint_codes(columns, 5)
    assert code.tolist() == [0, 1, 2, 1, 3]
    assert first.tolist() == [0, 1, 2, 4]


@given(st.lists(st.one_of(st.none(), st.sampled_from([bytes([at]) * 16 for at in range(4)])), max_size=30))
def test_ids_are_coded_with_nulls(values: list[bytes | None]) -> None:
    """Runs, repeats and nulls of 16-byte ids come back, from slices and dictionaries as well."""
    for array in (
        pa.array(values, pa.binary(16)),
        pa.array(values, pa.binary(16)).dictionary_encode(),
        pa.array([b"x" * 16, *values], pa.binary(16)).slice(1),
        pa.chunked_array([pa.array(values[:3], pa.binary(16)), pa.array(values[3:], pa.binary(16))]),
    ):
        codes, ids = runs.id_codes(array)
        assert [ids[code].tobytes() if code >= 0 else None for code in codes] == values


@given(st.lists(st.integers(0, 500), min_size=1, max_size=30), st.sampled_from([501, 10_000]))
def test_compact_keeps_what_is_used(index: list[int], size: int) -> None:
    """The used entries ascend, and the new index names the same ones, for small and large tables."""
    used, small = runs.compact(np.array(index, dtype=np.int32), size)
    assert used.tolist() == sorted(set(index))
    assert used[small].tolist() == index


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), max_size=10))
def test_spread_counts_each_range(ranges: list[tuple[int, int]]) -> None:
    """All numbers of all ranges, one range after the other."""
    begins, counts = (np.array([pair[at] for pair in ranges], dtype=np.int64) for at in (0, 1))
    assert runs.spread(begins, counts).tolist() == [b + at for b, count in ranges for at in range(count)]

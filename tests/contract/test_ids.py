"""Span and trace ids: derived, never equal by accident, and the same in every implementation."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Kind
from spanlite.contract.ids import derived_trace_id, mix64, range_span_ids, row_span_ids, unmix64
from tests.contract.columns_strategy import sample_batch

_MASK = 2**64 - 1
_WORD = st.integers(0, _MASK)
_GAMMA = 0x9E3779B97F4A7C15


def _scalar_mix(word: int) -> int:
    """SplitMix64's finaliser as in Steele, Lea and Flood's paper, on Python's integers."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def _mixed(*words: int) -> list[int]:
    return [int(word) for word in mix64(np.array(words, dtype=np.uint64))]


def test_mix64_gives_the_published_numbers_of_splitmix64() -> None:
    """The first five outputs of the generator seeded with 1234567, as published with its reference code."""
    states = [(1234567 + step * _GAMMA) & _MASK for step in range(1, 6)]
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert _mixed(*states) == published


@given(st.lists(_WORD, min_size=1, max_size=50))
def test_mix64_equals_the_scalar_definition_and_can_be_undone(words: list[int]) -> None:
    """Every word, both ways; an inverse on both sides is what makes it a bijection."""
    array = np.array(words, dtype=np.uint64)
    assert mix64(array).tolist() == [_scalar_mix(word) for word in words]
    assert unmix64(mix64(array)).tolist() == words
    assert mix64(unmix64(array)).tolist() == words


def test_mix64_leaves_its_input_alone() -> None:
    """Callers hand in columns."""
    words = np.array([1, 2, 3], dtype=np.uint64)
    mix64(words)
    unmix64(words)
    assert words.tolist() == [1, 2, 3]


def test_a_million_rows_have_a_million_ids() -> None:
    """No two rows of a session share an id."""
    none = np.full(1_000_000, -1, dtype=np.int64)
    assert len(np.unique(row_span_ids(0xABCDEF, 2**40, none))) == 1_000_000


@given(_WORD, st.integers(0, 2**63 - 4))
def test_row_ids_are_told_by_session_and_number_alone(session: int, first: int) -> None:
    """Row i is mix64(session xor first_row + i), so batch borders leave no trace in the ids."""
    none = np.full(3, -1, dtype=np.int64)
    ids = row_span_ids(session, first, none)
    assert ids.tolist() == [_scalar_mix(session ^ (first + row)) for row in range(3)]
    assert row_span_ids(session, first + 1, none[:2]).tolist() == ids.tolist()[1:]


@given(_WORD, st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20))
def test_range_ids_set_the_top_bit_of_the_number(session: int, numbers: list[int]) -> None:
    """A range is mix64(session xor (2^63 + number)), wherever its row lies."""
    column = np.array(numbers, dtype=np.int64)
    expected = [_scalar_mix(session ^ (2**63 + number)) for number in numbers]
    assert range_span_ids(session, column).tolist() == expected
    assert row_span_ids(session, 77, column).tolist() == expected


@given(_WORD, st.integers(0, 2**62))
def test_ids_of_rows_and_ranges_never_meet(session: int, first: int) -> None:
    """Undone, a row's number has no top bit and a range's has: the two sets are disjoint for every session."""
    none, numbers = np.full(100, -1, dtype=np.int64), np.arange(100) + first
    rows = unmix64(row_span_ids(session, first, none)) ^ np.uint64(session)
    ranges = unmix64(range_span_ids(session, numbers)) ^ np.uint64(session)
    assert rows.tolist() == list(range(first, first + 100))
    assert [number - 2**63 for number in ranges.tolist()] == numbers.tolist()
    assert not (rows >> np.uint64(63)).any()


def test_no_range_means_id_zero() -> None:
    """Numbers below zero stand for none, also between others."""
    ids = range_span_ids(5, np.array([-1, 3, -1, -(2**63)], dtype=np.int64))
    assert ids.tolist() == [0, _scalar_mix(5 ^ (2**63 + 3)), 0, 0]


def test_a_parent_s_id_is_the_id_of_the_range_s_own_row() -> None:
    """Kernels name a range by number before its row exists; both ways lead to one id."""
    batch: Batch = sample_batch(2000)
    columns = batch.columns
    ranges = columns.kind == Kind.RANGE
    own = dict(zip(columns.range_number[ranges].tolist(), batch.span_ids[ranges].tolist(), strict=True))
    named = [(int(n), int(i)) for n, i in zip(columns.parent, batch.parent_span_ids, strict=True) if int(n) in own]
    assert len(named) > 1000
    assert all(own[number] == parent_id for number, parent_id in named)


@pytest.mark.parametrize(("session", "root"), [(0, 0), (0x0123456789ABCDEF, 42), (_MASK, 2**63)])
def test_derived_trace_ids_are_a_hash_of_session_and_root(session: int, root: int) -> None:
    """BLAKE2b of "session/root", the session in 16 hex digits, cut to 16 bytes by its own parameter."""
    text = f"{session:016x}/{root}".encode("ascii")
    assert derived_trace_id(session, root) == hashlib.blake2b(text, digest_size=16).digest()
    assert len(derived_trace_id(session, root)) == 16


def test_derived_trace_ids_differ_by_session_and_by_root() -> None:
    """Two processes, and two requests of one process, get traces of their own."""
    ids = {derived_trace_id(session, root) for session in range(50) for root in range(50)}
    assert len(ids) == 2500

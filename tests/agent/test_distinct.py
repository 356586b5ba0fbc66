"""Distinct rows against a dictionary and np.unique, with hashes and slots that collide by force."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent import distinct as distinct_module
from spanlite.agent.distinct import distinct, distinct_rows

_TYPES = ("u1", "<i4", "<u4", "<i8", "<u8")


@st.composite
def _columns(draw: st.DrawFn) -> list[npt.NDArray[Any]]:
    rows = draw(st.integers(0, 60))
    columns = []
    for code in draw(st.lists(st.sampled_from(_TYPES), min_size=1, max_size=5)):
        info = np.iinfo(code)
        few = draw(st.lists(st.integers(int(info.min), int(info.max)), min_size=1, max_size=3))
        columns.append(np.array(draw(st.lists(st.sampled_from(few), min_size=rows, max_size=rows)), dtype=code))
    return columns


def _expected(columns: list[npt.NDArray[Any]]) -> tuple[list[int], list[int]]:
    """First rows and numbers by a dictionary of the rows as tuples."""
    first: list[int] = []
    known: dict[tuple[int, ...], int] = {}
    numbers = []
    for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if values not in known:
            known[values] = len(first)
            first.append(row)
        numbers.append(known[values])
    return first, numbers


@given(_columns())
def test_rows_are_numbered_in_the_order_in_which_they_first_appear(columns: list[npt.NDArray[Any]]) -> None:
    """Any columns of any integer types give what a dictionary of the rows gives."""
    first, number = distinct(columns)
    assert (first.tolist(), number.tolist()) == _expected(columns)
    assert first.dtype.name == "int64"
    assert number.dtype.name == "int32"


@settings(max_examples=50)
@given(_columns(), st.sampled_from([0, 1, 3]))
def test_hashes_that_collide_change_nothing(columns: list[npt.NDArray[Any]], bits: int) -> None:
    """With hashes of 0, 1 or 3 bits different rows meet; they are still told apart."""
    with pytest.MonkeyPatch.context() as patch:
        hashed = distinct_module._hash
        patch.setattr(
            distinct_module, "_hash", lambda words: hashed(words) & np.uint64(((1 << bits) - 1) << (64 - bits))
        )
        first, number = distinct(columns)
    assert (first.tolist(), number.tolist()) == _expected(columns)


@pytest.mark.parametrize("slot_bits", [(1,), (2, 4), (1, 3, 22)])
def test_slots_that_collide_change_nothing(monkeypatch: pytest.MonkeyPatch, slot_bits: tuple[int, ...]) -> None:
    """Tables of a few slots are too small for 500 different rows: larger ones, or sorting, take over."""
    monkeypatch.setattr(distinct_module, "_SLOT_BITS", slot_bits)
    rng = np.random.default_rng(5)
    columns: list[npt.NDArray[Any]] = [rng.integers(0, 25, 4000), rng.integers(0, 20, 4000)]
    first, number = distinct(columns)
    assert (first.tolist(), number.tolist()) == _expected(columns)


@pytest.mark.parametrize("rows", [1, 8192, 200_000])
def test_many_rows_equal_a_sort(rows: int) -> None:
    """Numbers agree with np.unique over whole rows, both where all rows differ and where few do."""
    rng = np.random.default_rng(rows)
    for most in (3, 2**31):
        words = rng.integers(0, most, (rows, 3)).astype(np.uint64) << np.uint64(32)
        first, number = distinct_rows(words)
        _, at, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
        assert first.tolist() == np.sort(at).tolist()
        assert np.array_equal(at[inverse.reshape(-1)], first[number])


def test_strided_columns_are_read_rightly() -> None:
    """Fields of records, which do not lie side by side, count as their values."""
    table = np.zeros(6, dtype=[("a", "<i4"), ("pad", "<u2"), ("b", "<u8")])
    table["a"], table["b"], table["pad"] = [1, -1, 1, -1, 1, 1], [5, 5, 5, 5, 6, 5], np.arange(6)
    first, number = distinct([table["a"], table["b"]])
    assert first.tolist() == [0, 1, 4]
    assert number.tolist() == [0, 1, 0, 1, 2, 0]

"""Codes of combinations: those that a dictionary of tuples gives, in C as in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spanlite.native import joining, library
from spanlite.replay.runs import joint_codes
from tests.native.without import numpy_only

_TYPES = (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64)


@st.composite
def columns(draw: st.DrawFn) -> list[NDArray[Any]]:
    """Some columns of integers of any width, few values each."""
    rows = draw(st.integers(1, 40)) * draw(st.sampled_from([1, 1, 100]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    made = []
    for dtype in draw(st.lists(st.sampled_from(_TYPES), min_size=1, max_size=5)):
        limits = np.iinfo(dtype)  # type: ignore[type-var]  # mypy joins the types to object
        values = draw(st.lists(st.integers(int(limits.min), int(limits.max)), min_size=1, max_size=6))
        made.append(np.array(values, dtype=dtype)[rng.integers(0, len(values), rows)])
    return made


def _by_dictionary(given_columns: Sequence[NDArray[Any]]) -> tuple[list[int], list[int]]:
    numbers: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    codes: list[int] = []
    for row, values in enumerate(zip(*(column.tolist() for column in given_columns), strict=True)):
        if values not in numbers:
            numbers[values] = len(numbers)
            first.append(row)
        codes.append(numbers[values])
    return codes, first


def _plain(found: tuple[NDArray[Any], NDArray[Any]]) -> tuple[list[int], list[int]]:
    return found[0].tolist(), found[1].tolist()


@given(columns())
def test_codes_are_those_of_a_dictionary(given_columns: list[NDArray[Any]]) -> None:
    """In the order in which combinations come, with and without the library, and of columns with gaps in memory."""
    expected = _by_dictionary(given_columns)
    assert _plain(joint_codes(given_columns, len(given_columns[0]))) == expected
    apart = [np.repeat(column, 2)[::2] for column in given_columns]
    assert _plain(joint_codes(apart, len(apart[0]))) == expected
    with numpy_only():
        assert _plain(joint_codes(given_columns, len(given_columns[0]))) == expected


def test_many_combinations_are_all_told_apart() -> None:
    """More than the table of hashes begins with room for, each twice."""
    values = np.random.default_rng(3).permutation(np.repeat(np.arange(50_000), 2))
    assert _plain(joint_codes([values, values // 7], len(values))) == _by_dictionary([values, values // 7])


def test_combinations_of_one_hash_are_counted_out() -> None:
    """A hash is a sum of products here, so that two can be made to meet: the library says so, and numpy decides."""
    compiled = library()
    assert compiled is not None
    factors = [_mixed(number + 1) | 1 for number in range(2)]
    meeting = [np.array([factors[1], 0], dtype=np.uint64), np.array([0, factors[0]], dtype=np.uint64)]
    assert joining.joint_codes(compiled, meeting, 2) is None
    assert _plain(joint_codes(meeting, 2)) == ([0, 1], [0, 1])


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_column_of_one_value_is_told(rows: int) -> None:
    """Of any length, and not where the last differs."""
    compiled = library()
    assert compiled is not None
    values = np.full(rows, -5, dtype=np.int64)
    assert joining.constant(compiled, values)
    assert not joining.constant(compiled, np.append(np.full(rows + 1, -5), 4))


def _mixed(value: int) -> int:
    """splitmix64's last steps, as kernels.c has them."""
    most = 2**64 - 1
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & most
    value = (value ^ value >> 27) * 0x94D049BB133111EB & most
    return value ^ value >> 31

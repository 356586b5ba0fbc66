"""Columns undone in C equal numpy's, for every width, length and value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract import body, planes
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import equal
from spanlite.contract.errors import BatchError
from spanlite.contract.planes import Planes
from spanlite.native import columns, library
from tests.contract.columns_strategy import batches

packed = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 67)).flatmap(
    lambda each: st.builds(
        Planes,
        st.just(each[0]),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(min_size=each[0] * each[1], max_size=each[0] * each[1]),
    )
)


@contextmanager
def numpy_only() -> Iterator[None]:
    """Without the library, as where there was no compiler."""
    with patch.object(planes, "library", lambda: None), patch.object(body, "library", lambda: None):
        yield


def test_the_library_is_there() -> None:
    """A compiler is part of what the tests set up, so the others below really compare two things."""
    assert library() is not None


@given(packed)
def test_plain_and_zigzag_columns(column: Planes) -> None:
    """Values, signed values and running sums are the same to the bit, wrapping included."""
    rows = len(column.data) // column.width
    made = (
        planes.unpack(column, rows, "x"),
        planes.unpack_zigzag(column, rows, "x"),
        planes.unpack_zigzag_sums(column, rows, "x", 17),
    )
    with numpy_only():
        expected = (
            planes.unpack(column, rows, "x"),
            planes.unpack_zigzag(column, rows, "x"),
            planes.unpack_zigzag_sums(column, rows, "x", 17),
        )
    for one, other in zip(made, expected, strict=True):
        assert one.dtype == other.dtype == np.int64
        assert one.tolist() == other.tolist()


@given(packed, st.integers(1, 1 << 16), st.integers(-1, 1 << 16))
def test_index_columns(column: Planes, size: int, base: int) -> None:
    """The same indexes, and the same refusal in the same words."""
    column = column._replace(base=base)
    rows = len(column.data) // column.width

    def outcome() -> object:
        try:
            return planes.unpack_index(column, rows, "x", size).tolist()
        except BatchError as error:
            return str(error)

    made = outcome()
    with numpy_only():
        assert outcome() == made


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), st.data())
def test_taking_entries(values: list[int], data: st.DataObject) -> None:
    """Entries of 4 and 8 bytes by index, as numpy takes them."""
    native = library()
    assert native is not None
    index = np.array(data.draw(st.lists(st.integers(0, len(values) - 1))), dtype=np.int32)
    for dtype in (np.uint32, np.float64):
        table = np.array(values, dtype=dtype)
        made = columns.take(native, table, index)
        assert made.dtype == dtype
        assert made.tolist() == table[index].tolist()


@given(batches())
def test_whole_batches(batch: Batch) -> None:
    """Any batch that the contract allows comes back equal either way."""
    data = encode_batch(batch)
    made = decode_batch(data).columns
    with numpy_only():
        assert equal(decode_batch(data).columns, made)
    assert equal(batch.columns, made)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_column_of_another_length_is_refused_before_it_is_read(width: int) -> None:
    """The library is never given fewer bytes than it reads."""
    for unpack in (planes.unpack, planes.unpack_zigzag):
        with pytest.raises(BatchError, match=f"column x has {3 * width - 1} bytes, not {3 * width} for 3 rows"):
            unpack(Planes(width, 0, bytes(3 * width - 1)), 3, "x")

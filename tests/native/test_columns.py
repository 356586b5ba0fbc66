"""Columns undone in C equal numpy's, for every width, length and value."""

from __future__ import annotations

import re
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanlite.contract import planes, wire
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import equal
from spanlite.contract.errors import BatchError
from spanlite.contract.planes import Planes
from spanlite.native import columns, library
from spanlite.pipeline import plausible
from spanlite.v1 import batch_pb2
from tests.contract.columns_strategy import batches
from tests.native.without import numpy_only
from tests.stack import load

packed = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 67)).flatmap(
    lambda each: st.builds(
        Planes,
        st.just(each[0]),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(min_size=each[0] * each[1], max_size=each[0] * each[1]),
    )
)


def test_the_library_is_there() -> None:
    """A compiler is part of what the tests set up, so the others below really compare two things."""
    assert library() is not None


@given(st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]), st.data(), st.integers(1, 3))
def test_packing(name: str, data: st.DataObject, step: int) -> None:
    """Any integers of any type, lying together or apart: the same width, base and bytes, and the same of zigzag."""
    limits = np.iinfo(name)
    near = st.integers(max(limits.min, -3), min(limits.max, 300))
    drawn = data.draw(st.lists(near | st.integers(int(limits.min), int(limits.max)), max_size=20))
    values = np.repeat(np.array(drawn, dtype=name), step)[::step]
    many = np.tile(values, 120)
    for each in (values, many):
        made = (planes.pack(each), planes.pack_zigzag(each.astype(np.int64)))
        with numpy_only():
            assert made == (planes.pack(each), planes.pack_zigzag(each.astype(np.int64)))


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
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_whole_batches(batch: Batch) -> None:
    """Any batch that the contract allows comes back equal either way."""
    data = encode_batch(batch)
    made = decode_batch(data).columns
    with numpy_only():
        assert equal(decode_batch(data).columns, made)
        assert encode_batch(batch) == data
    assert equal(batch.columns, made)


@given(batches())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_a_batch_may_claim(batch: Batch) -> None:
    """The same batches are refused, in the same words but for the last digits of a sum."""

    def outcome() -> tuple[str, str] | None:
        try:
            plausible.check_batch(batch)
        except BatchError as error:
            return error.reason, re.sub(r"[\d.e+]+ (?=nano|exec|bytes)", "", str(error))
        return None

    made = outcome()
    with numpy_only():
        assert outcome() == made


@given(st.binary(min_size=1, max_size=40), st.integers(0, 9))
def test_fields_of_any_bytes_are_counted_alike(data: bytes, most: int) -> None:
    """Well-formed or not: the same count, the same refusal."""

    def outcome() -> str:
        try:
            wire.check_field_count(data, most, "it")
        except BatchError as error:
            return str(error)
        return "passes"

    with patch.object(wire, "HARMLESS_BYTES", 0):
        made = outcome()
        with numpy_only():
            assert outcome() == made


@pytest.mark.parametrize("field", ["gpu", "priority", "stream_id"])
def test_a_value_that_no_field_of_a_table_holds_is_refused(field: str) -> None:
    """One more than an int32 or uint32 holds, by either way, in the same words."""
    batch = load.recorded(512)[0]
    message = batch_pb2.SpanBatch.FromString(encode_batch(batch))
    inner = batch_pb2.SpanColumns.FromString(zstandard.decompress(message.body))
    getattr(inner.places, field).base = 1 << 32
    message.body = inner.SerializeToString()
    message.body_size, message.compression = len(message.body), batch_pb2.COMPRESSION_NONE
    least, most = (0, 2**32 - 1) if field == "stream_id" else (-(2**31), 2**31 - 1)
    said = f"value: places.{field} holds a value beyond {least} to {most}"
    for way in (nullcontext(), numpy_only()):
        with way, pytest.raises(BatchError, match=re.escape(said)):
            decode_batch(message.SerializeToString())


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_a_column_of_another_length_is_refused_before_it_is_read(width: int) -> None:
    """The library is never given fewer bytes than it reads."""
    for unpack in (planes.unpack, planes.unpack_zigzag):
        with pytest.raises(BatchError, match=f"column x has {3 * width - 1} bytes, not {3 * width} for 3 rows"):
            unpack(Planes(width, 0, bytes(3 * width - 1)), 3, "x")

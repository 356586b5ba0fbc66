"""CUPTI records to launches: rows, shapes and refusals, against records made and read with `struct`."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from spanlite.agent import work
from spanlite.agent.activity import decode
from spanlite.agent.launches import SHAPE_COLUMNS
from spanlite.agent.layouts import layout_for
from spanlite.agent.work import COPY_KINDS, launches_of, name_of
from spanlite.contract.columns import Kind
from tests.agent import records
from tests.agent.records import kernel

_LAYOUT = layout_for(130500)


def _copy(kind: int, start: int, correlation: int, *, size: int = 64, stream: int = 7) -> bytes:
    head = struct.pack("<iBBBBQQQIIII", 1, kind, 0, 0, 0, size, start, start + 4, 0, 1, stream, correlation)
    return head.ljust(records.SIZES[1], b"\0")


def _set(start: int, correlation: int, *, size: int = 32) -> bytes:
    return struct.pack("<iIQQQIIII", 2, 0, size, start, start + 2, 0, 1, 9, correlation).ljust(records.SIZES[2], b"\0")


def test_kernels_copies_and_sets_become_rows_in_this_order() -> None:
    """Each record gives a row with its own times, id, bytes and shape, kinds one after the other."""
    data = _set(50, 5) + kernel(10, 13, 1, stream=3) + _copy(1, 20, 2) + kernel(30, 39, 3, stream=4) + _copy(2, 40, 4)
    launches, rejected = launches_of(decode(data, _LAYOUT), now_ns=None)
    assert rejected == {}
    assert launches.start_ns.tolist() == [10, 30, 20, 40, 50]
    assert launches.duration_ns.tolist() == [3, 9, 4, 4, 2]
    assert launches.correlation.tolist() == [1, 3, 2, 4, 5]
    assert launches.bytes.tolist() == [0, 0, 64, 64, 32]
    looked_up = {name: launches.of_shape(name)[launches.shape].tolist() for name in ("kind", "name", "stream_id")}
    assert looked_up == {
        "kind": [Kind.KERNEL, Kind.KERNEL, Kind.MEMCPY, Kind.MEMCPY, Kind.MEMSET],
        "name": [0x10, 0x10, 1, 2, 0],
        "stream_id": [3, 4, 7, 7, 9],
    }


def test_rows_of_one_shape_share_it_whatever_else_they_hold() -> None:
    """Times, ids and bytes, even in the same word of the record, do not make a new shape."""
    data = b"".join(kernel(n, n + n, n) for n in range(1, 9)) + b"".join(_copy(1, n, n, size=n) for n in range(1, 9))
    launches, _ = launches_of(decode(data, _LAYOUT), now_ns=None)
    assert launches.shape.tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize("name", records.RECORDINGS)
def test_shapes_of_recordings_are_as_many_as_distinct_field_values(name: str) -> None:
    """Shapes equal a set of tuples over the decoded fields, and every row has the values of its own record."""
    data, about = records.load(name)
    activity = decode(data, layout_for(about["cupti_version"]))
    launches, _ = launches_of(activity, now_ns=None)
    fields = [field for field in SHAPE_COLUMNS if field != "kind" and field in (activity.kernels.dtype.names or ())]
    tuples = list(zip(*(activity.kernels[field].tolist() for field in fields), strict=True))
    kernels = launches.shape[: len(tuples)]
    assert len(np.unique(kernels)) == len(set(tuples))
    for field in fields:
        values = launches.of_shape(field)[kernels]
        assert np.array_equal(values, activity.kernels[field].astype(np.int64)), field


def test_masks_hold_exactly_the_bits_of_the_fields() -> None:
    """Of a copy's record: the direction's byte, the stream's half word, not the correlation id beside it."""
    at, mask = work._shape_words(_LAYOUT.dtypes[1])
    bits = dict(zip(at.tolist(), mask.tolist(), strict=True))
    assert bits[0] == 0xFF << 32
    assert bits[5] == 0xFFFFFFFF
    assert 1 not in bits
    assert 2 not in bits


def test_refused_records_leave_the_others_their_own_values() -> None:
    """Rows after a refused one keep their shape, id and bytes."""
    data = (
        kernel(10, 10, 1, stream=3) + kernel(20, 25, 2, stream=4) + _copy(1, 30, 3) + _copy(2, 0, 4) + _copy(8, 40, 5)
    )
    launches, rejected = launches_of(decode(data, _LAYOUT), now_ns=None)
    assert rejected == {"zero_duration": 1, "zero_timestamp": 1}
    assert launches.correlation.tolist() == [2, 3, 5]
    assert launches.of_shape("stream_id")[launches.shape].tolist() == [4, 7, 7]
    assert launches.of_shape("name")[launches.shape].tolist() == [0x10, 1, 8]


def test_a_buffer_without_gpu_work_gives_no_rows() -> None:
    """Nothing in, nothing out, with every column there."""
    launches, rejected = launches_of(decode(b"", _LAYOUT), now_ns=5)
    assert (len(launches), rejected) == (0, {})
    assert len(launches.of_shape("stream_id")) == 0


def test_a_copy_of_impossibly_many_bytes_counts_none() -> None:
    """2^63 bytes and more have no place in a signed column."""
    launches, _ = launches_of(decode(_copy(1, 10, 1, size=2**63), _LAYOUT), now_ns=None)
    assert launches.bytes.tolist() == [0]


def test_names_follow_the_kind() -> None:
    """Kernels by pointer, copies by direction, memory sets by what they are."""
    named = name_of({0x10: "gemm"})
    assert named(Kind.KERNEL, 0x10) == "gemm"
    assert named(Kind.KERNEL, 0x11) == "unnamed"
    assert named(Kind.MEMSET, 0) == "memset"
    assert [named(Kind.MEMCPY, kind) for kind in range(12)] == [
        *(f"memcpy_{text}" for text in COPY_KINDS.values()),
        "memcpy_unknown",
    ]

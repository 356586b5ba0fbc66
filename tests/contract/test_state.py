"""State of the streaming jobs as bytes: any value there and back, old bytes for ever, and bytes made to do harm."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spanlite.contract.errors import StateError
from spanlite.contract.state import (
    BUCKET_DTYPES,
    ROW_DTYPES,
    Progress,
    decode_partial,
    decode_progress,
    encode_partial,
    encode_progress,
)
from spanlite.v1 import state_pb2
from tests.golden.make_state import golden_partial, golden_progress

_GOLDEN = Path(__file__).parents[1] / "golden"
_UNKNOWN = b"\xfa\x01\x03new"
"""Field 31 of a later version: three bytes."""
_INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def _progress(draw: st.DrawFn) -> Progress:
    edges = sorted(draw(st.sets(st.one_of(st.integers(0, 40), st.integers(0, 2**64 - 1)), max_size=12)))
    runs: list[tuple[int, int]] = []
    for first, last in pairwise(edges[: len(edges) // 2 * 2]):
        if not runs or first > runs[-1][1] + 1:
            runs.append((first, last))
    return Progress(tuple(runs), draw(st.none() | _INT64), draw(st.none() | _INT64))


@st.composite
def _partials(draw: st.DrawFn) -> tuple[list[bytes], dict[str, NDArray[Any]]]:
    series = draw(st.lists(st.binary(max_size=20), max_size=4))
    rows = draw(st.integers(0, 6)) if series else 0

    def column(name: str, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
        if name == "buckets":
            values: Any = draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
        elif name == "series_index":
            values = draw(st.lists(st.integers(0, max(len(series) - 1, 0)), min_size=length, max_size=length))
        else:
            data = draw(st.binary(min_size=length * dtype.itemsize, max_size=length * dtype.itemsize))
            return np.frombuffer(data, dtype=dtype)
        return np.array(values, dtype=dtype)

    columns = {name: column(name, dtype, rows) for name, dtype in ROW_DTYPES.items()}
    buckets = int(columns["buckets"].sum())
    return series, columns | {name: column(name, dtype, buckets) for name, dtype in BUCKET_DTYPES.items()}


def _same(
    left: tuple[list[bytes], dict[str, NDArray[Any]]], right: tuple[list[bytes], dict[str, NDArray[Any]]]
) -> bool:
    (series, columns), (others, other) = left, right
    same = (
        columns[name].dtype == other[name].dtype and columns[name].tobytes() == other[name].tobytes() for name in other
    )
    return series == others and columns.keys() == other.keys() and all(same)


@settings(max_examples=200, deadline=None)
@given(_progress())
@example(Progress())
@example(Progress(((0, 0), (2, 2**64 - 1)), 0, 0))
def test_any_progress_there_and_back(progress: Progress) -> None:
    """Runs up to the last sequence, times before 1970, and the difference between 0 and nothing survive."""
    assert decode_progress(encode_progress(progress)) == progress


@settings(max_examples=200, deadline=None)
@given(_partials())
def test_any_partial_there_and_back(partial: tuple[list[bytes], dict[str, NDArray[Any]]]) -> None:
    """Every column comes back with its type and bits, be there no rows, no buckets or no series."""
    assert _same(decode_partial(encode_partial(*partial)), partial)


def test_the_first_version_s_progress_reads_as_on_its_first_day() -> None:
    """A job of a later version goes on from what an earlier one has kept: literal values from committed bytes."""
    data = (_GOLDEN / "progress_v1.bin").read_bytes()
    assert decode_progress(data) == Progress(
        ((0, 41), (43, 43), (2**63, 2**64 - 1)), 1_795_958_731_643_646_670, -179_595_873
    )
    assert encode_progress(golden_progress()) == data


def test_the_first_version_s_partial_reads_as_on_its_first_day() -> None:
    """Likewise for aggregates: every column told once more."""
    data = (_GOLDEN / "partial_v1.bin").read_bytes()
    series, columns = decode_partial(data)
    assert series == [b"\x0a\x05GPU-1\x10\x01\x1a\x06gemm#1", b"\x10\x02"]
    assert {name: values.tolist() for name, values in columns.items() if name != "exemplar_trace"} == {
        "window": [-3, 179_595_873, 179_595_873],
        "series_index": [0, 0, 1],
        "count": [8, 2, 1],
        "spans": [1, 2, 1],
        "sum_ns": [8000, 300, 2**62],
        "min_ns": [1000, 100, 2**62],
        "max_ns": [1000, 200, 2**62],
        "warp_ns": [8000 * 48, 300 * 48, 0],
        "bytes": [0, 0, 1 << 40],
        "exemplar_span": [1, 2**64 - 1, 0x0123456789ABCDEF],
        "exemplar_start_ns": [-29_999_999_000, 1_795_958_731_643_646_670, 1_795_958_731_643_646_671],
        "buckets": [1, 2, 1],
        "bucket_index": [-637, -743, -711, 1032],
        "bucket_count": [8, 1, 1, 1],
    }
    assert columns["exemplar_trace"].tobytes() == bytes(range(16)) + bytes(32)
    assert encode_partial(*golden_partial()) == data


@pytest.mark.parametrize("later", [0, 2, 2**32 - 1])
def test_a_format_that_is_not_known_is_refused_with_both_numbers(later: int) -> None:
    """Whoever goes back a version reads one line that says which format there is, which is known, and what to do."""
    progress = state_pb2.ProducerProgress.FromString(encode_progress(golden_progress()))
    partial = state_pb2.PartialAggregate.FromString(encode_partial(*golden_partial()))
    progress.format = partial.format = later
    expected = f"the job's state has format {later}, this version knows 1; restore it with the version that wrote it"
    for decode, message in ((decode_progress, progress), (decode_partial, partial)):
        with pytest.raises(StateError) as raised:
            decode(message.SerializeToString())
        assert str(raised.value).startswith(expected)
        assert "\n" not in str(raised.value)


def test_what_a_later_version_adds_is_passed_over() -> None:
    """A field that this version does not know, under the same format, harms neither."""
    assert decode_progress(encode_progress(golden_progress()) + _UNKNOWN) == golden_progress()
    assert _same(decode_partial(encode_partial(*golden_partial()) + _UNKNOWN), golden_partial())


@pytest.mark.parametrize("taken", [[1], [1, 2, 3], [5, 4], [0, 3, 4, 6], [0, 3, 2, 6], [8, 9, 0, 3]])
def test_sequences_out_of_order_are_refused(taken: list[int]) -> None:
    """Half a run, a run that ends before it begins, and runs that touch, overlap or descend are no progress."""
    with pytest.raises(StateError, match="sequences out of order"):
        decode_progress(state_pb2.ProducerProgress(format=1, taken=taken).SerializeToString())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": b"\0" * 23}, "column window of a partial aggregate ends inside a value"),
        ({"exemplar_trace": b"\0" * 47}, "column exemplar_trace of a partial aggregate ends inside"),
        ({"count": b"\0" * 16}, "columns are not equally long"),
        ({"buckets": b"\1\0\0\0" * 2}, "columns are not equally long"),
        ({"buckets": b"\xff\xff\xff\xff" * 3}, "columns are not equally long"),
        ({"bucket_count": b"\0" * 24}, "columns are not equally long"),
        ({"series_index": b"\2\0\0\0" * 3}, "names a series that it does not hold"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change: dict[str, bytes], message: str) -> None:
    """A column too short, too long, or that points beyond the series is told by one line."""
    partial = state_pb2.PartialAggregate.FromString(encode_partial(*golden_partial()))
    for name, value in change.items():
        setattr(partial, name, value)
    with pytest.raises(StateError, match=message):
        decode_partial(partial.SerializeToString())


def _read(decode: Any, data: bytes) -> Any:
    """What the bytes are, or None where they are refused."""
    try:
        return decode(data)
    except StateError:
        return None


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=80), st.builds(lambda data: b"\x08\x01" + data, st.binary(max_size=80))))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but StateError comes of bytes that are no state; what is read is what it says when written again."""
    progress = _read(decode_progress, data)
    assert progress is None or decode_progress(encode_progress(progress)) == progress
    partial = _read(decode_partial, data)
    assert partial is None or _same(decode_partial(encode_partial(*partial)), partial)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_state_is_read_or_refused(data: st.DataObject) -> None:
    """Flipped, cut or spliced golden bytes likewise; what is read has columns of one length."""
    name, decode = data.draw(
        st.sampled_from([("progress_v1.bin", decode_progress), ("partial_v1.bin", decode_partial)])
    )
    damaged = bytearray((_GOLDEN / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not damaged:
            break
    read = _read(decode, bytes(damaged))
    if isinstance(read, Progress):
        assert decode_progress(encode_progress(read)) == read
    elif read is not None:
        assert len({len(read[1][column]) for column in ROW_DTYPES}) == 1

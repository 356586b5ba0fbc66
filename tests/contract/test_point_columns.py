"""Points from columns: the bytes are those of one point after the other, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spanlite.contract.errors import PointError
from spanlite.contract.histogram import LOWEST_INDEX, bounds_ns
from spanlite.contract.point_codec import decode_point, encode_point, encode_series
from spanlite.contract.point_columns import PointColumns, encode_cumulative
from spanlite.contract.points import Exemplar, Point, Series
from spanlite.contract.series_codec import series_field

_MOST = 2**63 - 1
_NUMBERS = ("count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes")
_SERIES = [Series("GPU-1", 1, "gemm", "x" * size) for size in (0, 90, 120, 16_300, 16_400, 40_000)]
_NATURAL = st.one_of(
    st.sampled_from([0, 1, *(number for bits in range(7, 63, 7) for number in (2**bits - 1, 2**bits)), _MOST]),
    st.integers(0, _MOST),
)
_WHOLE = st.one_of(st.sampled_from([0, -1, -(2**63), _MOST]), st.integers(-(2**63), _MOST))


@st.composite
def _points(draw: st.DrawFn) -> Point:
    """Any numbers that a column holds; they need not agree with one another."""
    index = sorted(draw(st.sets(st.integers(LOWEST_INDEX, LOWEST_INDEX + len(bounds_ns())), max_size=70)))
    counts = draw(st.lists(_NATURAL, min_size=len(index), max_size=len(index)))
    numbers: dict[str, Any] = {name: draw(_NATURAL) for name in _NUMBERS}
    trace = draw(st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)))
    return Point(
        series=draw(st.sampled_from(_SERIES)),
        window_start_ns=draw(_WHOLE),
        window_end_ns=draw(_WHOLE),
        **numbers,
        bucket_index=np.array(index, dtype=np.int32),
        bucket_count=np.array(counts, dtype=np.int64),
        exemplar=Exemplar(trace, draw(st.integers(0, 2**64 - 1)), numbers["max_ns"], draw(_WHOLE)),
        cumulative=True,
    )


def _columns(made: list[Point]) -> PointColumns:
    names = ("window_start_ns", "window_end_ns", *_NUMBERS)
    numbers: dict[str, Any] = {
        name: np.array([getattr(point, name) for point in made], dtype=np.int64) for name in names
    }
    exemplars = [point.exemplar or Exemplar(bytes(16), 0, 0, 0) for point in made]
    return PointColumns(
        **numbers,
        exemplar_trace=np.array([each.trace_id for each in exemplars], dtype="V16"),
        exemplar_span=np.array([each.span_id for each in exemplars], dtype=np.uint64),
        exemplar_start_ns=np.array([each.start_ns for each in exemplars], dtype=np.int64),
        buckets=np.array([len(point.bucket_index) for point in made], dtype=np.int64),
        bucket_index=np.concatenate([np.zeros(0, dtype=np.int32), *(point.bucket_index for point in made)]),
        bucket_count=np.concatenate([np.zeros(0, dtype=np.int64), *(point.bucket_count for point in made)]),
    )


def _encoded(made: list[Point], epoch: int) -> list[bytes]:
    fields = [series_field(encode_series(point.series)) for point in made]
    return encode_cumulative(fields, _columns(made), epoch)


@settings(max_examples=200, deadline=None)
@given(st.lists(_points(), max_size=12), st.one_of(st.sampled_from([0, 1, 2**64 - 1]), st.integers(0, 2**64 - 1)))
def test_the_bytes_are_those_of_each_point_alone(made: list[Point], epoch: int) -> None:
    """Every width of every number, zeros that are left out, points without buckets: equal to the last bit."""
    assert _encoded(made, epoch) == [encode_point(replace(point, epoch=epoch)) for point in made]


def _sound(number: int, index: NDArray[np.int32], counts: NDArray[np.int64]) -> Point:
    """A point whose numbers agree, each another."""
    total = int(counts.sum())
    return Point(
        series=Series("GPU-1", 1, f"k{number}"),
        window_start_ns=number - 5000,
        window_end_ns=number,
        count=total,
        spans=total,
        sum_ns=total * 977,
        min_ns=1,
        max_ns=977,
        warp_ns=total * 977 * 48,
        bytes=0,
        bucket_index=index,
        bucket_count=counts,
        exemplar=Exemplar(bytes(16), number, 977, number),
        cumulative=True,
        epoch=3,
    )


def test_many_points_are_read_back() -> None:
    """Ten thousand sound points of few and many buckets come back as they were."""
    random = np.random.default_rng(7)
    made = []
    for number in range(10_000):
        index = np.sort(random.choice(2000, number % 40, replace=False)).astype(np.int32) + LOWEST_INDEX
        made.append(_sound(number, index.astype(np.int32), random.geometric(0.01, number % 40)))
    for point, data in zip(made, _encoded(made, 3), strict=True):
        back = decode_point(data)
        assert replace(back, bucket_index=point.bucket_index, bucket_count=point.bucket_count) == point
        assert back.bucket_index.tobytes() == point.bucket_index.tobytes()
        assert back.bucket_count.tobytes() == point.bucket_count.tobytes()


@pytest.mark.parametrize("name", [*_NUMBERS, "bucket_count"])
def test_a_number_that_is_no_uint64_is_refused(name: str) -> None:
    """A sum that has wrapped around must not go out as another."""
    point = _sound(1, np.array([3], dtype=np.int32), np.array([1], dtype=np.int64))
    columns = _columns([point, point])
    getattr(columns, name)[1] = -7
    with pytest.raises(PointError, match=rf"value: .*{name} of -7") as caught:
        encode_cumulative([b"", b""], columns, 0)
    assert caught.value.reason == "value"


@pytest.mark.parametrize("epoch", [-1, 2**64])
def test_an_epoch_that_is_no_uint64_is_refused(epoch: int) -> None:
    """As by `encode_point`."""
    point = _sound(1, np.array([3], dtype=np.int32), np.array([1], dtype=np.int64))
    with pytest.raises(PointError, match="epoch"):
        _encoded([point], epoch)

"""Metric points: what they say of themselves, and their JSON form."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from spanlite.contract.points import Exemplar, Launch, Point, Series, merge_buckets, point_json

_LAUNCH = Launch(grid=(132, 1, 1), block=(256, 1, 1), registers_per_thread=64, active_warps=32, max_warps=64, limiter=3)
_SERIES = Series("GPU-1", 1, "gemm#12345678", "_Z4gemmPf", _LAUNCH, stage="decode", workload="serve", pod="p-0")


def _point(series: Series = _SERIES) -> Point:
    return Point(
        series=series,
        window_start_ns=1_000_000_000,
        window_end_ns=2_000_000_000,
        count=4,
        spans=3,
        sum_ns=4_000_000_001,
        min_ns=1_000_000_000,
        max_ns=1_000_000_001,
        warp_ns=4_000_000_001 * 32,
        bytes=7,
        bucket_index=np.array([0, 1], dtype=np.int32),
        bucket_count=np.array([3, 1], dtype=np.int64),
    )


def test_occupancy_is_weighted_by_time() -> None:
    """32 of 64 warps all the time are a half, exactly."""
    assert _point().occupancy == 0.5


def test_occupancy_that_is_not_known_is_nan_and_null() -> None:
    """Copies and ranges have no warps; 0 would be a claim."""
    point = _point(Series("GPU-1", 2, "memcpy"))
    assert math.isnan(point.occupancy)
    assert point_json(point)["occupancy"] is None


def test_quantiles_come_from_the_buckets() -> None:
    """Three of four lie in (2^(-1/32), 1] s, the slowest in the next bucket."""
    assert _point().quantile_ns(0.5) == pytest.approx(2 ** (-1 / 64) * 1e9)
    assert _point().quantile_ns(1.0) == pytest.approx(2 ** (1 / 64) * 1e9)


@pytest.mark.parametrize(("bits", "value"), [(0xBFD0000000000000, -0.25), (0x7FF0000000000000, "inf")])
def test_a_gauge_says_its_value(bits: int, value: float | str) -> None:
    """That of its exemplar; other kinds, and points without one, have none. JSON has no word for infinity."""
    exemplar = Exemplar(bytes(16), bits, 0, 5)
    gauge = replace(_point(Series("", 7, "loss", "loss")), exemplar=exemplar)
    assert gauge.value == float(value)
    assert point_json(gauge)["value"] == value
    told = point_json(gauge)["exemplar"]
    assert isinstance(told, dict)
    assert (told["value"], told["span_id"], told["start_ns"]) == (value, f"{bits:016x}", 5)
    for other in (replace(_point(), exemplar=exemplar), replace(gauge, exemplar=None)):
        assert other.value is None
        assert "value" not in point_json(other)


def test_equal_series_are_one_key() -> None:
    """A series names the same work in every run and process."""
    again = Series("GPU-1", 1, "gemm#12345678", "_Z4gemmPf", Launch(*_LAUNCH), "decode", "serve", pod="p-0")
    assert {_SERIES: 1}[again] == 1
    assert _SERIES._replace(launch=_LAUNCH._replace(grid=(133, 1, 1))) not in {_SERIES}


def test_buckets_merge_in_any_order() -> None:
    """Equal indexes add up, also negative ones, and the result ascends."""
    index, count = merge_buckets(
        np.array([5, -900, 5, 0, -900, 5], dtype=np.int32), np.array([1, 2, 3, 4, 5, 2**40], dtype=np.int64)
    )
    assert index.tolist() == [-900, 0, 5]
    assert count.tolist() == [7, 4, 2**40 + 4]
    assert (index.dtype, count.dtype) == (np.dtype(np.int32), np.dtype(np.int64))


def test_no_buckets_merge_to_none() -> None:
    """An empty window."""
    index, count = merge_buckets(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64))
    assert (len(index), len(count)) == (0, 0)


def test_json_tells_every_field_in_seconds_and_whole_nanoseconds() -> None:
    """Spelled out: the form that files and alerts show."""
    told = json.loads(json.dumps(point_json(_point())))
    assert told["window"] == {"start_ns": 1_000_000_000, "end_ns": 2_000_000_000}
    assert (told["count"], told["spans"], told["bytes"], told["schema"]) == (4, 3, 7, 5)
    assert (told["sum"], told["min"], told["max"]) == (4.000000001, 1.0, 1.000000001)
    assert (told["sum_ns"], told["min_ns"], told["max_ns"]) == (4_000_000_001, 1_000_000_000, 1_000_000_001)
    assert told["buckets"] == [[0, 3], [1, 1]]
    assert told["occupancy"] == 0.5
    labels = told["labels"]
    assert (labels["kind"], labels["kernel"], labels["name"]) == ("kernel", "gemm#12345678", "_Z4gemmPf")
    assert (labels["grid"], labels["block"], labels["limiter"]) == ([132, 1, 1], [256, 1, 1], "registers")
    assert (labels["stage"], labels["workload"], labels["pod"], labels["host"]) == ("decode", "serve", "p-0", "")
    assert "exemplar" not in told


def test_json_tells_the_longest_execution() -> None:
    """Trace and span in hex, its value in seconds as the bucket has it, and when it began; no trace is null."""
    longest = Exemplar(bytes(range(16)), 0xAB, 1_000_000_001, 1_795_958_730_000_000_007)
    assert point_json(replace(_point(), exemplar=longest))["exemplar"] == {
        "trace_id": "000102030405060708090a0b0c0d0e0f",
        "span_id": "00000000000000ab",
        "value": 1.000000001,
        "duration_ns": 1_000_000_001,
        "start_ns": 1_795_958_730_000_000_007,
    }
    alone = json.loads(json.dumps(point_json(replace(_point(), exemplar=replace(longest, trace_id=bytes(16))))))
    assert alone["exemplar"]["trace_id"] is None

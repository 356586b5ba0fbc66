"""Metric points on the wire: exact bytes, any point there and back, and points made to do harm."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.columns import Kind
from spanlite.contract.errors import PointError
from spanlite.contract.histogram import LOWEST_INDEX, bounds_ns, bucket_index
from spanlite.contract.point_codec import (
    DEFAULT_POINT_LIMITS,
    PointLimits,
    decode_point,
    decode_series,
    encode_point,
    encode_series,
    series_key,
)
from spanlite.contract.points import Exemplar, Launch, Point, Series
from spanlite.v1 import point_pb2

_ROOT = Path(__file__).parents[2]
_MOST = 2**63 - 1
_LAUNCH = Launch((132, 2, 3), (256, 4, 5), (6, 7, 8), 64, 1024, 2048, 4096, 9, 1, 0, 32, 64, 3)
_SERIES = Series("GPU-1", 1, "gemm#1", "_Z4gemmPf", _LAUNCH, "decode", "serve", "prod", "p-0", "main", "node-1")
_POINT = Point(
    series=_SERIES,
    window_start_ns=-2,
    window_end_ns=10**18,
    count=300,
    spans=299,
    sum_ns=70_000,
    min_ns=1,
    max_ns=129,
    warp_ns=70_000 * 32,
    bytes=5,
    bucket_index=np.array([-960, 0, 7], dtype=np.int32),
    bucket_count=np.array([1, 298, 1], dtype=np.int64),
    exemplar=Exemplar(bytes(range(16)), 2**64 - 1, 129, 10**18),
    cumulative=True,
    epoch=2**64 - 2,
)


def _same(left: Point, right: Point) -> bool:
    """Whether two points are equal to the last value and type."""
    for field in fields(Point):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if isinstance(a, np.ndarray):
            if a.dtype != b.dtype or not np.array_equal(a, b):
                return False
        elif a != b:
            return False
    return True


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _fixed(field: int, value: int) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<Q", value & (2**64 - 1))


def _length(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def test_bytes_are_those_of_the_protobuf_rules() -> None:
    """A point's bytes, written by hand from point.proto's field numbers and the encoding rules of protobuf."""
    numbers = (132, 2, 3, 256, 4, 5, 6, 7, 8, 64, 1024, 2048, 4096, 9, 1, 0, 32, 64, 3)
    config = b"".join(_number(at + 1, value) for at, value in enumerate(numbers) if value)
    texts = ((6, b"decode"), (7, b"serve"), (8, b"prod"), (9, b"p-0"), (10, b"main"), (11, b"node-1"))
    series = (
        _length(1, b"GPU-1")
        + _number(2, 1)
        + _length(3, b"gemm#1")
        + _length(4, b"_Z4gemmPf")
        + _length(5, config)
        + b"".join(_length(field, text) for field, text in texts)
    )
    exemplar = _length(1, bytes(range(16))) + _fixed(2, 2**64 - 1) + _number(3, 129) + _fixed(4, 10**18)
    expected = (
        _length(1, series)
        + _fixed(2, -2)
        + _fixed(3, 10**18)
        + _number(4, 1)
        + b"".join(_number(5 + at, n) for at, n in enumerate((300, 299, 70_000, 1, 129, 70_000 * 32, 5)))
        + _number(12, _zigzag(5))
        + _length(13, b"".join(_varint(_zigzag(i)) for i in (-960, 0, 7)))
        + _length(14, b"".join(_varint(n) for n in (1, 298, 1)))
        + _length(15, exemplar)
        + _fixed(16, 2**64 - 2)
    )
    assert encode_series(_SERIES) == series
    assert encode_point(_POINT) == expected
    assert _same(decode_point(expected), _POINT)


def test_keys_are_for_ever() -> None:
    """Literal keys, and the rule of the docstring worked out here: a changed key would split every series in two."""
    numbers = struct.pack("<20I", 1, 132, 2, 3, 256, 4, 5, 6, 7, 8, 64, 1024, 2048, 4096, 9, 1, 0, 32, 64, 3)
    texts = (b"GPU-1", b"gemm#1", b"_Z4gemmPf", b"decode", b"serve", b"prod", b"p-0", b"main", b"node-1")
    data = numbers + struct.pack("<9I", *map(len, texts)) + b"".join(texts)
    assert series_key(_SERIES) == hashlib.blake2b(data, digest_size=16, person=b"spanlite.series").digest()
    assert series_key(_SERIES).hex() == "f549d1e860e3ce8063e6d0ce8997b54b"
    assert series_key(Series("", 4, "")).hex() == "9a2221ce13bbcb35663572d6b0627122"


def test_every_field_of_a_series_counts_in_its_key() -> None:
    """Two series that differ in one field, or in where one text ends and the next begins, have two keys."""
    launch: list[dict[str, Any]] = [{name: 77} for name in Launch._fields[3:]]
    launch += [{name: (9, 9, 9)} for name in Launch._fields[:3]]
    texts: list[dict[str, Any]] = [{name: "x"} for name in Series._fields if name not in ("kind", "launch")]
    others = [
        *(_SERIES._replace(launch=_LAUNCH._replace(**change)) for change in launch),
        *(_SERIES._replace(**change) for change in texts),
        _SERIES._replace(kind=2),
        _SERIES._replace(stage="decodes", workload="erve"),
    ]
    assert len({series_key(series) for series in [_SERIES, *others]}) == 1 + len(others)
    assert len({encode_series(series) for series in [_SERIES, *others]}) == 1 + len(others)


_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.sampled_from(["核🔥\x00", "x" * 300])
)
_UINT32 = st.integers(0, 2**32 - 1)
_SHAPE = st.tuples(_UINT32, _UINT32, _UINT32)
_LAUNCHES = st.builds(Launch, _SHAPE, _SHAPE, _SHAPE, *[_UINT32] * (len(Launch._fields) - 3))
_ANY_SERIES = st.builds(
    Series, _TEXT, st.sampled_from([1, 2, 3, 4]), _TEXT, _TEXT, st.one_of(st.just(Launch()), _LAUNCHES), *[_TEXT] * 6
)
_EXEMPLARS = st.one_of(
    st.none(),
    st.builds(
        Exemplar,
        st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)),
        st.integers(0, 2**64 - 1),
        st.integers(0, _MOST),
        st.integers(-(2**63), _MOST),
    ),
)


@st.composite
def _points(draw: st.DrawFn) -> Point:
    indexes = st.integers(LOWEST_INDEX, LOWEST_INDEX + len(bounds_ns()))
    index = sorted(draw(st.sets(indexes, max_size=12)))
    counts = [draw(st.one_of(st.integers(1, 300), st.integers(1, 2**59))) for _ in index]
    natural = st.integers(0, _MOST)
    shortest, longest = sorted([draw(natural), draw(natural)])
    start, end = sorted(draw(st.tuples(st.integers(-(2**63), _MOST), st.integers(-(2**63), _MOST))))
    return Point(
        series=draw(_ANY_SERIES),
        window_start_ns=start,
        window_end_ns=end,
        count=sum(counts),
        spans=draw(st.integers(0, sum(counts))),
        sum_ns=draw(natural),
        min_ns=shortest,
        max_ns=longest,
        warp_ns=draw(natural),
        bytes=draw(natural),
        bucket_index=np.array(index, dtype=np.int32),
        bucket_count=np.array(counts, dtype=np.int64),
        exemplar=draw(_EXEMPLARS),
        cumulative=draw(st.booleans()),
        epoch=draw(st.integers(0, 2**64 - 1)),
    )


@given(_points())
def test_any_point_comes_back_as_it_was(point: Point) -> None:
    """Every value of every field, and equal points give equal bytes."""
    data = encode_point(point)
    assert _same(decode_point(data), point)
    assert encode_point(decode_point(data)) == data
    assert decode_series(encode_series(point.series)) == point.series


@given(_points(), st.randoms(use_true_random=False))
def test_the_order_of_fields_does_not_matter(point: Point, random: Any) -> None:
    """Other writers may put the series last, or in two parts that protobuf merges: the point is the same."""
    series = encode_series(point.series)
    rest = encode_point(point)[len(_length(1, series)) :]
    assert _same(decode_point(rest + _length(1, series)), point)
    older = encode_series(point.series._replace(host="old"))
    merged = replace(point, series=point.series._replace(host=point.series.host or "old"))
    assert _same(decode_point(_length(1, older) + rest + _length(1, series)), merged)


def test_a_series_longer_than_two_length_bytes_comes_back() -> None:
    """A template-heavy kernel name of 40,000 characters is within the limits."""
    point = replace(_POINT, series=_SERIES._replace(name="x" * 40_000))
    assert _same(decode_point(encode_point(point)), point)


@pytest.mark.parametrize("change", [{"sum_ns": -1}, {"count": 2**64}, {"window_end_ns": 2**63}, {"epoch": -1}])
def test_numbers_that_do_not_fit_are_refused_at_the_writer(change: dict[str, int]) -> None:
    """A sum that wrapped around must not kill the writer with an error it does not know, nor go out as another."""
    with pytest.raises(PointError, match=r"value: .*gemm#1.* cannot be encoded") as caught:
        encode_point(replace(_POINT, **change))  # type: ignore[arg-type]  # numbers only
    assert caught.value.reason == "value"


def _reason(data: bytes, limits: PointLimits = DEFAULT_POINT_LIMITS) -> str:
    with pytest.raises(PointError) as caught:
        decode_point(data, limits)
    assert str(caught.value).startswith(f"{caught.value.reason}: ")
    return caught.value.reason


def _set(path: str, value: object) -> Callable[[point_pb2.MetricPoint], None]:
    def edit(message: point_pb2.MetricPoint) -> None:
        holder: Any = message
        *steps, last = path.split(".")
        for step in steps:
            holder = getattr(holder, step)
        if isinstance(value, list):
            getattr(holder, last)[:] = value
        else:
            setattr(holder, last, value)

    return edit


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_set("schema", 0), "schema"),
        (_set("schema", 4), "schema"),
        (_set("schema", 2**31 - 1), "schema"),
        (_set("series.kind", 0), "kind"),
        (_set("series.kind", 8), "kind"),
        (_set("series.kind", -1), "kind"),
        (lambda message: message.ClearField("series"), "kind"),
        (_set("window_start_unix_ns", 10**18 + 1), "window"),
        (_set("count", 301), "count"),
        (_set("count", 0), "count"),
        (_set("spans", 301), "count"),
        (_set("spans", 2**64 - 1), "count"),
        (_set("sum_ns", 2**63), "value"),
        (_set("max_ns", 2**63), "value"),
        (_set("min_ns", 130), "value"),
        (_set("warp_ns", 2**64 - 1), "value"),
        (_set("bytes", 2**63), "value"),
        (_set("bucket_index", [-960, 7, 0]), "bucket_index"),
        (_set("bucket_index", [-960, 7, 7]), "bucket_index"),
        (_set("bucket_index", [-961, 0, 7]), "bucket_index"),
        (_set("bucket_index", [-960, 0, 1061]), "bucket_index"),
        (_set("bucket_index", [-(2**31), 0, 2**31 - 1]), "bucket_index"),
        (_set("bucket_index", [-960, 0]), "buckets"),
        (_set("bucket_index", []), "buckets"),
        (_set("bucket_count", [1, 299, 0]), "bucket_count"),
        (_set("bucket_count", [1, 298, 2]), "count"),
        (_set("bucket_count", [2**64 - 1, 298, 3]), "count"),
        (_set("exemplar.trace_id", b"x" * 15), "exemplar"),
        (_set("exemplar.trace_id", b"x" * 17), "exemplar"),
        (_set("exemplar.duration_ns", 2**63), "exemplar"),
        (_set("series.name", "x" * (2**16 + 1)), "text_bytes"),
        (_set("series.host", "é" * (2**15 + 1)), "text_bytes"),
    ],
)
def test_a_point_that_breaks_a_rule_is_refused_with_the_rule_s_name(
    edit: Callable[[point_pb2.MetricPoint], None], reason: str
) -> None:
    """One field of a sound point is changed; the reason says which rule it breaks."""
    message = point_pb2.MetricPoint.FromString(encode_point(_POINT))
    edit(message)
    assert _reason(message.SerializeToString()) == reason


def test_counts_beyond_an_int64_are_refused() -> None:
    """A count that adds up, but that no column holds."""
    message = point_pb2.MetricPoint.FromString(encode_point(_POINT))
    message.bucket_index[:], message.bucket_count[:], message.count = [1], [2**63], 2**63
    assert _reason(message.SerializeToString()) == "value"


def test_the_highest_bucket_is_that_of_the_longest_duration() -> None:
    """Indexes are refused from where no int64 of nanoseconds can lie on: the bound of the last is beyond 2^63."""
    assert 2 ** (1059 / 32) * 1e9 < 2**63 < 2 ** (1060 / 32) * 1e9
    assert bucket_index(np.array([1, 2**53]))[0] >= LOWEST_INDEX


@pytest.mark.parametrize("data", [b"", b"\x0a", b"\x0a\x80\x80", b"\x0a\x05GPU", b"garbage", b"\xff" * 100])
def test_bytes_that_are_no_point_are_refused(data: bytes) -> None:
    """Short and foreign bytes end as no message, or as a point of no kind."""
    assert _reason(data) in {"not_protobuf", "kind"}


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    """In a series at the front, which is read by itself, and in one elsewhere."""
    series = _length(1, _length(3, b"\xff\xfe") + _number(2, 1))
    assert _reason(series) == "not_protobuf"
    assert _reason(_number(5, 1) + series) == "not_protobuf"


def test_a_reader_may_set_tighter_limits() -> None:
    """Each limit is enforced where it is given, one below what the point needs."""
    data = encode_point(_POINT)
    assert _reason(data, PointLimits(message_bytes=len(data) - 1)) == "message_bytes"
    assert _reason(data, PointLimits(buckets=2)) == "buckets"
    assert _reason(data, PointLimits(text_bytes=8)) == "text_bytes"
    assert _same(decode_point(data, PointLimits(len(data), buckets=3, text_bytes=9)), _POINT)
    with pytest.raises(PointError, match="message_bytes"):
        decode_series(encode_series(_SERIES), PointLimits(message_bytes=10))


def test_a_message_over_the_limit_is_refused_unread() -> None:
    """2 MiB is the largest value that is parsed at all."""
    assert _reason(b"\x00" * (DEFAULT_POINT_LIMITS.message_bytes + 1)) == "message_bytes"


def _bomb() -> bytes:
    """The most memory that 2 MiB can ask for: counts of one byte each, which parse to eight."""
    return encode_point(_POINT) + _length(14, b"\x01" * (2**21 - 1024))


_PROGRAM = """
import sys
from pathlib import Path
from spanlite.contract.errors import PointError
from spanlite.contract.point_codec import decode_point

def peak_kib():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

data = Path(sys.argv[1]).read_bytes()
before = peak_kib()
try:
    decode_point(data)
except PointError as error:
    print(error.reason, peak_kib() - before)
"""


def test_the_largest_message_takes_little_memory(tmp_path: Path) -> None:
    """Two million bucket counts are refused before a Python object is made of each."""
    path = tmp_path / "bomb"
    path.write_bytes(_bomb())
    environment = {"PYTHONPATH": f"{_ROOT / 'proto'}:{_ROOT / 'core'}"}
    command = [sys.executable, "-c", _PROGRAM, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    reason, grown_kib = done.stdout.split()
    assert reason == "buckets"
    assert int(grown_kib) < 48 << 10


_DAMAGE = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, 2**16), st.integers(0, 7)),
        st.tuples(st.just("cut"), st.integers(0, 2**16), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 2**16), st.integers(1, 16)),
        st.tuples(st.just("set"), st.integers(0, 2**16), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])),
        st.tuples(st.just("double"), st.integers(0, 2**16), st.integers(1, 64)),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=600)
@given(_DAMAGE)
def test_damaged_points_raise_point_errors_only(damage: list[tuple[str, int, int]]) -> None:
    """Bit flips, cuts, lengths and repetitions; what is accepted is a whole point that encodes and decodes again."""
    data = bytearray(encode_point(_POINT))
    for way, where, value in damage:
        at = where % max(len(data), 1)
        if way == "flip" and data:
            data[at] ^= 1 << value
        elif way == "cut":
            del data[at:]
        elif way == "drop":
            del data[at : at + value]
        elif way == "set" and data:
            data[at] = value
        elif way == "double":
            data[at:at] = data[at : at + value]
    try:
        point = decode_point(bytes(data))
    except PointError:
        return
    assert int(point.bucket_count.sum()) == point.count
    assert Kind(point.series.kind)
    assert _same(decode_point(encode_point(point)), point)

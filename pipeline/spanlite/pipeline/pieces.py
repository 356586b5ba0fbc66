"""Partials as bytes, by GPU: what passes between operators and lies in their state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spanlite.contract.columns import OBSERVATIONS
from spanlite.contract.errors import PointError, StateError
from spanlite.contract.points import Point, Series
from spanlite.contract.state import decode_partial, encode_partial
from spanlite.pipeline.partial import ROW_FIELDS, Partial, empty_partial, select
from spanlite.pipeline.series import SeriesRegistry

_ROWS = tuple(name for name in ROW_FIELDS if name != "series")


def pack(partial: Partial, registry: SeriesRegistry) -> bytes:
    """A partial with the series that it names; readable without the registry."""
    numbers, index = np.unique(partial.series, return_inverse=True)
    columns: dict[str, Any] = {name: getattr(partial, name) for name in _ROWS}
    columns["series_index"] = index
    columns["buckets"] = np.bincount(partial.bucket_row, minlength=len(partial))
    columns["bucket_index"], columns["bucket_count"] = partial.bucket_index, partial.bucket_count
    return encode_partial([registry.encoded(number) for number in numbers.tolist()], columns)


def unpack(data: bytes, registry: SeriesRegistry) -> Partial:
    """What `pack` was given, with the series numbered by this registry.

    Raises:
        StateError: not such bytes, or of a later version.
    """
    series, columns = decode_partial(data)
    try:
        numbers = np.array(registry.numbers_encoded(series), dtype=np.int32)
    except PointError as error:
        raise StateError(
            f"a partial aggregate's series cannot be read ({error}); restore from an earlier savepoint"
        ) from error
    rows = len(columns["window"])
    return Partial(
        series=numbers[columns["series_index"]] if rows else np.zeros(0, dtype=np.int32),
        bucket_row=np.repeat(np.arange(rows, dtype=np.int32), columns["buckets"]),
        bucket_index=columns["bucket_index"],
        bucket_count=columns["bucket_count"],
        **{name: columns[name] for name in _ROWS},
    )


def by_gpu(partial: Partial, registry: SeriesRegistry) -> Iterator[tuple[str, Partial]]:
    """The rows of each GPU, by its UUID; of observations without one those of each host, by `host:` and its name."""
    if not len(partial):
        return
    uuids = [_place(series) for series in registry.series]
    distinct = sorted({uuids[number] for number in np.unique(partial.series).tolist()})
    if len(distinct) == 1:
        yield distinct[0], partial
        return
    place = {uuid: at for at, uuid in enumerate(distinct)}
    gpu = np.array([place.get(uuid, -1) for uuid in uuids], dtype=np.int32)[partial.series]
    for at, uuid in enumerate(distinct):
        yield uuid, select(partial, gpu == at)


def _place(series: Series) -> str:
    """What totals are kept by: all hosts' observations under one key would be one subtask's."""
    if series.gpu_uuid or series.kind not in OBSERVATIONS:
        return series.gpu_uuid
    return f"host:{series.host}"


def partial_of(points: list[Point], registry: SeriesRegistry) -> Partial:
    """Cumulative points as one partial, in window 0."""
    if not points:
        return empty_partial()
    lengths = [len(point.bucket_index) for point in points]
    exemplars = [point.exemplar for point in points]
    return Partial(
        window=np.zeros(len(points), dtype=np.int64),
        series=np.array([registry.number(point.series) for point in points], dtype=np.int32),
        **{
            name: np.array([getattr(point, name) for point in points], dtype=np.int64)
            for name in ("count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes")
        },
        exemplar_trace=np.array([each.trace_id if each else bytes(16) for each in exemplars], dtype="V16"),
        exemplar_span=np.array([each.span_id if each else 0 for each in exemplars], dtype=np.uint64),
        exemplar_start_ns=np.array([each.start_ns if each else 0 for each in exemplars], dtype=np.int64),
        bucket_row=np.repeat(np.arange(len(points), dtype=np.int32), lengths),
        bucket_index=np.concatenate([point.bucket_index for point in points]).astype(np.int32),
        bucket_count=np.concatenate([point.bucket_count for point in points]).astype(np.int64),
    )

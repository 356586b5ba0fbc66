"""Points in files: JSON lines, as `spanlite ingest --points` writes them, or columns, which are read much faster.

A file of columns begins with a line of JSON that says so, its format and the width of its windows; then come packed
partial aggregates, each behind its length.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from spanlite.contract.columns import Kind, Limiter
from spanlite.contract.delimited import read_delimited, write_delimited
from spanlite.contract.errors import BatchError, StateError, UsageError
from spanlite.contract.histogram import SCHEMA
from spanlite.contract.points import Exemplar, Launch, Point, Series, point_json
from spanlite.pipeline.partial import MOST_SUM, stack
from spanlite.pipeline.pieces import pack, unpack
from spanlite.pipeline.pointset import PointSet, point_set
from spanlite.pipeline.series import SeriesRegistry

FORMAT = 1
_MAGIC = b'{"spanlite_points": '
_PART_ROWS = 1 << 15
_PART_BYTES = 1 << 30
_LONGEST_HEAD = 4096
_LEAST, _MOST = -(2**63), 2**63 - 1
_TEXTS = ("workload", "namespace", "pod", "container", "host")


def write_columns(stream: BinaryIO, found: PointSet) -> None:
    """Writes points of windows as columns; equal points in equal order give equal bytes."""
    head = {"spanlite_points": FORMAT, "width_ns": found.width_ns}
    stream.write(json.dumps(head).encode() + b"\n")
    for part in found.parts(_PART_ROWS):
        write_delimited(stream, pack(part.rows, part.registry))


def write_lines(stream: TextIO, found: PointSet) -> None:
    """Writes points of windows as JSON lines."""
    for part in found.parts(_PART_ROWS):
        for point in part.points():
            stream.write(json.dumps(point_json(point)) + "\n")


def read_points(path: Path) -> PointSet:
    """Points of a file of either form.

    Raises:
        UsageError: it is not there, no such file, damaged, empty, or of another version; which of these, and where.
    """
    try:
        with path.open("rb") as stream:
            head = stream.readline(_LONGEST_HEAD)
            if head.startswith(_MAGIC):
                return _read_columns(path, head, stream)
            stream.seek(0)
            found = _read_lines(path, stream)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file of points") from error
    try:
        return point_set(found, exemplars=all(point.exemplar for point in found))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _read_columns(path: Path, head: bytes, stream: BinaryIO) -> PointSet:
    try:
        facts = json.loads(head)
    except ValueError as error:
        raise UsageError(f"{path}: its first line is cut off or damaged ({error}); make it again") from error
    version, width_ns = facts["spanlite_points"], facts.get("width_ns")
    if version != FORMAT:
        raise UsageError(
            f"{path}: points of format {version}, this version of spanlite reads format {FORMAT}; read it with the "
            "version that wrote it, or make it again with `spanlite backtest run`"
        )
    if not isinstance(width_ns, int) or width_ns <= 0:
        raise UsageError(f"{path}: its first line names no width of windows; make it again")
    registry = SeriesRegistry()
    try:
        rows = stack([unpack(value, registry) for value in read_delimited(stream, most_bytes=_PART_BYTES)])
    except StateError as error:
        why = str(error).partition(";")[0]
        raise UsageError(f"{path}: {why}; make it again with `spanlite backtest run`") from error
    except BatchError as error:
        raise UsageError(f"{path}: cut off or damaged ({error}); make it again") from error
    return PointSet(width_ns, registry, rows)


def _read_lines(path: Path, lines: Iterable[bytes]) -> list[Point]:
    found: list[Point] = []
    try:
        found.extend(map(point_of, map(json.loads, lines)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}: line {len(found) + 1} is no point ({type(error).__name__}: {error}); a file of points is what "
            "`spanlite backtest run -o` or `spanlite ingest --points` writes"
        ) from error
    if not found:
        raise UsageError(f"{path}: no point in it")
    return found


def point_of(value: Mapping[str, Any]) -> Point:
    """The point that `point_json` made this of.

    Time × warps is exact where the series names the active warps of its launch. Of `other`, which does not, it is
    computed from the occupancy, exact up to 2^52.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    labels = value["labels"]
    if value["schema"] != SCHEMA:
        raise ValueError(f"histogram schema {value['schema']}; this version knows {SCHEMA}")
    series = _series(labels)
    index = np.array([bucket for bucket, _ in value["buckets"]], dtype=np.int32)
    executions = np.array([number for _, number in value["buckets"]], dtype=np.int64)
    if int(executions.sum()) != value["count"]:
        raise ValueError(f"its buckets hold {int(executions.sum())} executions of {value['count']}")
    return Point(
        series,
        value["window"]["start_ns"],
        value["window"]["end_ns"],
        value["count"],
        value["spans"],
        value["sum_ns"],
        value["min_ns"],
        value["max_ns"],
        _warps(series.launch, value["sum_ns"], value["occupancy"]),
        value["bytes"],
        index,
        executions,
        _exemplar(value["exemplar"]) if "exemplar" in value else None,
    )


def _exemplar(value: Mapping[str, Any]) -> Exemplar:
    trace = bytes.fromhex(value["trace_id"]) if value["trace_id"] is not None else bytes(16)
    span, times = bytes.fromhex(value["span_id"]), (value["duration_ns"], value["start_ns"])
    if len(trace) != 16 or len(span) != 8 or not all(_LEAST <= time <= _MOST for time in times):
        raise ValueError("an exemplar's trace has 32 hex digits, its span 16, and its times are int64")
    return Exemplar(trace, int.from_bytes(span, "big"), *times)


def _series(labels: Mapping[str, Any]) -> Series:
    numbers: dict[str, Any] = {name: labels[name] for name in Launch._fields}
    numbers |= {name: tuple(labels[name]) for name in ("grid", "block", "cluster")}
    numbers["limiter"] = int(Limiter[labels["limiter"].upper()])
    return Series(
        labels["gpu_uuid"],
        int(Kind[labels["kind"].upper()]),
        labels["kernel"],
        labels["name"],
        Launch(**numbers),
        labels["stage"],
        *(labels[name] for name in _TEXTS),
    )


def _warps(launch: Launch, sum_ns: int, occupancy: float | None) -> int:
    if launch.active_warps:
        return min(sum_ns * launch.active_warps, MOST_SUM)
    return round((occupancy or 0.0) * sum_ns * launch.max_warps)

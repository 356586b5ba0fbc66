"""Kernels by GPU time, exact over an archive: the table that `nsys stats` prints as cuda_gpu_kern_sum."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from spanlite.contract.columns import Int64
from spanlite.contract.names import demangle
from spanlite.pipeline.archive.decode import joint_codes, numbers, text_codes
from spanlite.pipeline.archive.read import scan
from spanlite.pipeline.archive.schema import BY_NAME, TEXT_COLUMNS, Column

HEADER = (
    "Time (%)",
    "Total Time (ns)",
    "Instances",
    "Avg (ns)",
    "Med (ns)",
    "Min (ns)",
    "Max (ns)",
    "StdDev (ns)",
    "Name",
)
CONFIG_KEY = (
    *(f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz"),
    "registers_per_thread",
    "static_shared_memory",
    "dynamic_shared_memory",
)
"""Columns that tell launch configurations apart."""


@dataclass(frozen=True, slots=True)
class Line:
    """One group of executions; times in ns.

    Attributes:
        share_percent: of the GPU time of all groups.
        deviation_ns: of the sample (n - 1), 0 for one execution.
        key: values of the columns that the group was made by, as text.
    """

    name: str
    key: tuple[str, ...]
    share_percent: float
    total_ns: int
    instances: int
    mean_ns: float
    median_ns: float
    min_ns: int
    max_ns: int
    deviation_ns: float


def summarize(
    root: Path | str, *, by: Sequence[str] = (), kind: str = "kernel", pretty: bool = True
) -> tuple[Line, ...]:
    """Executions by full name, and by what else is asked for; most GPU time first.

    Counts spans as they are; a sampled archive is not scaled up.

    Args:
        root: the archive's folder.
        by: further columns of the archive to group by, such as "stage" or those of CONFIG_KEY.
        kind: "kernel", "memcpy" or "memset".
        pretty: demangle names.

    Raises:
        ArchiveError: no archive there, or a damaged file.
    """
    keys = ("name", *by)
    columns = [BY_NAME[name] for name in keys]
    known: dict[tuple[Any, ...], int] = {}
    codes: list[Int64] = []
    durations: list[Int64] = []
    for batch in scan(root, [*keys, "duration_ns"], where=pc.field("kind") == kind):
        if len(batch):
            codes.append(_codes(batch, columns, known))
            durations.append(numbers(batch.column("duration_ns")))
    if not codes:
        return ()
    render: Callable[[str], str] = demangle if pretty else str
    return _lines(list(known), np.concatenate(codes), np.concatenate(durations), render)


def _codes(batch: Any, columns: Sequence[Column], known: dict[tuple[Any, ...], int]) -> Int64:
    parts = []
    for column in columns:
        values = batch.column(column.name)
        parts.append(text_codes(values)[0] if column.name in TEXT_COLUMNS else numbers(values))
    local, first = joint_codes(parts, len(batch))
    rows = zip(*(batch.column(column.name).take(first).to_pylist() for column in columns), strict=True)
    mapped = np.array([known.setdefault(row, len(known)) for row in rows], dtype=np.int64)
    return mapped[local]


def _lines(
    keys: list[tuple[Any, ...]], codes: Int64, durations: Int64, render: Callable[[str], str]
) -> tuple[Line, ...]:
    order = np.lexsort((durations, codes))
    ordered = durations[order]
    counts = np.bincount(codes, minlength=len(keys))
    ends = np.cumsum(counts)
    whole = int(durations.sum()) or 1
    lines = [
        _line(key, ordered[end - count : end], whole, render)
        for key, end, count in zip(keys, ends, counts, strict=True)
    ]
    return tuple(sorted(lines, key=lambda line: (-line.total_ns, line.name, line.key)))


def _line(key: tuple[Any, ...], ordered: Int64, whole: int, render: Callable[[str], str]) -> Line:
    total, count = int(ordered.sum()), len(ordered)
    return Line(
        name=render(key[0]),
        key=tuple("" if value is None else str(value) for value in key[1:]),
        share_percent=100 * total / whole,
        total_ns=total,
        instances=count,
        mean_ns=total / count,
        median_ns=(int(ordered[(count - 1) // 2]) + int(ordered[count // 2])) / 2,
        min_ns=int(ordered[0]),
        max_ns=int(ordered[-1]),
        deviation_ns=float(ordered.std(ddof=1)) if count > 1 else 0.0,
    )


def to_csv(lines: Sequence[Line], by: Sequence[str] = ()) -> str:
    """CSV with HEADER, and the columns of `by` before the name."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*HEADER[:-1], *by, HEADER[-1]])
    for line in lines:
        times = (line.min_ns, line.max_ns, f"{line.deviation_ns:.1f}")
        middle = (line.total_ns, line.instances, f"{line.mean_ns:.1f}", f"{line.median_ns:.1f}")
        writer.writerow([f"{line.share_percent:.1f}", *middle, *times, *line.key, line.name])
    return out.getvalue()

"""Checks of an archive: what any reader may rely on, held against the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spanlite.contract.columns import Int64, UInt64
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.decode import numbers
from spanlite.pipeline.archive.groups import KEY_COLUMNS, Groups
from spanlite.pipeline.archive.layout import (
    bucket_of,
    hour_of,
    parse_partition,
    partitions,
    split_files,
    temporary_files,
    trace_hash,
)
from spanlite.pipeline.archive.schema import BUCKETS_KEY, SCHEMA, open_file

_COLUMNS = [*KEY_COLUMNS, "duration_ns", "span_id", "parent_span_id"]


@dataclass(slots=True)
class Report:
    """What a check found.

    Attributes:
        files, spans, bytes: of the files whose rows count.
        with_parent: spans that name a parent; `parents_found` of them lie in the archive. A range that never closed
            is a parent without a row, so a difference is no fault.
        problems: one line each: where, what is wrong, what to do.
    """

    files: int = 0
    spans: int = 0
    bytes: int = 0
    with_parent: int = 0
    parents_found: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def parent_share(self) -> float:
        """Share of the named parents that were found; 1 where none is named."""
        return self.parents_found / self.with_parent if self.with_parent else 1.0


def verify(root: Path | str) -> Report:
    """Reads every file of an archive.

    Raises:
        ArchiveError: no such folder. Whatever is wrong within it is a problem of the report.
    """
    path = Path(root)
    report = Report()
    ids = _Ids()
    for folder in partitions(path):
        _verify_partition(folder, report, ids)
    for leftover in temporary_files(path):
        report.problems.append(f"{leftover}: left by a writer that was killed; remove it if no writer is running")
    if not report.files and not report.problems:
        report.problems.append(f"{path}: holds no archive files (date=…/hour=…/bucket=…/*.parquet)")
    ids.check(report)
    return report


def _verify_partition(folder: Path, report: Report, ids: _Ids) -> None:
    try:
        live, replaced = split_files(folder)
    except ArchiveError as error:
        report.problems.append(str(error))
        return
    for path in replaced:
        report.problems.append(f"{path}: its spans lie in a compacted file as well; run `spanlite archive compact`")
    for path in live:
        report.files += 1
        report.bytes += path.stat().st_size
        try:
            report.problems += _verify_file(path, report, ids)
        except ArchiveError as error:
            report.problems.append(str(error))
        except (OSError, pa.ArrowException) as error:
            report.problems.append(f"{path}: damaged ({error}); remove it or restore it")


def _verify_file(path: Path, report: Report, ids: _Ids) -> list[str]:
    groups = Groups()
    parts: list[tuple[Int64, Int64]] = []
    problems: set[str] = set()
    with open_file(path) as file:
        facts = file.metadata.metadata or {}
        for at in range(file.num_row_groups):
            file.read_row_group(at, columns=[n for n in SCHEMA.names if n not in _COLUMNS], use_threads=False)
            table = file.read_row_group(at, columns=_COLUMNS, use_threads=False)
            parts.append((groups.add(table), numbers(table["start_ns"])))
            ids.add(table)
            report.spans += len(table)
            if len(table) and numbers(table["duration_ns"]).min() < 0:
                problems.add("has spans of negative duration")
            problems |= _misplaced(path, table, int(facts.get(BUCKETS_KEY, b"1")))
    if parts and not _sorted(groups.ranks(), parts):
        problems.add("rows are not sorted by (trace's first start, trace, start)")
    return [f"{path}: {problem}; write it again from its batches" for problem in sorted(problems)]


def _misplaced(path: Path, table: Any, buckets: int) -> set[str]:
    hour, bucket = parse_partition(path.parent)
    problems = set()
    traces = (
        pa.table({"id": table["trace_id"], "start": table["trace_start_ns"]}).group_by(["id", "start"]).aggregate([])
    )
    told = traces.filter(pa.array(numbers(traces["start"]) != 0)).drop_null()
    # A trace may lie in an earlier hour than one of its entries says, never in a later one.
    if len(told) and int(hour_of(numbers(told["start"])).min()) < hour:
        problems.add("holds a trace that began in an earlier hour")
    ids = np.array([i for i in traces["id"].to_pylist() if i is not None], dtype="V16")
    if len(ids) and bool((bucket_of(trace_hash(ids), buckets) != bucket).any()):
        problems.add("holds a trace of another bucket")
    return problems


def _sorted(ranks: Int64, parts: list[tuple[Int64, Int64]]) -> bool:
    rank = ranks[np.concatenate([codes for codes, _ in parts])]
    start = np.concatenate([starts for _, starts in parts])
    same = rank[1:] == rank[:-1]
    return bool(((rank[1:] > rank[:-1]) | (same & (start[1:] >= start[:-1]))).all())


class _Ids:
    """Span and parent ids of the whole archive, by session."""

    def __init__(self) -> None:
        self._spans: dict[int, list[UInt64]] = {}
        self._parents: dict[int, list[UInt64]] = {}

    def add(self, table: Any) -> None:
        session = numbers(table["session"])
        span = numbers(table["span_id"])
        parent = numbers(table["parent_span_id"].fill_null(0))
        for value in np.unique(session):
            mine = session == value
            self._spans.setdefault(int(value), []).append(span[mine])
            self._parents.setdefault(int(value), []).append(parent[mine & (parent != 0)])

    def check(self, report: Report) -> None:
        for session, parts in self._spans.items():
            ids = np.sort(np.concatenate(parts))
            again = int((ids[1:] == ids[:-1]).sum())
            if again:
                report.problems.append(
                    f"session {session:016x}: {again} span ids stand twice; run `spanlite archive compact`"
                )
            parents = np.concatenate(self._parents[session])
            report.with_parent += len(parents)
            report.parents_found += int(np.isin(parents, ids).sum())

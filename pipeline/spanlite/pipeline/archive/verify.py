"""Checks of an archive: what any reader may rely on, held against the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from spanlite.contract.columns import Int64, UInt64
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.decode import numbers
from spanlite.pipeline.archive.groups import KEY_COLUMNS, Groups
from spanlite.pipeline.archive.layout import bucket_of, hour_of, parse_partition, trace_hash
from spanlite.pipeline.archive.port import File, Store, label
from spanlite.pipeline.archive.provenance import Provenance, Ranges, from_json, of_rows, union
from spanlite.pipeline.archive.schema import BATCHES_KEY, BUCKETS_KEY, SCHEMA, open_file
from spanlite.pipeline.archive.snapshot import is_temporary, partitions, split_files
from spanlite.pipeline.archive.store import Where, open_store

_COLUMNS = [*KEY_COLUMNS, "duration_ns", "span_id", "parent_span_id", "producer", "batch_sequence"]


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


def verify(root: Where) -> Report:
    """Reads every file of an archive.

    Raises:
        ArchiveError: no such folder. Whatever is wrong within it is a problem of the report.
    """
    store = open_store(root)
    report = Report()
    ids = _Ids()
    folders = partitions(store)
    for folder, listed in folders.items():
        _verify_partition(store, folder, listed, report, ids)
    for leftover in (file for listed in folders.values() for file in listed if is_temporary(file)):
        report.problems.append(
            f"{label(store, leftover.name)}: left by a writer that was killed; remove it if no writer is running"
        )
    if not report.files and not report.problems:
        report.problems.append(f"{store.where}: holds no archive files (date=…/hour=…/bucket=…/*.parquet)")
    ids.check(report)
    return report


def _verify_partition(store: Store, folder: str, listed: list[File], report: Report, ids: _Ids) -> None:
    try:
        live, replaced = split_files(store, listed)
    except ArchiveError as error:
        report.problems.append(str(error))
        return
    for file in replaced:
        report.problems.append(
            f"{label(store, file.name)}: its spans lie in a compacted file as well; run `spanlite archive compact`"
        )
    found: dict[str, Provenance] = {}
    for file in live:
        report.files += 1
        report.bytes += file.size
        try:
            problems, found[file.base] = _verify_file(store, file, report, ids)
            report.problems += problems
        except ArchiveError as error:
            report.problems.append(str(error))
        except (OSError, pa.ArrowException) as error:
            report.problems.append(f"{label(store, file.name)}: damaged ({error}); remove it or restore it")
    report.problems += [f"{label(store, folder)}: {problem}" for problem in _overlaps(found)]


def _overlaps(found: Mapping[str, Provenance]) -> list[str]:
    """Batches that have rows in two files of a partition."""
    held: dict[bytes, list[tuple[int, int, str]]] = {}
    for name, batches in found.items():
        for producer, ranges in batches.items():
            held.setdefault(producer, []).extend((first, last, name) for first, last in ranges)
    both: dict[tuple[bytes, str, str], Ranges] = {}
    for producer, claims in held.items():
        claims.sort()
        latest, holder = claims[0][1:]
        for first, last, name in claims[1:]:
            if first <= latest:
                both.setdefault((producer, min(holder, name), max(holder, name)), Ranges()).add(
                    first, min(last, latest)
                )
            if last > latest:
                latest, holder = last, name
    return [
        f"batches {ranges} of producer {producer.hex()} lie in {one} and in {other}; run `spanlite archive compact`"
        for (producer, one, other), ranges in both.items()
    ]


def _verify_file(store: Store, file: File, report: Report, ids: _Ids) -> tuple[list[str], Provenance]:
    """What is wrong with a file, and the batches of its rows."""
    groups = Groups()
    parts: list[tuple[Int64, Int64]] = []
    batches: list[Provenance] = []
    problems: set[str] = set()
    with open_file(store, file.name) as opened:
        facts = opened.metadata.metadata or {}
        for at in range(opened.num_row_groups):
            opened.read_row_group(at, columns=[n for n in SCHEMA.names if n not in _COLUMNS], use_threads=False)
            table = opened.read_row_group(at, columns=_COLUMNS, use_threads=False)
            parts.append((groups.add(table), numbers(table["start_ns"])))
            batches.append(of_rows(table))
            ids.add(table)
            report.spans += len(table)
            if len(table) and numbers(table["duration_ns"]).min() < 0:
                problems.add("has spans of negative duration")
            problems |= _misplaced(file.folder, table, int(facts.get(BUCKETS_KEY, b"1")))
    if parts and not _sorted(groups.ranks(), parts):
        problems.add("rows are not sorted by (trace's first start, trace, start)")
    held = union(batches)
    if BATCHES_KEY in facts and not _told(facts[BATCHES_KEY], held):
        problems.add("its footer names other batches than its rows")
    where = label(store, file.name)
    return [f"{where}: {problem}; write it again from its batches" for problem in sorted(problems)], held


def _told(text: bytes, held: Provenance) -> bool:
    try:
        return from_json(text) == held
    except ValueError:
        return False


def _misplaced(folder: str, table: Any, buckets: int) -> set[str]:
    hour, bucket = parse_partition(folder)
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

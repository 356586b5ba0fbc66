"""Launches, their traces and the closed ranges to span columns, in order of their starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spanlite.contract.columns import (
    PLACE,
    ROW_COLUMNS,
    Int32,
    Int64,
    Kind,
    SpanColumns,
    Table,
    UInt64,
    make_columns,
)


@dataclass(frozen=True, slots=True)
class RangeRows:
    """Closed ranges as rows: columns of shape (r,).

    Attributes:
        number, parent: numbers within the session; parent -1 = none.
        trace: index into the traces, -1 = none.
        name: index into the strings of the range's text.
        thread: who marked it.
    """

    number: Int64
    parent: Int64
    start_ns: Int64
    duration_ns: Int64
    trace: Int32
    name: Int32
    thread: UInt64

    def __len__(self) -> int:
        return len(self.number)


def with_ranges(columns: SpanColumns, ranges: RangeRows, stage: Int32) -> SpanColumns:
    """The columns with a row more for each range; a range's configuration and place are appended to the tables.

    Args:
        columns: GPU work, with the tables and the strings that `ranges` points into.
        ranges: closed ranges.
        stage: index into strings of the stage each range lies in (its parent's text), shape (r,).
    """
    if len(ranges) == 0:
        return columns
    names, name_index = np.unique(ranges.name, return_inverse=True)
    configs = np.zeros(len(names), dtype=columns.configs.dtype)
    configs["kernel"] = configs["name"] = names
    threads, thread_index = np.unique(ranges.thread, return_inverse=True)
    places = np.zeros(len(threads), dtype=PLACE)
    places["thread_id"] = threads
    rows = make_columns(
        ranges.start_ns,
        ranges.duration_ns,
        tables=(columns.strings, columns.configs, columns.places, columns.nodes, columns.traces),
        kind=np.full(len(ranges), Kind.RANGE),
        config=name_index + len(columns.configs),
        place=thread_index + len(columns.places),
        stage=stage,
        trace=ranges.trace,
        parent=ranges.parent,
        range_number=ranges.number,
    )
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(columns, name), getattr(rows, name)]) for name in ROW_COLUMNS
    }
    return replace(
        columns,
        configs=np.concatenate([columns.configs, configs]),
        places=np.concatenate([columns.places, places]),
        **joined,
    )


def in_start_order(columns: SpanColumns) -> SpanColumns:
    """The rows by start; equal starts keep their order."""
    start = columns.start_ns
    if len(start) < 2 or bool((start[1:] >= start[:-1]).all()):
        return columns
    return columns.take(np.argsort(start, kind="stable"))


def compact(columns: SpanColumns) -> SpanColumns:
    """The same rows with only those table entries that they use: what makes a batch small and self-contained."""
    configs, config = _used(columns.configs, columns.config)
    places, place = _used(columns.places, columns.place)
    nodes, node = _used(columns.nodes, columns.node, keep=1)
    traces, trace = _used(columns.traces, columns.trace)
    used = np.zeros(len(columns.strings), dtype=bool)
    used[0] = True
    for index in (configs["kernel"], configs["name"], columns.stage):
        used[index] = True
    renumber = np.cumsum(used, dtype=np.int32) - np.int32(1)
    configs = configs.copy()
    configs["kernel"], configs["name"] = renumber[configs["kernel"]], renumber[configs["name"]]
    return replace(
        columns,
        config=config,
        place=place,
        node=node,
        trace=trace,
        stage=renumber[columns.stage],
        strings=tuple(columns.strings[at] for at in np.flatnonzero(used).tolist()),
        configs=configs,
        places=places,
        nodes=nodes,
        traces=traces,
    )


def _used(table: Table, index: Int32, *, keep: int = 0) -> tuple[Table, Int32]:
    """The used entries (the first `keep` always), and the index into them; -1 stays -1."""
    used = np.zeros(len(table) + 1, dtype=bool)
    used[index] = True  # -1 marks the place after the end
    used[-1] = False
    used[:keep] = True
    if used[:-1].all():
        return table, index
    renumber = np.cumsum(used, dtype=np.int32) - np.int32(1)
    renumber[-1] = -1
    return table[used[:-1]], renumber[index]

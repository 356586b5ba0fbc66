"""Rows of several batches, gathered from wherever they lay, in the order in which they were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import ROW_COLUMNS, Int32, Int64, Table, UInt64
from spanlite.replay.blocks import Part
from spanlite.replay.runs import is_single

_MOST_KEYS = 2.0**62


class Runs(NamedTuple):
    """Consecutive rows, batch by batch, shape (n,).

    Attributes:
        batch: number of the batch, not falling.
        begin: first of its rows; the next run's, or the end, is one beyond the last.
        row: what the first row's number is.
    """

    batch: Int64
    begin: Int64
    row: UInt64


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of batches, one batch behind the other, each row once, in the order of their numbers.

    Attributes:
        columns: of SpanColumns by name, in its order and with its dtypes; a column of one value may have a stride of 0.
        traces: what `columns["trace"]` points at; an entry may be there twice.
        bound: first row of each batch, and one beyond the last, shape (b + 1,).
        row: number of each row; None where those of each batch have no gaps.
        runs: rows without gaps.
    """

    columns: dict[str, NDArray[Any]]
    traces: Table
    bound: Int64
    row: UInt64 | None
    runs: Runs

    def whole(self) -> Runs:
        """Each batch as one run, whether there are gaps or not."""
        first = np.searchsorted(self.runs.begin, self.bound[:-1])
        return Runs(np.arange(len(self.bound) - 1), self.bound[:-1], self.runs.row[first])


def arranged(parts: Sequence[Part], owners: Sequence[Int64], batches: int) -> Window:
    """The rows of all parts, which give up their columns for it.

    Args:
        parts: at least one.
        owners: the batch, 0 … batches - 1, of each place of each part.
        batches: how many batches have rows.
    """
    owner = np.concatenate(owners)
    counts = np.concatenate([part.counts for part in parts])
    sizes = np.zeros(batches, dtype=np.int64)
    np.add.at(sizes, owner, counts)
    begins = [np.cumsum(part.counts) - part.counts for part in parts]
    least = np.full(batches, 2**64 - 1, dtype=np.uint64)
    most = np.zeros(batches, dtype=np.uint64)
    pairs = [*zip(parts, begins, strict=True)]
    np.minimum.at(least, owner, np.concatenate([np.minimum.reduceat(part.row, begin) for part, begin in pairs]))
    np.maximum.at(most, owner, np.concatenate([np.maximum.reduceat(part.row, begin) for part, begin in pairs]))
    bound = np.append(0, np.cumsum(sizes))
    if bool((most - least + np.uint64(1) == sizes.view(np.uint64)).all()):
        origin = bound[:-1].view(np.uint64) - least  # of each row, what its number is short of its place
        places = [_keys(part, origin[of]) for part, of in zip(parts, owners, strict=True)]
        if _all_there(places, int(bound[-1])):
            columns, traces = _put(parts, places)
            return Window(columns, traces, bound, None, Runs(np.arange(batches), bound[:-1], least))
    return _sorted(parts, owners, least, most)


def _keys(part: Part, offset: UInt64) -> Int64:
    return (part.row + np.repeat(offset, part.counts)).view(np.int64)


def _all_there(places: Sequence[Int64], rows: int) -> bool:
    """Whether as many places as there are rows are each of them once."""
    if len(places) == 1 and _is_range(places[0]):
        return True
    found = np.zeros(rows, dtype=bool)
    for place in places:
        found[place] = True
    return bool(found.all())


def _is_range(values: Int64) -> bool:
    return bool((values[1:] - values[:-1] == 1).all())


def _put(parts: Sequence[Part], places: Sequence[Int64]) -> tuple[dict[str, NDArray[Any]], Table]:
    """Columns of all parts, each row in its place, and the traces of all."""
    traces = _number_on(parts)
    slots = [slice(int(place[0]), int(place[-1]) + 1) if _is_range(place) else place for place in places]
    rows = sum(map(len, places))
    columns = {}
    for name, dtype in ROW_COLUMNS.items():
        values = [part.columns.pop(name) for part in parts]
        if _is_one(values):
            columns[name] = np.broadcast_to(values[0][:1].astype(dtype), rows)
        elif len(parts) == 1 and isinstance(slots[0], slice):
            columns[name] = np.ascontiguousarray(values[0], dtype=dtype)
        else:
            columns[name] = np.empty(rows, dtype=dtype)
            for slot, each in zip(slots, values, strict=True):
                columns[name][slot] = each
    return columns, traces


def _is_one(values: Sequence[NDArray[Any]]) -> bool:
    """Whether all of them are of one value, and say so."""
    return all(map(is_single, values)) and len({each[0].item() for each in values}) == 1


def _number_on(parts: Sequence[Part]) -> Table:
    """The traces of all parts, behind each other, and their columns pointing there."""
    before = 0
    for part in parts:
        trace: Int32 = part.columns["trace"]
        if before and len(part.traces):
            part.columns["trace"] = np.where(trace >= 0, trace + np.int32(before), np.int32(-1))
        before += len(part.traces)
    return np.concatenate([part.traces for part in parts]) if len(parts) > 1 else parts[0].traces


def _sorted(parts: Sequence[Part], owners: Sequence[Int64], least: UInt64, most: UInt64) -> Window:
    """Where rows are missing or there twice."""
    batches = len(least)
    spans = most - least + np.uint64(1)
    if float(spans.astype(np.float64).sum()) < _MOST_KEYS:
        edges = np.append(np.uint64(0), np.cumsum(spans))
        keys = np.concatenate([_keys(p, (edges[:-1] - least)[of]) for p, of in zip(parts, owners, strict=True)])
        order = None if bool((keys[1:] > keys[:-1]).all()) else np.argsort(keys, kind="stable")
        ordered = keys if order is None else keys[order]
        steps = ordered[1:] - ordered[:-1]
        batch = np.searchsorted(edges.view(np.int64), ordered, side="right") - 1
    else:
        row = np.concatenate([part.row for part in parts])
        batch = np.concatenate([np.repeat(of, part.counts) for part, of in zip(parts, owners, strict=True)])
        order = np.lexsort((row, batch))
        ordered, batch = row[order].view(np.int64), batch[order]
        steps = ordered[1:] - ordered[:-1]
        steps[batch[1:] != batch[:-1]] = 1
    once = np.append(True, steps != 0)
    row = np.concatenate([part.row for part in parts])
    if order is not None or not once.all():
        order = np.flatnonzero(once) if order is None else order[once]
        row, batch, steps = row[order], batch[once], steps[once[1:]]
    columns, traces = _put(parts, _ranges([int(part.counts.sum()) for part in parts]))
    if order is not None:
        columns = {
            name: np.broadcast_to(values[:1], len(order)) if is_single(values) else values[order]
            for name, values in columns.items()
        }
    begin = np.append(0, np.flatnonzero((steps != 1) | (batch[1:] != batch[:-1])) + 1)
    bound = np.searchsorted(batch, np.arange(batches + 1))
    return Window(columns, traces, bound, row, Runs(batch[begin], begin, row[begin]))


def _ranges(sizes: Sequence[int]) -> list[Int64]:
    ends = np.cumsum(sizes)
    return [np.arange(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True)]

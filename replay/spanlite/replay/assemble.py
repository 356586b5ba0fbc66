"""Rows of one batch, wherever they lay, to the batch that they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import Batch
from spanlite.contract.columns import RANGE, TRACE, Int32, Int64, SpanColumns, Table, make_columns
from spanlite.replay.blocks import Rows
from spanlite.replay.runs import compact
from spanlite.replay.tables import Entries, Tables

MOST_FILLED = 1 << 20
"""Rows of a batch beyond which gaps are not filled: no agent sends as many."""


def assemble(parts: Sequence[Rows], tables: Tables, *, renumber: bool, fill: bool = False) -> Iterator[Batch]:
    """The batch whose rows are in `parts`, each row once, in the order in which it was recorded.

    Where rows are missing between, it comes as several batches of consecutive rows, since the ids of spans follow from
    their row numbers; or, renumbered, as one whose rows are numbered on from the first. Nothing refers to a row by its
    number (parents are ranges, which have numbers of their own), and the numbers up to the batch's last one are its
    own, so they stay unique in the session. Or, filled, as one in which ranges of no time stand for the missing rows:
    it is no message to send, but what counts GPU work takes all of it at once, under its ids.
    """
    row = np.concatenate([part.row for part in parts]) if len(parts) > 1 else parts[0].row
    columns = {name: _joined([part.columns[name] for part in parts]) for name in parts[0].columns if name != "trace"}
    traces, columns["trace"] = _join_traces(parts)
    order, cuts = _order(row)
    if order is not None:
        row = row[order]
        columns = {name: values[order] for name, values in columns.items()}
    if fill and len(cuts) and int(row[-1] - row[0]) < MOST_FILLED:
        row, columns = _filled(row, columns)
        cuts = cuts[:0]
    bounds = [0, len(row)] if renumber else [0, *cuts.tolist(), len(row)]
    head = parts[0].head
    for begin, end in pairwise(bounds):
        piece = {name: values[begin:end] for name, values in columns.items()}
        yield Batch(
            producer=head.producer,
            sequence=head.sequence,
            session=head.session,
            first_row=int(row[begin]),
            emit_ns=head.emit_ns,
            columns=_cut(piece, traces, tables),
            resource=head.resource,
            gpus=head.gpus,
            clock=head.clock,
            sampling=head.sampling,
        )


def _joined(values: list[NDArray[Any]]) -> NDArray[Any]:
    return values[0] if len(values) == 1 else np.concatenate(values)


def _join_traces(parts: Sequence[Rows]) -> tuple[Table, Int32]:
    """The traces of all parts, and the index into them; what is there twice is joined when the batch is cut."""
    tables: list[Table] = []
    indexes: list[Int32] = []
    before = 0
    for part in parts:
        index = part.columns["trace"]
        used, small = compact(index + np.int32(1), len(part.traces) + 1)
        has_none = bool(len(used) and used[0] == 0)
        tables.append(part.traces[used[has_none:] - 1])
        indexes.append(np.where(index >= 0, small - has_none + before, -1).astype(np.int32))
        before += len(tables[-1])
    joined = np.concatenate(tables) if len(tables) > 1 else tables[0]
    index = np.concatenate(indexes) if len(indexes) > 1 else indexes[0]
    if len(tables) > 1 and len(joined):
        entries = Entries(TRACE)
        code = entries.numbers_of(joined)
        joined, index = entries.table, np.append(code, np.int32(-1))[index]
    return joined, index


def _order(row: NDArray[np.uint64]) -> tuple[Int64 | None, Int64]:
    """The order of recording, each row once, or None where it is that already; and where rows are left out."""
    steps = row[1:] - row[:-1]
    if bool((steps == 1).all()):
        return None, np.zeros(0, dtype=np.int64)
    first = row.min()
    if int(row.max() - first) + 1 == len(row):  # so if none is there twice, all are there: they sort themselves
        order = np.full(len(row), -1, dtype=np.int64)
        order[(row - first).view(np.int64)] = np.arange(len(row))
        if bool((order >= 0).all()):
            return order, np.zeros(0, dtype=np.int64)
    order = np.argsort(row, kind="stable")
    ordered = row[order]
    once = np.append(True, ordered[1:] != ordered[:-1])
    order, ordered = order[once], ordered[once]
    return order, np.flatnonzero(ordered[1:] - ordered[:-1] != 1) + 1


def _filled(row: NDArray[np.uint64], columns: dict[str, NDArray[Any]]) -> tuple[NDArray[np.uint64], dict[str, Any]]:
    """Ascending rows with those that are missing between: ranges that start with the first row and take no time."""
    size = int(row[-1] - row[0]) + 1
    place = (row - row[0]).view(np.int64)
    source = np.zeros(size, dtype=np.int64)
    source[place] = np.arange(len(row))
    missing = np.ones(size, dtype=bool)
    missing[place] = False
    filled = {name: values[source] for name, values in columns.items()}
    for name, value in (("kind", RANGE), ("duration_ns", 0), ("bytes", 0), ("weight", 1), ("parent", -1)):
        filled[name][missing] = value
    return row[0] + np.arange(size, dtype=np.uint64), filled


def _cut(columns: dict[str, NDArray[Any]], traces: Table, tables: Tables) -> SpanColumns:
    """Columns over tables of their own, which hold what is used.

    Texts and entries are in the order of their content, so that a batch comes out the same whatever was read before it.
    """
    config_used, config = compact(columns["config"], len(tables.configs.table))
    stage_used, stage = compact(columns["stage"], len(tables.texts.values))
    configs = tables.configs.table[config_used]
    texts = np.unique(np.concatenate([[0], configs["kernel"], configs["name"], stage_used]))
    strings = [tables.texts.values[at] for at in texts.tolist()]
    ranks = _ranks(sorted(range(len(strings)), key=strings.__getitem__))
    for name in ("kernel", "name"):
        configs[name] = ranks[np.searchsorted(texts, configs[name])]
    configs, config = _arranged(configs, config)
    place_used, place = compact(columns["place"], len(tables.places.table))
    places, place = _arranged(tables.places.table[place_used], place)
    nodes, node = _nodes(columns["node"], tables)
    entries, trace = _used_traces(columns["trace"], traces)
    changed = {"config": config, "place": place, "node": node, "trace": trace}
    plain = {name: values for name, values in columns.items() if name not in (*changed, "stage")}
    return make_columns(
        plain.pop("start_ns"),
        plain.pop("duration_ns"),
        tables=(tuple(sorted(strings)), configs, places, nodes, entries),
        stage=ranks[np.searchsorted(texts, stage_used)][stage],
        **changed,
        **plain,
    )


def _arranged(entries: Table, index: Int32) -> tuple[Table, Int32]:
    """The entries, each there once, in the order of their bytes, and the index into them."""
    order = np.argsort(entries.view(f"S{entries.dtype.itemsize}"), kind="stable")
    if bool((order[1:] > order[:-1]).all()):
        return entries, index
    return entries[order], _ranks(order)[index]


def _ranks(order: Sequence[int] | Int64) -> Int32:
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks


def _nodes(index: Int32, tables: Tables) -> tuple[Table, Int32]:
    """Nodes used, behind the entry of rows outside graphs, which stands first in the table of all as well."""
    if not len(index) or int(index.max()) == 0:
        return tables.nodes.table[:1], index
    used, small = compact(index, len(tables.nodes.table))
    if used[0] != 0:
        used, small = np.append(0, used), small + np.int32(1)
    return _arranged(tables.nodes.table[used], small)  # nothing comes before zeros


def _used_traces(index: Int32, traces: Table) -> tuple[Table, Int32]:
    """Traces used, and the index into them; -1 for none."""
    used, shifted = compact(index + np.int32(1), len(traces) + 1)
    has_none = bool(len(used) and used[0] == 0)
    entries, small = _arranged(traces[used[has_none:] - 1], np.arange(len(used) - has_none, dtype=np.int32))
    return entries, np.append(np.int32(-1), small)[shifted] if has_none else small[shifted]

"""Rows of one batch to the batch that they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import Batch
from spanlite.contract.columns import RANGE, Int32, Int64, SpanColumns, Table, make_columns
from spanlite.replay.runs import compact
from spanlite.replay.tables import Origin, Tables
from spanlite.replay.window import Window

MOST_FILLED = 1 << 20
"""Rows of a batch beyond which gaps are not filled: no agent sends as many."""
_Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Head:
    """What a batch says beside its rows."""

    producer: bytes
    sequence: int
    session: int
    emit_ns: int
    origin: Origin


def assemble(
    window: Window, heads: Sequence[Head], tables: Tables, *, renumber: bool, fill: bool = False
) -> Iterator[list[Batch]]:
    """The parts of each batch of a window, whose rows come in the order in which they were recorded.

    Where rows are missing between, it comes as several batches of consecutive rows, since the ids of spans follow from
    their row numbers; or, renumbered, as one whose rows are numbered on from the first. Nothing refers to a row by its
    number (parents are ranges, which have numbers of their own), and the numbers up to the batch's last one are its
    own, so they stay unique in the session. Or, filled, as one in which ranges of no time stand for the missing rows:
    it is no message to send, but what counts GPU work takes all of it at once, under its ids.
    """
    runs = window.whole() if renumber else window.runs
    ends = np.append(runs.begin[1:], window.bound[-1]).tolist()
    begins, rows = runs.begin.tolist(), runs.row.tolist()
    bounds = np.searchsorted(runs.batch, np.arange(len(heads) + 1)).tolist()
    for number, head in enumerate(heads):
        first, last = bounds[number], bounds[number + 1]
        if fill and last - first > 1 and (filled := _filled(window, begins[first], ends[last - 1])) is not None:
            yield [_batch(head, rows[first], filled, window.traces, tables)]
            continue
        yield [piece(window, head, tables, row=rows[at], begin=begins[at], end=ends[at]) for at in range(first, last)]


def piece(window: Window, head: Head, tables: Tables, *, row: int, begin: int, end: int) -> Batch:
    """Rows begin … end - 1 of a window as a batch, the first of which has number `row`."""
    columns = {name: values[begin:end] for name, values in window.columns.items()}
    return _batch(head, row, columns, window.traces, tables)


def _batch(head: Head, row: int, columns: _Columns, traces: Table, tables: Tables) -> Batch:
    origin = head.origin
    return Batch(
        producer=head.producer,
        sequence=head.sequence,
        session=head.session,
        first_row=row,
        emit_ns=head.emit_ns,
        columns=_cut(columns, traces, tables),
        resource=origin.resource,
        gpus=origin.gpus,
        clock=origin.clock,
        sampling=origin.sampling,
    )


def _filled(window: Window, begin: int, end: int) -> _Columns | None:
    """Rows with those that are missing between: ranges that start with the first row and take no time.

    None where none is missing, or too many are.
    """
    if window.row is None or int(window.row[end - 1] - window.row[begin]) >= MOST_FILLED:
        return None
    row = window.row[begin:end]
    size = int(row[-1] - row[0]) + 1
    place = (row - row[0]).view(np.int64)
    source = np.zeros(size, dtype=np.int64)
    source[place] = np.arange(len(row))
    missing = np.ones(size, dtype=bool)
    missing[place] = False
    filled = {name: values[begin:end][source] for name, values in window.columns.items()}
    for name, value in (("kind", RANGE), ("duration_ns", 0), ("bytes", 0), ("weight", 1), ("parent", -1)):
        filled[name][missing] = value
    return filled


def _cut(columns: _Columns, traces: Table, tables: Tables) -> SpanColumns:
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
    """The entries in the order of their bytes, equal ones once, and the index into them."""
    texts = entries.view(f"S{entries.dtype.itemsize}")
    order = np.argsort(texts, kind="stable")
    if bool((order[1:] > order[:-1]).all()):
        ordered, ranks = entries, None
    else:
        ordered, ranks = entries[order], _ranks(order)
    told = ordered.view(f"S{entries.dtype.itemsize}")
    once = np.append(True, told[1:] != told[:-1])[: len(ordered)]
    if once.all():
        return ordered, index if ranks is None else ranks[index]
    place = np.cumsum(once, dtype=np.int32) - np.int32(1)
    return ordered[once], (place if ranks is None else place[ranks])[index]


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

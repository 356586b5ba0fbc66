"""Row groups of an archive as columns: the spans that a replay takes, sorted by batch, over tables that all share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import ClockAnchor, Gpu
from spanlite.contract.columns import (
    CONFIG,
    NODE,
    PLACE,
    TRACE,
    Int32,
    Int64,
    Kind,
    Limiter,
    SamplingMode,
    Table,
    UInt64,
)
from spanlite.contract.ids import RANGE_BIT
from spanlite.replay.runs import change_points, id_codes, joint_codes, text_codes
from spanlite.replay.selection import Selection, among
from spanlite.replay.tables import Tables

BatchKey = tuple[bytes, int]
"""Producer and sequence."""
_LIMITERS = {"": 0, **{limiter.name.lower(): limiter.value for limiter in Limiter}}
_KINDS = {kind.name.lower(): kind.value for kind in Kind}
_SAMPLING = {mode.name.lower(): mode for mode in SamplingMode}
_CONFIG_NUMBERS = [name for name in CONFIG.names or () if name not in ("kernel", "name", "limiter")]
_ROW = ["start_ns", "duration_ns", "kind", "stage", "span_id", "parent_span_id", "correlation_id", "bytes", "weight"]
_BATCH = ["producer", "batch_sequence", "session", "emit_ns", "sampling", "batch_info", "session_row"]
COLUMNS = [
    *_ROW,
    *_BATCH,
    *("kernel", "name", "occupancy_limiter", *_CONFIG_NUMBERS),
    *(PLACE.names or ()),
    *(NODE.names or ()),
    *("trace_id", "trace_start_ns", "trace_remote_parent"),
]
"""What a batch is made from; the archive's other columns repeat what is in these."""
_GPU_FIELDS = tuple(field.name for field in fields(Gpu))


@dataclass(frozen=True, slots=True)
class Head:
    """What a batch says beside its rows."""

    producer: bytes
    sequence: int
    session: int
    emit_ns: int
    resource: Mapping[str, str]
    gpus: tuple[Gpu, ...]
    clock: ClockAnchor
    sampling: SamplingMode


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one batch in one row group, in any order; indexes as in Block."""

    head: Head
    row: UInt64
    columns: dict[str, NDArray[Any]]
    traces: Table

    def __len__(self) -> int:
        return len(self.row)

    def copied(self) -> Rows:
        """The same with memory of its own, which keeps the rest of the row group from staying."""
        columns = {name: values.copy() for name, values in self.columns.items()}
        return replace(self, row=self.row.copy(), columns=columns)


class Block:
    """The rows of one row group that are taken.

    Attributes:
        rows: how many.
    """

    def __init__(self, table: Any, tables: Tables, selection: Selection, traces: frozenset[bytes] | None) -> None:
        """Takes a table with COLUMNS and those of the selection."""
        taken = None
        if not selection.everything:
            mask = selection.mask(table)
            taken = np.flatnonzero(mask | among(table["trace_id"], traces) if traces else mask)
        everything = _columns(table, tables)
        self._traces, everything["trace"] = _traces(table)
        everything["session_row"] = table["session_row"].to_numpy()
        batch, self._heads = _batches(table, taken)
        self.rows = len(batch)
        order = _sorted(batch)
        if taken is not None:
            order = taken if order is None else taken[order]
        self._columns = everything if order is None else {name: values[order] for name, values in everything.items()}
        ends = np.cumsum(np.bincount(batch, minlength=len(self._heads))).tolist()
        self._places = {key: slice(begin, end) for key, begin, end in zip(self._heads, [0, *ends], ends, strict=False)}

    def rows_of(self, key: BatchKey) -> Rows:
        """The rows of one batch."""
        place = self._places[key]
        columns = {name: values[place] for name, values in self._columns.items()}
        return Rows(self._heads[key], columns.pop("session_row"), columns, self._traces)


def _batches(table: Any, taken: Int64 | None) -> tuple[Int32, dict[BatchKey, Head]]:
    """The batch of each row that is taken, as its place among the batches, sorted by producer and sequence."""
    producer, producers = id_codes(table["producer"])
    info, infos = text_codes(table["batch_info"])
    sampling, samplings = text_codes(table["sampling"])
    sequence, session, emit = (table[name].to_numpy() for name in ("batch_sequence", "session", "emit_ns"))
    if taken is not None:
        producer, info, sampling = producer[taken], info[taken], sampling[taken]
        sequence, session, emit = sequence[taken], session[taken], emit[taken]
    code, first = joint_codes((producer, sequence), len(sequence))
    said = [_info(text) for text in infos]
    heads = []
    for at in first.tolist():
        resource, gpus, clock = said[info[at]]
        mode = _SAMPLING[samplings[sampling[at]]]
        key = (producers[producer[at]].tobytes(), int(sequence[at]))
        heads.append(Head(*key, int(session[at]), int(emit[at]), resource, gpus, clock, mode))
    order = sorted(range(len(heads)), key=lambda at: (heads[at].producer, heads[at].sequence))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[code], {(heads[at].producer, heads[at].sequence): heads[at] for at in order}


def _sorted(batch: Int32) -> Int64 | None:
    """The rows, sorted by batch, those of a batch as they stand; None where they are so already."""
    if bool((batch[1:] >= batch[:-1]).all()):
        return None
    small = batch.astype(np.uint16) if int(batch.max()) < 1 << 16 else batch  # short ones are sorted by their digits
    return np.argsort(small, kind="stable")


def _info(text: str) -> tuple[Mapping[str, str], tuple[Gpu, ...], ClockAnchor]:
    facts = json.loads(text)
    gpus = tuple(Gpu(**dict(zip(_GPU_FIELDS, values, strict=True))) for values in facts["gpus"])
    return facts["resource"], gpus, ClockAnchor(*facts["clock"])


def _columns(table: Any, tables: Tables) -> dict[str, NDArray[Any]]:
    rows, texts = len(table), tables.texts
    span = table["span_id"].to_numpy()
    is_range = span >= np.uint64(RANGE_BIT)
    parent_ids = table["parent_span_id"]
    no_parent = parent_ids.null_count == rows
    kinds, names = text_codes(table["kind"])
    limiter, limiters = text_codes(table["occupancy_limiter"])
    kind_of = np.array([_KINDS[name] if name in _KINDS else int(name) for name in names], dtype=np.uint8)
    limiter_of = [_LIMITERS[name] if name in _LIMITERS else int(name) for name in limiters]
    config: dict[str, NDArray[Any]] = {
        "kernel": texts.numbers(*text_codes(table["kernel"])),
        "name": texts.numbers(*text_codes(table["name"])),
        **{name: table[name].to_numpy() for name in _CONFIG_NUMBERS},
        "limiter": np.array([*limiter_of, 0], dtype=np.uint32)[limiter],
    }
    place = {name: table[name].to_numpy() for name in PLACE.names or ()}
    node = {name: table[name].to_numpy() for name in NODE.names or ()}
    parent = np.full(rows, -1) if no_parent else _parents(parent_ids)
    return {
        **{name: table[name].to_numpy() for name in ("start_ns", "duration_ns", "bytes", "weight")},
        "correlation": table["correlation_id"].to_numpy(),
        "kind": kind_of[kinds],
        "stage": texts.numbers(*text_codes(table["stage"])),
        "range_number": np.where(is_range, (span ^ np.uint64(RANGE_BIT)).view(np.int64), np.int64(-1)),
        "parent": parent,
        "config": tables.configs.numbers(config, rows),
        "place": tables.places.numbers(place, rows),
        "node": tables.nodes.numbers(node, rows),
    }


def _parents(ids: Any) -> Int64:
    """Numbers of the parent ranges; -1 where the id is null."""
    plain = ids.fill_null(0).to_numpy()
    return np.where(plain != 0, (plain ^ np.uint64(RANGE_BIT)).view(np.int64), np.int64(-1))


def _traces(table: Any) -> tuple[Table, Int32]:
    """The row group's traces, and the index of each row's; -1 for none."""
    codes, ids = id_codes(table["trace_id"])
    rows = len(table)
    if not len(ids) or bool((codes < 0).all()):
        return np.zeros(0, dtype=TRACE), np.full(rows, -1, dtype=np.int32)
    start, parent = (table[name].to_numpy() for name in ("trace_start_ns", "trace_remote_parent"))
    begins = change_points(codes, start, parent)
    of_run, first = joint_codes((codes[begins], start[begins], parent[begins]), len(begins))
    entries = np.zeros(len(first), dtype=TRACE)
    at = begins[first]
    with_none = np.append(ids, np.zeros(1, dtype="V16"))
    entries["id"], entries["start_ns"], entries["remote_parent"] = with_none[codes[at]], start[at], parent[at]
    index = np.repeat(np.where(codes[begins] >= 0, of_run, np.int32(-1)), np.diff(np.append(begins, rows)))
    return entries, index.astype(np.int32)

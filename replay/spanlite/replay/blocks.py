"""Row groups of an archive as columns: the spans that a replay takes, sorted by batch, over tables that all share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Int32, Int64, Kind, Limiter, Table, UInt64
from spanlite.contract.errors import ArchiveError
from spanlite.contract.ids import RANGE_BIT
from spanlite.replay.runs import (
    change_points,
    compact,
    id_codes,
    is_run,
    is_single,
    joint_codes,
    numbers,
    one_array,
    spread,
    taken_rows,
    text_codes,
    through,
)
from spanlite.replay.selection import Selection, among
from spanlite.replay.tables import Origin, Tables

_LIMITERS = {"": 0, **{limiter.name.lower(): limiter.value for limiter in Limiter}}
_KINDS = {kind.name.lower(): kind.value for kind in Kind}
_CONFIG_NUMBERS = [name for name in CONFIG.names or () if name not in ("kernel", "name", "limiter")]
_ROW = ["start_ns", "duration_ns", "kind", "stage", "span_id", "parent_span_id", "correlation_id", "bytes", "weight"]
_NAMED = ["batch_sequence", "session", "emit_ns"]
_BATCH = ["producer", *_NAMED, "sampling", "batch_info", "session_row"]
COLUMNS = [
    *_ROW,
    *_BATCH,
    *("kernel", "name", "occupancy_limiter", *_CONFIG_NUMBERS),
    *(PLACE.names or ()),
    *(NODE.names or ()),
    *("trace_id", "trace_start_ns", "trace_remote_parent"),
]
"""What a batch is made from; the archive's other columns repeat what is in these."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of some batches in one row group, those of a batch together.

    Attributes:
        counts: how many rows each batch has here.
        row: number of each row in its session.
        columns: of SpanColumns by name; a column of one value may have a stride of 0.
        traces: what `columns["trace"]` points at.
    """

    counts: Int64
    row: UInt64
    columns: dict[str, NDArray[Any]]
    traces: Table


class Block:
    """The rows of one row group that are taken, those of a batch together, batches by producer and sequence.

    Attributes:
        rows: how many.
        producer: of each batch, its number in the plan.
        sequence, session, emit_ns, origin: of each batch; `origin` is an index into `origins`.
    """

    def __init__(
        self,
        table: Any,
        tables: Tables,
        selection: Selection,
        *,
        producers: Mapping[bytes, int],
        traces: frozenset[bytes] | None,
    ) -> None:
        """Takes a table with COLUMNS and those of the selection.

        Raises:
            ArchiveError: a producer that the plan does not know has rows in it.
        """
        taken = None
        if not selection.everything:
            mask = selection.mask(table)
            taken = np.flatnonzero(mask | among(table["trace_id"], traces) if traces else mask)
        everything = _columns(table, tables)
        self._traces, everything["trace"] = _traces(table)
        everything["session_row"] = numbers(table["session_row"])
        batch = self._batches(table, tables, taken, producers)
        self.rows = len(batch)
        order = _sorted(batch)
        if taken is not None:
            order = taken if order is None else taken[order]
        self._columns = {name: taken_rows(values, order) for name, values in everything.items()}
        self._counts = np.bincount(batch, minlength=len(self.producer))
        self._begins = np.cumsum(self._counts) - self._counts

    def part(self, place: Int64, *, own: bool) -> Part:
        """The rows of batches by their places in the block.

        Args:
            place: ascending or not, each once.
            own: in memory of its own, which keeps the rest of the row group from staying.
        """
        begins, counts = self._begins[place], self._counts[place]
        index: slice | Int64 = slice(int(begins[0]), int(begins[-1] + counts[-1]))
        if not np.array_equal(begins[1:], begins[:-1] + counts[:-1]):
            index = spread(begins, counts)
        columns = {name: taken_rows(values, index, own=own) for name, values in self._columns.items()}
        traces, columns["trace"] = _used(self._traces, columns["trace"])
        return Part(counts, columns.pop("session_row"), columns, traces)

    def _batches(self, table: Any, tables: Tables, taken: Int64 | None, known: Mapping[bytes, int]) -> Int32:
        """The batch of each row that is taken, as its place among the batches, whose facts are kept."""
        producer, producers = id_codes(table["producer"])
        info, infos = text_codes(table["batch_info"])
        sampling, samplings = text_codes(table["sampling"])
        columns = (producer, info, sampling, *(numbers(table[name]) for name in _NAMED))
        producer, info, sampling, sequence, session, emit = (taken_rows(values, taken) for values in columns)
        ranks = np.array([known.get(each.tobytes(), -1) for each in producers], dtype=np.int64)
        code, first = joint_codes((producer, sequence), len(sequence))
        order = np.lexsort((sequence[first], ranks[producer[first]]))
        place = first[order]
        self.producer, self.sequence = ranks[producer[place]], sequence[place]
        self.session, self.emit_ns = session[place], emit[place]
        said, one = joint_codes((info[place], sampling[place]), len(place))
        self.origin = said
        self.origins: list[Origin] = [tables.origin(infos[info[at]], samplings[sampling[at]]) for at in place[one]]
        if len(place) and self.producer[0] < 0:
            raise ArchiveError("rows of a producer that was not there when the replay began; start again")
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return through(rank, code)


def _used(traces: Table, index: Int32) -> tuple[Table, Int32]:
    """The traces that an index points at, and the index into those; -1 for none."""
    if is_single(index):
        one = traces[index[:1]] if index[0] >= 0 else traces[:0]
        return one, np.broadcast_to(np.minimum(index[:1], np.int32(0)), len(index))
    used, small = compact(index + np.int32(1), len(traces) + 1)
    has_none = bool(len(used) and used[0] == 0)
    return traces[used[has_none:] - 1], small - np.int32(has_none)


def _sorted(batch: Int32) -> Int64 | None:
    """The rows, sorted by batch, those of a batch as they stand; None where they are so already."""
    if is_single(batch) or bool((batch[1:] >= batch[:-1]).all()):
        return None
    small = batch.astype(np.uint16) if int(batch.max()) < 1 << 16 else batch  # short ones are sorted by their digits
    return np.argsort(small, kind="stable")


def _columns(table: Any, tables: Tables) -> dict[str, NDArray[Any]]:
    rows, texts = len(table), tables.texts
    kinds, names = text_codes(table["kind"])
    limiter, limiters = text_codes(table["occupancy_limiter"])
    kind_of = np.array([_KINDS[name] if name in _KINDS else int(name) for name in names], dtype=np.uint8)
    limiter_of = [_LIMITERS[name] if name in _LIMITERS else int(name) for name in limiters]
    config: dict[str, NDArray[Any]] = {
        "kernel": texts.numbers(*text_codes(table["kernel"])),
        "name": texts.numbers(*text_codes(table["name"])),
        **{name: numbers(table[name]) for name in _CONFIG_NUMBERS},
        "limiter": through(np.array([*limiter_of, 0], dtype=np.uint32), limiter),
    }
    place = {name: numbers(table[name]) for name in PLACE.names or ()}
    node = {name: numbers(table[name]) for name in NODE.names or ()}
    kind = through(kind_of, kinds)
    return {
        **{name: numbers(table[name]) for name in ("start_ns", "duration_ns")},
        "kind": kind,
        "config": tables.configs.numbers(config, rows),
        "place": tables.places.numbers(place, rows),
        "node": tables.nodes.numbers(node, rows),
        "stage": texts.numbers(*text_codes(table["stage"])),
        "parent": _parents(table["parent_span_id"]),
        "range_number": _range_numbers(numbers(table["span_id"])),
        "correlation": numbers(table["correlation_id"]),
        **{name: numbers(table[name]) for name in ("bytes", "weight")},
    }


def _range_numbers(span: UInt64) -> Int64:
    """Numbers of ranges by their ids; -1 for all else."""
    is_range = span >= np.uint64(RANGE_BIT)
    if not is_range.any():
        return np.broadcast_to(np.int64(-1), len(span))
    return np.where(is_range, (span ^ np.uint64(RANGE_BIT)).view(np.int64), np.int64(-1))


def _parents(column: Any) -> Int64:
    """Numbers of the parent ranges; -1 where the id is null."""
    array = one_array(column)
    if is_run(array):
        return np.broadcast_to(_parents(array.values), len(array))
    if array.null_count == len(array):
        return np.broadcast_to(np.int64(-1), len(array))
    plain = array.fill_null(0).to_numpy()
    return np.where(plain != 0, (plain ^ np.uint64(RANGE_BIT)).view(np.int64), np.int64(-1))


def _traces(table: Any) -> tuple[Table, Int32]:
    """The row group's traces, and the index of each row's; -1 for none."""
    codes, ids = id_codes(table["trace_id"])
    rows = len(table)
    if not len(ids) or bool((codes < 0).all()):
        return np.zeros(0, dtype=TRACE), np.broadcast_to(np.int32(-1), rows)
    start, parent = (numbers(table[name]) for name in ("trace_start_ns", "trace_remote_parent"))
    begins = change_points(codes, start, parent)
    of_run, first = joint_codes((codes[begins], start[begins], parent[begins]), len(begins))
    entries = np.zeros(len(first), dtype=TRACE)
    at = begins[first]
    with_none = np.append(ids, np.zeros(1, dtype="V16"))
    entries["id"], entries["start_ns"], entries["remote_parent"] = with_none[codes[at]], start[at], parent[at]
    index = np.repeat(np.where(codes[begins] >= 0, of_run, np.int32(-1)), np.diff(np.append(begins, rows)))
    return entries, index.astype(np.int32)

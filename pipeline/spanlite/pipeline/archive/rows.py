"""Many batches as one set of columns over common tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import recfunctions
from numpy.typing import NDArray

from spanlite.contract.batch import Batch, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Int32, Int64, Table, UInt64

GPU_PLACE = np.dtype([*PLACE.descr, ("gpus", "<i4")])
"""PLACE and the index of the GPU list that its `gpu` counts in."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of several batches, shape (n,) each, indexes into common tables.

    Attributes:
        batch: index into `batches`.
        row: number of the row within its session.
        plain: start_ns, duration_ns, kind, parent, range_number, correlation, bytes, weight.
        config, place, node, stage, trace: indexes; trace -1 = none.
        strings: texts, each once.
        gpus: GPU lists that `places["gpus"]` counts in.
    """

    batches: Sequence[Batch]
    batch: Int32
    row: UInt64
    plain: dict[str, NDArray[Any]]
    config: Int32
    place: Int32
    node: Int32
    stage: Int32
    trace: Int32
    strings: list[str]
    configs: Table
    places: Table
    nodes: Table
    traces: Table
    gpus: list[tuple[Gpu, ...]]

    def __len__(self) -> int:
        return len(self.batch)


_PLAIN = ("start_ns", "duration_ns", "kind", "parent", "range_number", "correlation", "bytes", "weight")


def gather(batches: Sequence[Batch]) -> Rows:
    """The rows of `batches` (at least one, none twice), in that order."""
    lengths = np.array([len(batch.columns) for batch in batches])
    columns = [batch.columns for batch in batches]
    strings, string_map = _unify_strings([c.strings for c in columns])
    gpu_lists = list(dict.fromkeys(batch.gpus for batch in batches))
    gpu_index = {gpus: index for index, gpus in enumerate(gpu_lists)}
    configs, config_map = _unify([_remap(c.configs, string_map[i]) for i, c in enumerate(columns)], CONFIG)
    places, place_map = _unify([_with_gpus(b.columns.places, gpu_index[b.gpus]) for b in batches], GPU_PLACE)
    nodes, node_map = _unify([c.nodes for c in columns], NODE)
    traces, trace_map = _unify([c.traces for c in columns], TRACE)
    no_trace = [np.append(entries, np.int32(-1)) for entries in trace_map]  # index -1 stays -1
    first_rows = np.array([batch.first_row for batch in batches], dtype=np.uint64)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    batch_index = np.repeat(np.arange(len(batches), dtype=np.int32), lengths)
    within = (np.arange(len(starts)) - starts).astype(np.uint64)
    return Rows(
        batches=batches,
        batch=batch_index,
        row=first_rows[batch_index] + within,
        plain={name: np.concatenate([getattr(c, name) for c in columns]) for name in _PLAIN},
        config=_through(config_map, [c.config for c in columns]),
        place=_through(place_map, [c.place for c in columns]),
        node=_through(node_map, [c.node for c in columns]),
        stage=_through(string_map, [c.stage for c in columns]),
        trace=_through(no_trace, [c.trace for c in columns]),
        strings=strings,
        configs=configs,
        places=places,
        nodes=nodes,
        traces=traces,
        gpus=gpu_lists,
    )


def _through(maps: list[Int32], indexes: list[Int32]) -> Int32:
    return np.concatenate([entries[index] for entries, index in zip(maps, indexes, strict=True)])


def _unify_strings(tables: list[tuple[str, ...]]) -> tuple[list[str], list[Int32]]:
    known: dict[str, int] = {"": 0}
    maps = [np.array([known.setdefault(text, len(known)) for text in table], dtype=np.int32) for table in tables]
    return list(known), maps


def _remap(configs: Table, strings: Int32) -> Table:
    out = configs.copy()
    if len(out):
        out["kernel"] = strings[configs["kernel"]]
        out["name"] = strings[configs["name"]]
    return out


def _with_gpus(places: Table, gpus: int) -> Table:
    out = np.zeros(len(places), dtype=GPU_PLACE)
    recfunctions.assign_fields_by_name(out, places)
    out["gpus"] = gpus
    return out


def _unify(tables: list[Table], dtype: np.dtype[np.void]) -> tuple[Table, list[Int32]]:
    """One table with each entry once, and for each table the new index of each of its entries."""
    joined = np.concatenate([np.ascontiguousarray(table, dtype=dtype) for table in tables])
    codes, first = distinct(joined)
    splits = np.cumsum([len(table) for table in tables])[:-1]
    return joined[first], np.split(codes, splits)


def distinct(entries: Table) -> tuple[Int32, Int64]:
    """Code of each entry (equal bytes, equal code) and the position at which each code comes first."""
    if not len(entries):
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    data = np.ascontiguousarray(entries)
    binary = pa.Array.from_buffers(pa.binary(data.dtype.itemsize), len(data), [None, pa.py_buffer(data)])
    codes: Int32 = binary.dictionary_encode().indices.to_numpy()
    return codes, first_of(codes)


def first_of(codes: Int32 | Int64) -> Int64:
    """Position at which each of the codes 0 … max comes first."""
    first = np.zeros(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def gpu_fields() -> tuple[str, ...]:
    """Names of the fields of a GPU, in the order in which `batch_info` holds them."""
    return tuple(field.name for field in fields(Gpu))

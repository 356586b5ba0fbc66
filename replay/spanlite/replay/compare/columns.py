"""Spans of both sides as columns over common tables, so that equal values have equal numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, Int32, SamplingMode, Table, UInt64
from spanlite.replay.tables import Entries, Texts

Columns = dict[str, NDArray[Any]]
"""By name, shape (n,) each: `group` and `number` are a span's identity, `batch` is an index into the heads of its side,
`trace` one into the entries of `Traces` (-1 = none); the others are SpanColumns', over the tables of `Common`."""

ENTRY = np.dtype([("loop", "<i8"), ("id", "V16"), ("remote_parent", "<u8"), ("start_ns", "<i8")])
_TRACE = np.dtype([("loop", "<i8"), ("id", "V16")])
_PLAIN = ("start_ns", "duration_ns", "kind", "parent", "correlation", "bytes", "weight")
BYTES_PER_SPAN = 85
"""What the columns of one span take."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a batch says beside its rows; `sequence` is None where the run gave it another."""

    producer: bytes
    sequence: int | None
    emit_ns: int
    resource: Mapping[str, str]
    gpus: tuple[Gpu, ...]
    clock: ClockAnchor
    sampling: SamplingMode

    @classmethod
    def of(cls, batch: Batch, *, sequence: int | None) -> Head:
        """That of a batch."""
        plain = (batch.emit_ns, batch.resource, batch.gpus, batch.clock, batch.sampling)
        return cls(batch.producer, sequence, *plain)


class Traces:
    """Traces by turn and id, and what batches say of them.

    Attributes:
        entries: each combination that a batch names.
        traces: each turn and id once.
    """

    def __init__(self) -> None:
        self.entries = Entries(ENTRY)
        self.traces = Entries(_TRACE)
        self._trace_of = np.zeros(0, dtype=np.int64)

    def numbers(self, table: Table, loop: int) -> Int32:
        """Number of each entry of a batch's table."""
        entries, ids = np.zeros(len(table), dtype=ENTRY), np.zeros(len(table), dtype=_TRACE)
        entries["loop"] = ids["loop"] = loop
        for name in ("id", "remote_parent", "start_ns"):
            entries[name] = table[name]
        ids["id"] = table["id"]
        numbers, traces = self.entries.numbers_of(entries), self.traces.numbers_of(ids)
        if len(self.entries.table) > len(self._trace_of):
            grown = np.zeros(2 * len(self.entries.table), dtype=np.int64)
            grown[: len(self._trace_of)] = self._trace_of
            self._trace_of = grown
        self._trace_of[numbers] = traces
        return numbers

    def of_entries(self, entries: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The trace of each entry, -1 for entry -1."""
        if not len(self._trace_of):
            return np.full(len(entries), -1, dtype=np.int64)
        return np.where(entries >= 0, self._trace_of[np.maximum(entries, 0)], -1)

    def name(self, trace: int) -> str:
        """The id in hex, and the turn where it is not the first."""
        entry = self.traces.table[trace]
        loop = int(entry["loop"])
        name: str = entry["id"].tobytes().hex()
        return f"{name} of turn {loop}" if loop > 0 else name


class Common:
    """Tables that both sides share; they grow with what is distinct."""

    def __init__(self) -> None:
        self.texts = Texts()
        self.configs = Entries(CONFIG)
        self.places = Entries(PLACE)
        self.nodes = Entries(NODE)
        self.traces = Traces()
        self.gpus: list[Gpu | None] = [None]
        self._gpus: dict[Gpu, int] = {}
        self._groups: dict[tuple[int, int], int] = {}

    def columns(self, batch: Batch, numbers: UInt64, *, loop: int, head: int, taken: Any = None) -> Columns:
        """The rows of a batch that are taken, or all.

        Args:
            batch: it, as the original says it.
            numbers: of the rows that are taken.
            loop: the turn.
            head: index of the batch's head.
            taken: mask of its rows.
        """
        own = batch.columns
        texts = np.array([self.texts.number(text) for text in own.strings], dtype=np.int32)
        configs = own.configs.copy()
        for name in ("kernel", "name"):
            configs[name] = texts[configs[name]]
        places = own.places.copy()
        places["gpu"] = np.array([0, *map(self._gpu, batch.gpus)], dtype=np.int32)[places["gpu"]]
        no_trace = np.append(self.traces.numbers(own.traces, loop), np.int32(-1))
        maps: dict[str, Int32] = {
            "config": self.configs.numbers_of(configs),
            "place": self.places.numbers_of(places),
            "node": self.nodes.numbers_of(own.nodes),
            "stage": texts,
            "trace": no_trace,
        }
        rows = slice(None) if taken is None or bool(taken.all()) else taken
        columns: Columns = {name: getattr(own, name)[rows] for name in _PLAIN}
        columns |= {name: entries[getattr(own, name)[rows]] for name, entries in maps.items()}
        count = len(numbers)
        group = self._groups.setdefault((loop, batch.session), len(self._groups))
        columns["group"] = np.full(count, group, dtype=np.int32)
        columns["batch"] = np.full(count, head, dtype=np.int32)
        columns["number"] = numbers
        return columns

    def _gpu(self, gpu: Gpu) -> int:
        number = self._gpus.setdefault(gpu, len(self.gpus))
        if number == len(self.gpus):
            self.gpus.append(gpu)
        return number


def joined(parts: list[Columns]) -> Columns:
    """Columns one behind the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rows_of(columns: Columns, rows: NDArray[Any]) -> Columns:
    """Some rows, as copies."""
    return {name: values[rows] for name, values in columns.items()}


def resource_text(resource: Mapping[str, str]) -> str:
    """A resource as text that is equal where it is."""
    return json.dumps(resource, sort_keys=True)

"""What pairs of spans differ in, column by column, and by how much their times do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, Table
from spanlite.replay.compare.columns import Columns, Common, Head, resource_text

_PLAIN = {
    "start_ns": "start_ns",
    "duration_ns": "duration_ns",
    "kind": "kind",
    "parent": "parent_span_id",
    "correlation": "correlation_id",
    "bytes": "bytes",
    "weight": "weight",
}
"""Columns of a span, and what an archive calls them."""
_NAMED = {"gpu": "gpu_uuid", "limiter": "occupancy_limiter", "remote_parent": "trace_remote_parent"}
_MOST_BITS = 64


class Errors:
    """Absolute differences of a time, in nanoseconds.

    Attributes:
        count, differing: values, and those that are not equal.
        most, total: largest, and sum.
        by_bits: how many differ by 0, by 1, by 2 to 3, by 4 to 7, …
    """

    def __init__(self) -> None:
        self.count = self.differing = self.most = self.total = 0
        self.by_bits = np.zeros(_MOST_BITS + 1, dtype=np.int64)

    def add(self, original: Int64, replayed: Int64) -> None:
        """Counts pairs of times."""
        self.count += len(original)
        unequal = np.flatnonzero(original != replayed)
        self.by_bits[0] += len(original) - len(unequal)
        if not len(unequal):
            return
        ours, theirs = original[unequal], replayed[unequal]
        up = theirs.view(np.uint64) - ours.view(np.uint64)
        size = np.where(theirs > ours, up, np.uint64(0) - up)
        self.differing += len(size)
        self.most = max(self.most, int(size.max()))
        low = np.uint64(0xFFFFFFFF)
        self.total += (int((size >> np.uint64(32)).sum()) << 32) + int((size & low).sum())
        bits = np.searchsorted(np.uint64(1) << np.arange(_MOST_BITS, dtype=np.uint64), size, side="right")
        self.by_bits += np.bincount(bits, minlength=_MOST_BITS + 1)

    @property
    def mean(self) -> float:
        """Of all values, equal ones too; 0 without any."""
        return self.total / self.count if self.count else 0.0


class Changes:
    """Counts what differs between pairs.

    Attributes:
        changed: pairs that differ in anything.
        by_column: pairs that differ in it, by an archive's name of the column, or `resource`, `gpus`, `clock`.
        start, duration: how far times are off.
        batch_of: the original batch of each message whose spans were met.
    """

    def __init__(self, common: Common, originals: list[Head], replayed: list[Head]) -> None:
        self._common = common
        self._heads = (originals, replayed)
        self.changed = 0
        self.by_column: Counter[str] = Counter()
        self.start, self.duration = Errors(), Errors()
        self.batch_of: dict[int, int] = {}

    def add(self, original: Columns, replayed: Columns) -> None:
        """Counts some pairs."""
        differs = np.zeros(len(original["start_ns"]), dtype=bool)
        for name, called in _PLAIN.items():
            unequal = original[name] != replayed[name]
            self._count(called, int(unequal.sum()))
            differs |= unequal
        self.start.add(original["start_ns"], replayed["start_ns"])
        self.duration.add(original["duration_ns"], replayed["duration_ns"])
        for name, table in (
            ("config", self._common.configs.table),
            ("place", self._common.places.table),
            ("node", self._common.nodes.table),
            ("trace", self._common.traces.entries.table),
        ):
            differs |= self._entries(table, original[name], replayed[name])
        unequal = original["stage"] != replayed["stage"]
        self._count("stage", int(unequal.sum()))
        differs |= unequal
        differs |= self._batches(original["batch"], replayed["batch"])
        self.changed += int(differs.sum())

    def _entries(self, table: Table, original: NDArray[Any], replayed: NDArray[Any]) -> NDArray[np.bool_]:
        """Counts by field the pairs whose entries of a table are not the same; -1 is none."""
        unequal = np.asarray(original != replayed)
        if not unequal.any():
            return unequal
        ours, theirs, counts = _pairs(original[unequal], replayed[unequal])
        none = np.append(table, np.zeros(1, dtype=table.dtype))  # -1 is the last
        for name in table.dtype.names or ():
            if name != "loop":
                self._count(_called(name, table), int(counts[none[name][ours] != none[name][theirs]].sum()))
        return unequal

    def _batches(self, original: NDArray[Any], replayed: NDArray[Any]) -> NDArray[np.bool_]:
        """Counts the pairs whose batches do not say the same of themselves."""
        ours, theirs, counts, inverse = _pairs_of(original, replayed)
        bad = np.zeros(len(ours), dtype=bool)
        for at, (mine, other) in enumerate(zip(ours.tolist(), theirs.tolist(), strict=True)):
            self.batch_of.setdefault(other, mine)
            for name in _unlike(self._heads[0][mine], self._heads[1][other]):
                self._count(name, int(counts[at]))
                bad[at] = True
        return bad[inverse]

    def _count(self, name: str, spans: int) -> None:
        if spans:
            self.by_column[name] += spans


def _called(name: str, table: Table) -> str:
    if name in ("id", "start_ns") and "remote_parent" in (table.dtype.names or ()):
        return f"trace_{name}"
    return _NAMED.get(name, name)


def _unlike(original: Head, replayed: Head) -> list[str]:
    unlike = [
        name
        for name in ("producer", "emit_ns", "gpus", "clock", "sampling")
        if getattr(original, name) != getattr(replayed, name)
    ]
    if replayed.sequence is not None and original.sequence != replayed.sequence:
        unlike.append("batch_sequence")
    if resource_text(original.resource) != resource_text(replayed.resource):
        unlike.append("resource")
    return unlike


def _pairs(original: NDArray[Any], replayed: NDArray[Any]) -> tuple[Int64, Int64, Int64]:
    return _pairs_of(original, replayed)[:3]


def _pairs_of(original: NDArray[Any], replayed: NDArray[Any]) -> tuple[Int64, Int64, Int64, Int64]:
    """Distinct pairs, how many there are of each, and which of them each row is; values are -1 to 2^31 - 1."""
    code = (original.astype(np.int64) + 1) << 32 | (replayed.astype(np.int64) + 1)
    pairs, inverse, counts = np.unique(code, return_inverse=True, return_counts=True)
    return (pairs >> 32) - 1, (pairs & 0xFFFFFFFF) - 1, counts, inverse.reshape(-1)

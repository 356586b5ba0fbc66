"""Tables that all files of an archive share: each text, launch configuration, place and graph node once.

They grow with what is distinct in the archive, not with its spans. Traces are not among them: those are counted file by
file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import ClockAnchor, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, Int32, Int64, SamplingMode, Table
from spanlite.native.bodies import Texts as Utf8
from spanlite.replay.runs import joint_codes, through, used_of

_GPU_FIELDS = tuple(field.name for field in fields(Gpu))
_SAMPLING = {mode.name.lower(): mode for mode in SamplingMode}
_MOST_ORIGINS = 4096


class Texts:
    """Texts and their numbers; 0 is the empty text, which null becomes as well."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self.values: list[str] = [""]
        self._utf8: tuple[Int64, Utf8] | None = None

    def number(self, value: str) -> int:
        """The number of a text, a new one if it has none."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def numbers(self, codes: Int32, values: Sequence[str]) -> Int32:
        """The number of each row's text, of codes (-1 = null) into `values`."""
        mapped = np.array([*map(self.number, values), 0], dtype=np.int32)
        out: Int32 = through(mapped, codes)
        return out

    def utf8(self, used: Int64) -> Utf8:
        """The texts of some numbers, ascending, as the library takes them."""
        known, size = self._utf8, len(self.values)
        if known is None or len(known[1].rank) != size or not np.array_equal(known[0], used):
            encoded = [self.values[number].encode() for number in used.tolist()]
            order = used[sorted(range(len(encoded)), key=encoded.__getitem__)]
            begin, end = np.zeros((2, size), dtype=np.int64)
            rank = np.zeros(size, dtype=np.int32)
            end[used] = np.cumsum([*map(len, encoded)], dtype=np.int64)
            begin[used] = np.append(0, end[used][:-1])
            rank[order] = np.arange(len(order), dtype=np.int32)
            known = self._utf8 = used, Utf8(b"".join(encoded), begin, end, rank)
        return known[1]


class Entries:
    """Entries of one dtype and their numbers."""

    def __init__(self, dtype: np.dtype[np.void], *, zero_first: bool = False) -> None:
        self._dtype = dtype
        self._numbers: dict[bytes, int] = {}
        self._table = np.zeros(64, dtype=dtype)
        if zero_first:
            self._numbers[bytes(dtype.itemsize)] = 0

    @property
    def table(self) -> Table:
        """All entries so far, by number."""
        return self._table[: len(self._numbers)]

    def numbers(self, columns: dict[str, NDArray[Any]], rows: int) -> Int32:
        """The number of each row's entry, whose fields are `columns`."""
        code, first = joint_codes(list(columns.values()), rows)
        found = np.zeros(len(first), dtype=self._dtype)
        for name, values in columns.items():
            found[name] = values[first]
        mapped = np.array([self._number(entry) for entry in found], dtype=np.int32)
        if len(mapped) == 1:
            return np.broadcast_to(mapped, rows)
        out: Int32 = mapped.take(code)
        return out

    def numbers_of(self, entries: Table) -> Int32:
        """The number of each entry of a table."""
        return np.array([self._number(entry) for entry in entries], dtype=np.int32)

    def _number(self, entry: np.void) -> int:
        number = self._numbers.setdefault(entry.tobytes(), len(self._numbers))
        if number >= len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._table[number] = entry
        return number


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where batches are from; one object for many of them."""

    resource: Mapping[str, str]
    gpus: tuple[Gpu, ...]
    clock: ClockAnchor
    sampling: SamplingMode


class Tables:
    """What the blocks of one archive share."""

    def __init__(self) -> None:
        self._origins: dict[tuple[str, str], Origin] = {}
        self.texts = Texts()
        self.configs = Entries(CONFIG)
        self.places = Entries(PLACE)
        self.nodes = Entries(NODE, zero_first=True)

    def texts_of(self, config: Int32, stage: Int32) -> Int64:
        """The numbers, ascending, of the texts that rows use, the empty one among them."""
        used = np.zeros(len(self.texts.values), dtype=bool)
        configs = self.configs.table[used_of(config, len(self.configs.table))]
        for numbers in (0, configs["kernel"], configs["name"], used_of(stage, len(used))):
            used[numbers] = True
        return np.flatnonzero(used)

    def origin(self, info: str, sampling: str) -> Origin:
        """What columns `batch_info` and `sampling` say."""
        known = self._origins.get((info, sampling))
        if known is None:
            if len(self._origins) >= _MOST_ORIGINS:
                self._origins.clear()
            facts = json.loads(info)
            gpus = tuple(Gpu(**dict(zip(_GPU_FIELDS, values, strict=True))) for values in facts["gpus"])
            known = Origin(facts["resource"], gpus, ClockAnchor(*facts["clock"]), _SAMPLING[sampling])
            self._origins[info, sampling] = known
        return known

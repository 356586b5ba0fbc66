"""Tables that all files of an archive share: each text, launch configuration, place and graph node once.

They grow with what is distinct in the archive, not with its spans. Traces are not among them: those are counted file by
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import CONFIG, NODE, PLACE, Int32, Table
from spanlite.replay.runs import joint_codes


class Texts:
    """Texts and their numbers; 0 is the empty text, which null becomes as well."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self.values: list[str] = [""]

    def number(self, value: str) -> int:
        """The number of a text, a new one if it has none."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def numbers(self, codes: Int32, values: Sequence[str]) -> Int32:
        """The number of each row's text, of codes (-1 = null) into `values`."""
        mapped = np.array([*map(self.number, values), 0], dtype=np.int32)
        out: Int32 = mapped[codes]
        return out


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
            return np.full(rows, mapped[0], dtype=np.int32)
        out: Int32 = mapped[code]
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


class Tables:
    """What the blocks of one archive share."""

    def __init__(self) -> None:
        self.texts = Texts()
        self.configs = Entries(CONFIG)
        self.places = Entries(PLACE)
        self.nodes = Entries(NODE, zero_first=True)

"""Which batches have rows in a file: producers, and ranges of sequences, as JSON in its footer."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.decode import numbers, text_codes
from spanlite.pipeline.archive.port import Store, label
from spanlite.pipeline.archive.schema import BATCHES_KEY, open_file, read_facts

Provenance = dict[bytes, "Ranges"]
"""Producer → sequences of its batches."""


class Ranges:
    """A set of whole numbers, held as disjoint ranges that do not touch."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """Takes ranges (first, last), both included, in any order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in pairs:
            self.add(first, last)

    @classmethod
    def of(cls, values: Iterable[int]) -> Ranges:
        """The set of the values."""
        return cls((value, value) for value in sorted(values))

    def add(self, first: int, last: int) -> None:
        """Adds first … last."""
        low = bisect_left(self._lasts, first - 1)  # the first range that touches or follows
        high = bisect_right(self._firsts, last + 1)  # the first one beyond
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = [first], [last]

    def update(self, other: Ranges) -> None:
        """Adds all of `other`."""
        for first, last in other:
            self.add(first, last)

    def common(self, other: Ranges) -> Ranges:
        """What lies in both."""
        both = Ranges()
        for first, last in other:
            for at in range(bisect_left(self._lasts, first), bisect_right(self._firsts, last)):
                both.add(max(first, self._firsts[at]), min(last, self._lasts[at]))
        return both

    def __contains__(self, value: int) -> bool:
        at = bisect_left(self._lasts, value)
        return at < len(self._firsts) and self._firsts[at] <= value

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and (self._firsts, self._lasts) == (other._firsts, other._lasts)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __str__(self) -> str:
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self)

    __repr__ = __str__


def union(parts: Iterable[Mapping[bytes, Ranges]]) -> Provenance:
    """All batches of all parts."""
    whole: Provenance = {}
    for part in parts:
        for producer, ranges in part.items():
            whole.setdefault(producer, Ranges()).update(ranges)
    return whole


def to_json(batches: Mapping[bytes, Ranges]) -> str:
    """`{"<producer, hex>": [[first, last], …], …}`."""
    facts = {producer.hex(): [list(pair) for pair in batches[producer]] for producer in sorted(batches)}
    return json.dumps(facts, separators=(",", ":"))


def from_json(text: bytes | str) -> Provenance:
    """The inverse of `to_json`.

    Raises:
        ValueError: it is something else.
    """
    facts = json.loads(text)
    try:
        return {bytes.fromhex(key): Ranges((int(a), int(b)) for a, b in pairs) for key, pairs in facts.items()}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not an object with lists of [first, last]: {error}") from error


def of_rows(table: Any) -> Provenance:
    """The batches of a table with the columns `producer` and `batch_sequence`."""
    codes, producers = text_codes(table["producer"])
    sequence = numbers(table["batch_sequence"])
    return {
        producer: Ranges.of(np.unique(sequence[codes == code]).tolist())
        for code, producer in enumerate(producers)
        if bool((codes == code).any())
    }


def read_provenance(store: Store, name: str) -> Provenance:
    """The batches in a file: what its footer says, or what its rows say where the footer is older than that.

    Raises:
        FileNotFoundError: it is not there (any more).
        ArchiveError: it cannot be read.
    """
    told = read_facts(store, name).get(BATCHES_KEY)
    if told is not None:
        try:
            return from_json(told)
        except ValueError as error:
            raise ArchiveError(f"{label(store, name)}: its footer names no batches ({error}); restore it") from error
    with open_file(store, name) as file:
        groups = range(file.num_row_groups)
        columns = ["producer", "batch_sequence"]
        return union(of_rows(file.read_row_group(at, columns=columns, use_threads=False)) for at in groups)

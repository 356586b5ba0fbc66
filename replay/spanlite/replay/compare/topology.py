"""Whether traces are what they were: the same spans, under the same parents, in other processes too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.replay.compare.columns import Columns, Common

WHYS = (
    "a span is missing",
    "a span is foreign",
    "a parent differs",
    "a span is of another trace",
    "its parent in another process differs",
    "it is on one side only",
)
_MISSING, _FOREIGN, _PARENT, _MEMBER, _REMOTE = range(5)
NAMED = 10


class Marks:
    """A set of numbers."""

    def __init__(self) -> None:
        self._held = np.zeros(64, dtype=bool)

    def add(self, numbers: NDArray[Any]) -> None:
        """Adds those that are not negative."""
        if not len(numbers):
            return
        most = int(numbers.max())
        if most >= len(self._held):
            grown = np.zeros(2 * (most + 1), dtype=bool)
            grown[: len(self._held)] = self._held
            self._held = grown
        self._held[numbers[numbers >= 0]] = True

    def held(self, size: int) -> NDArray[np.bool_]:
        """Which of 0 … size - 1 are in it."""
        out = np.zeros(size, dtype=bool)
        part = self._held[:size]
        out[: len(part)] = part
        return out


class Topology:
    """Marks traces that are not as they were. Spans that come again are counted elsewhere and not looked at here."""

    def __init__(self, common: Common) -> None:
        self._traces = common.traces
        self._entries = common.traces.entries
        self._sides = (Marks(), Marks())
        self._failed = [Marks() for _ in WHYS[:-1]]

    def saw_original(self, columns: Columns) -> None:
        """Spans of the original came."""
        self._sides[0].add(self._of(columns))

    def saw_replayed(self, columns: Columns) -> None:
        """Spans of the replay came."""
        self._sides[1].add(self._of(columns))

    def add(self, original: Columns, replayed: Columns) -> None:
        """Compares pairs: parents are numbers of ranges in the same session, so equal ones are the same span."""
        ours, theirs = original["trace"], replayed["trace"]
        parent = np.flatnonzero(original["parent"] != replayed["parent"])
        if len(parent):
            self._fail(_PARENT, ours[parent], theirs[parent])
        entry = np.flatnonzero(ours != theirs)
        if not len(entry):
            return
        ours, theirs = ours[entry], theirs[entry]
        member = self._traces.of_entries(ours) != self._traces.of_entries(theirs)
        self._fail(_MEMBER, ours[member], theirs[member])
        remote = np.append(self._entries.table["remote_parent"], np.uint64(0))
        self._fail(
            _REMOTE, *((side[~member])[remote[ours[~member]] != remote[theirs[~member]]] for side in (ours, theirs))
        )

    def missing(self, original: Columns) -> None:
        """Spans that never came."""
        self._fail(_MISSING, original["trace"])

    def foreign(self, replayed: Columns) -> None:
        """Spans that were in no original."""
        self._fail(_FOREIGN, replayed["trace"])

    def counts(self) -> tuple[int, int, int, int]:
        """Traces of the original, of the replay, of either, and those of either that fail."""
        ours, theirs = (side.held(self._size) for side in self._sides)
        failed = np.any(self._reasons(), axis=0) & (ours | theirs)
        return int(ours.sum()), int(theirs.sum()), int((ours | theirs).sum()), int(failed.sum())

    def first_failed(self) -> list[dict[str, str]]:
        """The first ones to fail, in the order in which they were met, and all that is wrong with each."""
        reasons = self._reasons()
        return [
            {
                "trace": self._traces.name(trace),
                "why": "; ".join(why for why, marks in zip(WHYS, reasons, strict=True) if marks[trace]),
            }
            for trace in np.flatnonzero(np.any(reasons, axis=0))[:NAMED].tolist()
        ]

    def _reasons(self) -> list[NDArray[np.bool_]]:
        """Which traces fail, for each of WHYS."""
        ours, theirs = (side.held(self._size) for side in self._sides)
        return [*(marks.held(self._size) for marks in self._failed), ours ^ theirs]

    @property
    def _size(self) -> int:
        return len(self._traces.traces.table)

    def _of(self, columns: Columns) -> NDArray[np.int64]:
        return self._traces.of_entries(np.unique(columns["trace"]))

    def _fail(self, why: int, *entries: NDArray[Any]) -> None:
        for side in entries:
            self._failed[why].add(self._traces.of_entries(np.unique(side)))

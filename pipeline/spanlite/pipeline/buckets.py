"""Histograms of many series that are added to a few at a time, without a look at the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spanlite.contract.columns import Int32, Int64
from spanlite.pipeline.growing import grown


@dataclass(frozen=True, slots=True)
class Held:
    """Buckets of some rows, one row after the other, the indexes of each ascending.

    Attributes:
        length: buckets of each row.
        index, count: of all of them.
    """

    length: Int64
    index: Int32
    count: Int64


class Buckets:
    """Buckets by row, in one pool.

    Those of a row lie together, with room for more; a row that outgrows its room moves to the pool's end. When half of
    the pool is left behind like this, all rows move together. So an addition takes what its own rows hold, and moves
    cost a row a few times what was added to it.
    """

    def __init__(self) -> None:
        self._begin = np.zeros(0, dtype=np.int64)
        self._length = np.zeros(0, dtype=np.int64)
        self._room = np.zeros(0, dtype=np.int64)
        self._index = np.zeros(0, dtype=np.int32)
        self._count = np.zeros(0, dtype=np.int64)
        self._end = self._left = 0

    def add(self, rows: Int32, added: Held) -> Held:
        """Adds buckets to some rows; what these hold then.

        Args:
            rows: numbers of rows, each once; those that were never seen hold nothing.
            added: buckets for each of them.
        """
        self._begin, self._length, self._room = (
            grown(column, int(rows.max(initial=-1)) + 1) for column in (self._begin, self._length, self._room)
        )
        place = _places(self._begin[rows], self._length[rows])
        held = Held(self._length[rows], self._index[place], self._count[place])
        code, more = _codes(held), _codes(added)
        at = np.searchsorted(code, more)
        known = at < len(code)
        known[known] = code[at[known]] == more[known]
        held.count[at[known]] += added.count[known]
        if known.all():
            self._count[place] = held.count
            return held
        held = _inserted(held, added, at, ~known)
        self._make_room(rows, held.length)
        self._length[rows] = held.length
        place = _places(self._begin[rows], held.length)
        self._index[place], self._count[place] = held.index, held.count
        if self._left > self._end // 2:
            self._move_together()
        return held

    def _make_room(self, rows: Int32, length: Int64) -> None:
        moved = length > self._room[rows]
        numbers, room = rows[moved], length[moved] + (length[moved] >> 1) + 2
        self._left += int(self._room[numbers].sum())
        self._begin[numbers], self._room[numbers] = self._end + np.cumsum(room) - room, room
        self._end += int(room.sum())
        self._index, self._count = grown(self._index, self._end), grown(self._count, self._end)

    def _move_together(self) -> None:
        rows = np.flatnonzero(self._room)
        room = self._room[rows]
        begin = np.cumsum(room) - room
        before, after = _places(self._begin[rows], self._length[rows]), _places(begin, self._length[rows])
        self._end, self._left = int(room.sum()), 0
        index, count = np.zeros(self._end, dtype=np.int32), np.zeros(self._end, dtype=np.int64)
        index[after], count[after] = self._index[before], self._count[before]
        self._begin[rows], self._index, self._count = begin, index, count


def _places(begin: Int64, length: Int64) -> Int64:
    """Every place from `begin` on, so many of each row."""
    ends = np.cumsum(length)
    return np.repeat(begin - (ends - length), length) + np.arange(ends[-1] if len(ends) else 0)


def _codes(held: Held) -> Int64:
    """A number of each bucket, ascending: by row, then index."""
    row = np.repeat(np.arange(len(held.length), dtype=np.int64) << 32, held.length)
    return row + (held.index.astype(np.int64) + (1 << 31))


def _inserted(held: Held, added: Held, at: Int64, fresh: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Held:
    """What is held with those of the added buckets that it lacks; `at` is where each added one belongs."""
    place = at[fresh] + np.arange(np.count_nonzero(fresh))
    size = len(held.index) + len(place)
    old = np.ones(size, dtype=bool)
    old[place] = False
    index, count = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int64)
    index[old], count[old] = held.index, held.count
    index[place], count[place] = added.index[fresh], added.count[fresh]
    row = np.repeat(np.arange(len(added.length)), added.length)[fresh]
    return Held(held.length + np.bincount(row, minlength=len(held.length)), index, count)

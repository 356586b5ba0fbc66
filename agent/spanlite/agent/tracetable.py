"""Decides which trace a launch belongs to: the program's own id where it gave one, else the outermost range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spanlite.agent.anchors import Externals
from spanlite.agent.boundaries import Bool, Int64, UInt64
from spanlite.agent.ranges import NONE, Ranges

SEVERAL = -1
"""In place of an external id: launches of one outermost range have several."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces as columns.

    Attributes:
        external_id: uint64, the program's id; 0 for a trace that has none.
        root: int64, its outermost range; NONE for a trace that is known by the program's id.
        start_ns: int64, start of its first outermost range, else of its first launch on the GPU.
        root_number: int64, ascending: every outermost range.
        root_trace: int64, the trace of each ``root_number``.
    """

    external_id: UInt64
    root: Int64
    start_ns: Int64
    root_number: Int64
    root_trace: Int64

    def __len__(self) -> int:
        return len(self.root)

    def key(self, row: int) -> int:
        """A number that names the trace within its session, fit for `derived_trace_id`: negative for ranges."""
        root = int(self.root[row])
        return -1 - root if root >= 0 else int(self.external_id[row])

    def of_ranges(self, ranges: Ranges) -> Int64:
        """The trace of each range; NONE for those that are not nested."""
        if not len(self.root_number):
            return np.full(len(ranges), NONE, np.int64)
        at = np.minimum(np.searchsorted(self.root_number, ranges.root), len(self.root_number) - 1)
        return np.where(self.root_number[at] == ranges.root, self.root_trace[at], NONE)


def external_ids(
    correlation: Int64, root: Int64, *, externals: Externals, ranges: Ranges, one_thread: bool, known: dict[int, int]
) -> tuple[UInt64, Bool, tuple[Bool, UInt64]]:
    """The program's ids for launches: recorded, else that of the outermost range, else that of agreeing neighbours.

    Args:
        correlation: shape (n,).
        root: shape (n,), their outermost ranges, negative where there is none or an unknown one.
        externals: the recorded ids.
        ranges: all ranges.
        one_thread: neighbours by correlation id are neighbours in time.
        known: outermost range → id of all its launches so far, or SEVERAL; brought up to date.

    Returns:
        The ids, shape (n,), 0 where there is none; whether there is one, shape (n,); and for each row of ``ranges``
        whether all launches in it, an outermost one, have one id, and that id.
    """
    ids, has, between = _recorded(correlation, externals)
    inside = np.flatnonzero(root >= 0)
    row = ranges.rows(root[inside])
    own = has[inside]
    one, one_id = _agreed(row[own], ids[inside[own]], ranges=ranges, known=known)
    given = one[row] & ~own
    ids[inside[given]] = one_id[row[given]]
    has[inside[given]] = True
    if one_thread:
        has |= between
    ids[~has] = 0
    return ids, has, (one, one_id)


def trace_table(
    root: Int64, ids: UInt64, *, has: Bool, one_root: tuple[Bool, UInt64], ranges: Ranges, starts: Int64
) -> tuple[Int64, Traces]:
    """The trace of each launch, and the table of traces: those with the program's ids first, then by outermost range.

    Args:
        root: shape (n,), outermost ranges, negative where there is none or an unknown one.
        ids, has, one_root: as `external_ids` returns them.
        ranges: all ranges.
        starts: shape (n,), GPU start in ns.
    """
    one, one_id = one_root
    outermost = np.flatnonzero(ranges.nested & (ranges.root == ranges.number))
    by_id, by_range = outermost[one[outermost]], outermost[~one[outermost]]
    external, index = _distinct(np.concatenate((one_id[by_id], ids[has])))
    trace_of = np.full(len(ranges), NONE, np.int64)
    trace_of[by_id] = index[: len(by_id)]
    trace_of[by_range] = len(external) + np.arange(len(by_range))
    trace = np.full(len(root), NONE, np.int64)
    inside = np.flatnonzero(root >= 0)
    trace[inside] = trace_of[ranges.rows(root[inside])]
    trace[has] = index[len(by_id) :]
    never = np.iinfo(np.int64).max
    start_ns = np.full(len(external) + len(by_range), never, np.int64)
    np.minimum.at(start_ns, trace_of[outermost], ranges.start_ns[outermost])
    rangeless = np.flatnonzero(has)[start_ns[trace[has]] == never]
    np.minimum.at(start_ns, trace[rangeless], starts[rangeless])
    return trace, Traces(
        external_id=np.concatenate((external, np.zeros(len(by_range), np.uint64))),
        root=np.concatenate((np.full(len(external), NONE, np.int64), ranges.number[by_range])),
        start_ns=start_ns,
        root_number=ranges.number[outermost],
        root_trace=trace_of[outermost],
    )


def _recorded(correlation: Int64, externals: Externals) -> tuple[UInt64, Bool, Bool]:
    """Ids by record; where there is none, by neighbours that agree.

    Returns:
        ids, whether a record of its own gave it, whether its neighbours did.
    """
    rows = len(correlation)
    if not len(externals):
        return np.zeros(rows, np.uint64), np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    after = np.searchsorted(externals.correlation, correlation, side="left")
    last = len(externals) - 1
    here, before = np.minimum(after, last), np.maximum(after - 1, 0)
    ids = externals.external_id[here]
    own = externals.correlation[here] == correlation
    between = ~own & (after > 0) & (after <= last) & (externals.external_id[before] == ids)
    return ids, own, between


def _agreed(row: Int64, ids: UInt64, *, ranges: Ranges, known: dict[int, int]) -> tuple[Bool, UInt64]:
    """For each row of the ranges: whether all ids of launches in that outermost range are one, and that one."""
    low = np.full(len(ranges), np.iinfo(np.uint64).max, np.uint64)
    high = np.zeros(len(ranges), np.uint64)
    for known_row in np.flatnonzero(np.isin(ranges.number, list(known))).tolist():
        told = known[int(ranges.number[known_row])]
        low[known_row], high[known_row] = (0, 1) if told == SEVERAL else (told, told)
    if row.size:
        # Launches come in runs of one root and one id: a few runs are less to look at than a million launches.
        first = np.flatnonzero(np.concatenate(([True], (np.diff(row) != 0) | (ids[1:] != ids[:-1]))))
        np.minimum.at(low, row[first], ids[first])
        np.maximum.at(high, row[first], ids[first])
        for changed in set(row[first].tolist()):
            one = low[changed] == high[changed]
            known[int(ranges.number[changed])] = int(low[changed]) if one else SEVERAL
    return low == high, high


def _distinct(ids: UInt64) -> tuple[UInt64, Int64]:
    """The distinct values, ascending, and the place of each value among them."""
    if not ids.size:
        return ids, np.zeros(0, np.int64)
    first = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
    values, index = np.unique(ids[first], return_inverse=True)
    return values, np.repeat(index.reshape(-1), np.diff(np.append(first, ids.size)))

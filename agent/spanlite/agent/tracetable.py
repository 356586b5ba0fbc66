"""Decides which trace a launch belongs to: that of the context around it, of the program's own id, of a range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spanlite.agent.anchors import Externals
from spanlite.agent.boundaries import Bool, Int64, UInt64
from spanlite.agent.ranges import NONE, UNKNOWN, Ranges
from spanlite.agent.tracecontext import CONTEXT, trace_id
from spanlite.contract.columns import Table

SEVERAL = -1
"""In place of an external id: launches of one outermost range have several."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces as columns.

    Attributes:
        external_id: uint64, the program's id; 0 for a trace that has none.
        root: int64, its outermost range; NONE for a trace that is known by the program's id or by a context.
        context: of dtype tracecontext.CONTEXT, zero for a trace that has none. One id has a row a parent.
        start_ns: int64, start of its first range, else of its first launch on the GPU.
        root_number: int64, ascending: every outermost range and every context.
        root_trace: int64, the trace of each ``root_number``.
    """

    external_id: UInt64
    root: Int64
    context: Table
    start_ns: Int64
    root_number: Int64
    root_trace: Int64

    def __len__(self) -> int:
        return len(self.root)

    def key(self, row: int) -> int:
        """A number that names the trace within its session, fit for `derived_trace_id`: negative for ranges."""
        root = int(self.root[row])
        return -1 - root if root >= 0 else int(self.external_id[row])

    def given_id(self, row: int) -> bytes:
        """The id that a context gave, 16 bytes; empty where none did."""
        one = self.context[row]
        return trace_id(one) if one["remote_parent"] else b""

    def remote_parent(self, row: int) -> int:
        """The span that a context named, 0 for none."""
        return int(self.context["remote_parent"][row])

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

    What is in a context, or may be, has none: its trace is the context's.

    Args:
        correlation: shape (n,).
        root: shape (n,), the ranges that give their traces, negative where there is none or an unknown one.
        externals: the recorded ids.
        ranges: all ranges.
        one_thread: neighbours by correlation id are neighbours in time.
        known: outermost range → id of all its launches so far, or SEVERAL; brought up to date.

    Returns:
        The ids, shape (n,), 0 where there is none; whether there is one, shape (n,); and for each row of ``ranges``
        whether all launches in it, an outermost one, have one id, and that id.
    """
    ids, has, between = _recorded(correlation, externals)
    if ranges.is_context.any():
        outside = (root != UNKNOWN) & ~ranges.in_context(root)
        has, between = has & outside, between & outside
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
    """The trace of each launch, and the table of traces: with the program's ids, by outermost range, by context.

    Args:
        root: shape (n,), the ranges that give their traces, negative where there is none or an unknown one.
        ids, has, one_root: as `external_ids` returns them.
        ranges: all ranges.
        starts: shape (n,), GPU start in ns.
    """
    one, one_id = one_root
    outermost = np.flatnonzero(ranges.nested & (ranges.root == ranges.number))
    in_context = ranges.is_context[outermost]
    contexts, outermost_only = outermost[in_context], outermost[~in_context]
    by_id, by_range = outermost_only[one[outermost_only]], outermost_only[~one[outermost_only]]
    external, index = _distinct(np.concatenate((one_id[by_id], ids[has])))
    trace_of = np.full(len(ranges), NONE, np.int64)
    trace_of[by_id] = index[: len(by_id)]
    trace_of[by_range] = len(external) + np.arange(len(by_range))
    context, context_index = _distinct_contexts(ranges.context[contexts])
    before = len(external) + len(by_range)
    trace_of[contexts] = before + context_index
    trace = np.full(len(root), NONE, np.int64)
    inside = np.flatnonzero(root >= 0)
    trace[inside] = trace_of[ranges.rows(root[inside])]
    trace[has] = index[len(by_id) :]
    never = np.iinfo(np.int64).max
    start_ns = np.full(before + len(context), never, np.int64)
    np.minimum.at(start_ns, trace_of[outermost], ranges.start_ns[outermost])
    start_ns[before:] = _of_id(context, start_ns[before:])
    rangeless = np.flatnonzero(has)[start_ns[trace[has]] == never]
    np.minimum.at(start_ns, trace[rangeless], starts[rangeless])
    return trace, Traces(
        external_id=np.concatenate((external, np.zeros(len(start_ns) - len(external), np.uint64))),
        root=np.concatenate(
            (np.full(len(external), NONE, np.int64), ranges.number[by_range], np.full(len(context), NONE, np.int64))
        ),
        context=np.concatenate((np.zeros(before, CONTEXT), context)),
        start_ns=start_ns,
        root_number=ranges.number[outermost],
        root_trace=trace_of[outermost],
    )


def _distinct_contexts(contexts: Table) -> tuple[Table, Int64]:
    """The distinct ones in order of their ids, and the place of each among them."""
    if not len(contexts):
        return contexts, np.zeros(0, np.int64)
    words = np.stack([contexts[name] for name in CONTEXT.names or ()], axis=1).astype(np.uint64)
    _, first, index = np.unique(words, axis=0, return_index=True, return_inverse=True)
    return contexts[first], index.reshape(-1)


def _of_id(contexts: Table, starts: Int64) -> Int64:
    """The earliest start among the contexts of one trace id, for each; they are in order of their ids."""
    if not len(contexts):
        return starts
    new = (contexts["high"][1:] != contexts["high"][:-1]) | (contexts["low"][1:] != contexts["low"][:-1])
    first = np.concatenate(([0], np.flatnonzero(new) + 1))
    return np.repeat(np.minimum.reduceat(starts, first), np.diff(np.append(first, len(starts))))


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

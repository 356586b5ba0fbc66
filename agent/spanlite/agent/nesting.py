"""Turns the boundaries of NVTX ranges into nested ranges, buffer by buffer."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from spanlite.agent.activity import Records
from spanlite.agent.boundaries import THREAD_MASK, Boundaries, Int64, marker_boundaries
from spanlite.agent.ranges import NONE, OPEN_NS, UNKNOWN, Ranges, Timeline
from spanlite.agent.tracecontext import CONTEXT

_RANGE = np.dtype(
    [
        ("number", "<i8"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("thread", "<u8"),
        ("name", "<u8"),
        ("depth", "<i8"),
        ("parent", "<i8"),
        ("outer", "<i8"),
        ("root", "<i8"),
        ("context", CONTEXT),
        ("nested", "?"),
        ("doubtful", "?"),
    ]
)
_EVENT = np.dtype([("thread", "<u8"), ("time_ns", "<i8"), ("at", "<i8"), ("innermost", "<i8")])
_Table = npt.NDArray[np.void]


@dataclass(slots=True)
class _Walked:
    """What one pass over boundaries found, by index of the boundary."""

    innermost: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)  # this and the next three of openings only
    parent: list[int] = field(default_factory=list)
    outer: list[int] = field(default_factory=list)
    root: list[int] = field(default_factory=list)
    closed: list[tuple[int, int, bool]] = field(default_factory=list)  # number, boundary, closed by an outer end
    unmatched: dict[int, int] = field(default_factory=dict)  # thread → the last boundary that ended the unseen


class Nesting:
    """Nests boundaries as they come in; numbers and open ranges carry over from one feed to the next.

    Boundaries are few (two a range, none a launch), and a stack has no vector form that also copes with broken
    nesting: so this is the one loop over records here, well under a microsecond a boundary.
    """

    def __init__(self) -> None:
        self._stacks: dict[int, list[int]] = {}
        self._within: dict[int, tuple[int, int]] = {}  # of open ranges: stage and root of what lies directly in them
        self._open_keys: dict[int, int] = {}
        self._key_of: dict[int, int] = {}
        self._outlived: set[int] = set()
        self._first: dict[int, int] = {}
        self._next = 0
        self._table: _Table = np.zeros(0, _RANGE)
        self._events: _Table = np.zeros(0, _EVENT)
        self._by_correlation = False
        self._unmatched = self._crossings = self._ignored = 0

    def feed(self, boundaries: Boundaries) -> Int64:
        """Takes boundaries that no thread passed before those of earlier calls.

        Returns:
            The numbers of the ranges that ended, in the order of their ends.
        """
        self._ignored += boundaries.ignored
        if not len(boundaries.opens):
            return np.zeros(0, np.int64)
        self._by_correlation = boundaries.correlation is not None
        walked = self._walk(boundaries)
        events = np.zeros(len(boundaries.opens), _EVENT)
        events["thread"] = boundaries.thread
        events["time_ns"] = boundaries.time_ns
        events["at"] = boundaries.time_ns if boundaries.correlation is None else boundaries.correlation
        events["innermost"] = walked.innermost
        self._open(boundaries, walked)
        numbers = self._close(boundaries, walked)
        self._hide(walked, events)
        in_thread = (events["thread"] & np.uint64(THREAD_MASK)) != 0
        self._events = np.concatenate((self._events, events[in_thread]))
        return numbers

    def ranges(self) -> Ranges:
        """All ranges and boundaries that are remembered."""
        columns: dict[str, Any] = {name: np.ascontiguousarray(self._table[name]) for name in _RANGE.names or ()}
        return Ranges(
            **columns,
            timelines={thread: self._timeline(thread) for thread in self._stacks},
            by_correlation=self._by_correlation,
            unmatched_ends=self._unmatched,
            crossings=self._crossings,
            ignored=self._ignored,
        )

    def forget(self, before_ns: int) -> None:
        """Drops boundaries before a time, once there are many of them, and the ended ranges that only they need.

        Launches before it have an unknown stage from now on.
        """
        old = self._events["time_ns"] < before_ns
        if old.sum() * 4 <= len(old):  # now and then is enough
            return
        for thread in list(self._stacks):
            mine = np.flatnonzero(self._events["thread"] == thread)
            gone = mine[old[mine]]
            if gone.size == mine.size and not self._stacks[thread]:
                del self._stacks[thread]  # threads come and go
                self._first.pop(thread, None)
            elif gone.size:
                old[gone[-1]] = False  # the newest of them says what the thread was in from there on
                self._first[thread] = UNKNOWN
        self._events = self._events[~old]
        needed = {number for stack in self._stacks.values() for number in stack} | set(self._open_keys.values())
        parents = dict(zip(self._table["number"].tolist(), self._table["parent"].tolist(), strict=True))
        fresh = set(self._events["innermost"].tolist()) - {NONE, UNKNOWN}
        while fresh:
            needed |= fresh
            fresh = {parents[number] for number in fresh} - needed - {NONE}
        self._table = self._table[np.isin(self._table["number"], sorted(needed))]

    def _walk(self, boundaries: Boundaries) -> _Walked:
        out = _Walked()
        columns = (boundaries.thread.tolist(), boundaries.opens.tolist(), boundaries.key.tolist())
        context = repeat(False) if boundaries.context is None else (boundaries.context["remote_parent"] != 0).tolist()
        for at, (thread, opens, key, is_context) in enumerate(zip(*columns, context, strict=False)):
            stack = self._stacks.setdefault(thread, []) if thread & THREAD_MASK else []
            if opens:
                number = self._next
                self._next += 1
                out.depth.append(len(stack))
                out.parent.append(stack[-1] if stack else NONE)
                outer, root = self._within[stack[-1]] if stack else (NONE, number)
                root = (number if is_context else root) if thread & THREAD_MASK else NONE
                out.outer.append(outer)
                out.root.append(root)
                stack.append(number)
                if thread & THREAD_MASK:
                    self._within[number] = (outer if is_context else number), root
                if key:
                    self._open_keys[key] = number
                    self._key_of[number] = key
            else:
                self._end(thread, key, at, out)
            out.innermost.append(stack[-1] if stack else NONE)
        return out

    def _end(self, thread: int, key: int, at: int, out: _Walked) -> None:
        """Ends the range of a key, or the innermost one; with it whatever was opened inside and is still open."""
        stack = self._stacks.setdefault(thread, []) if thread & THREAD_MASK else []
        number = self._open_keys.pop(key, None) if key else (stack[-1] if stack else None)
        if number is None:
            if key in self._outlived:
                self._outlived.discard(key)
            else:
                self._unmatched += 1
                out.unmatched[thread] = at
            return
        self._key_of.pop(number, None)
        while number in stack and stack[-1] != number:
            inner = stack.pop()
            del self._within[inner]
            inner_key = self._key_of.pop(inner, 0)
            self._open_keys.pop(inner_key, None)
            self._outlived.add(inner_key)
            self._crossings += 1
            out.closed.append((inner, at, True))
        if number in stack:
            stack.pop()
            del self._within[number]
        out.closed.append((number, at, False))

    def _open(self, boundaries: Boundaries, walked: _Walked) -> None:
        """Adds the rows of the ranges that were opened."""
        opens = np.flatnonzero(boundaries.opens)
        rows = np.zeros(opens.size, _RANGE)
        rows["number"] = np.arange(self._next - opens.size, self._next)
        rows["start_ns"] = boundaries.time_ns[opens]
        rows["end_ns"] = OPEN_NS
        rows["thread"] = boundaries.thread[opens]
        rows["name"] = boundaries.name[opens]
        rows["depth"] = walked.depth
        rows["parent"], rows["outer"], rows["root"] = walked.parent, walked.outer, walked.root
        if boundaries.context is not None:
            rows["context"] = boundaries.context[opens]
        rows["nested"] = (rows["thread"] & np.uint64(THREAD_MASK)) != 0
        self._table = np.concatenate((self._table, rows))

    def _close(self, boundaries: Boundaries, walked: _Walked) -> Int64:
        """Enters the ends of the ranges that were closed."""
        numbers = np.array([number for number, _, _ in walked.closed], np.int64)
        rows = np.searchsorted(self._table["number"], numbers)
        self._table["end_ns"][rows] = boundaries.time_ns[[at for _, at, _ in walked.closed]]
        self._table["doubtful"][rows] |= np.array([early for _, _, early in walked.closed], np.bool_)
        return numbers

    def _hide(self, walked: _Walked, events: _Table) -> None:
        """An end without a start ends a range that nobody saw: outside others, its thread was in that until then."""
        for thread, at in walked.unmatched.items():
            self._first[thread] = UNKNOWN
            for table in (self._events, events[:at]):
                hidden = (table["thread"] == thread) & (table["innermost"] == NONE)
                table["innermost"][hidden] = UNKNOWN

    def _timeline(self, thread: int) -> Timeline:
        mine = self._events[self._events["thread"] == thread]
        first = self._first.get(thread, NONE)
        return Timeline(
            # Later boundaries are never earlier; clamping keeps a clock that stepped back from breaking searches.
            at=np.maximum.accumulate(mine["at"]),
            innermost=np.concatenate((np.array([first], np.int64), mine["innermost"])),
        )


def ranges_from_markers(markers: Records) -> Ranges:
    """The ranges of one recording, from its marker records (``Activity.markers``)."""
    return ranges_from_boundaries(marker_boundaries(markers))


def ranges_from_boundaries(boundaries: Boundaries) -> Ranges:
    """The ranges of one recording, from boundaries of either source."""
    nesting = Nesting()
    nesting.feed(boundaries)
    return nesting.ranges()

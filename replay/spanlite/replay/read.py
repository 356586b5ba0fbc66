"""Archive to batches in the order of a plan, row group by row group, in bounded memory.

Each file is sorted by time in the large, so a plan walks through all of them side by side: a window of batches is
chosen, each row group that holds rows of it is read once for it, and kept while there is room if later windows need it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Int64
from spanlite.replay.assemble import assemble
from spanlite.replay.blocks import COLUMNS, BatchKey, Block, Rows
from spanlite.replay.plan import Plan, read_group
from spanlite.replay.ports import Archive
from spanlite.replay.selection import Selection
from spanlite.replay.tables import Tables

WINDOW_SPANS = 1 << 19
"""Spans whose rows are gathered together; a batch that has more is gathered alone."""
CACHE_SPANS = 1 << 20
"""Spans of decoded row groups kept for later windows."""
OPEN_GROUPS = 64
"""Row groups kept for later windows, however small."""
_Group = tuple[int, int]


@dataclass
class Reading:
    """What reading took.

    Attributes:
        groups_read: row groups read, those that had to be read again among them.
        most_groups: most of them held at one time.
        most_spans: most spans held at one time, in row groups.
    """

    groups_read: int = 0
    most_groups: int = 0
    most_spans: int = 0


class Reader:
    """Batches of an archive by a plan.

    Args:
        archive: where from.
        plan: which, in which order.
        selection: that of the plan.
        renumber: see `assemble`.
        window_spans, cache_spans, open_groups: bounds of memory.
    """

    def __init__(
        self,
        archive: Archive,
        plan: Plan,
        selection: Selection,
        *,
        renumber: bool = False,
        window_spans: int = WINDOW_SPANS,
        cache_spans: int = CACHE_SPANS,
        open_groups: int = OPEN_GROUPS,
    ) -> None:
        self._archive = archive
        self._plan = plan
        self._selection = selection
        self._renumber = renumber
        self._window_spans = window_spans
        self._cache_spans = cache_spans
        self._open_groups = open_groups
        self._tables = Tables()
        self._columns = list(dict.fromkeys([*COLUMNS, *selection.columns]))
        self._kept: OrderedDict[_Group, Block] = OrderedDict()
        self._last_use = self._last_uses()
        self.reading = Reading()

    def batches(self, begin: int = 0, *, fill: bool = False) -> Iterator[tuple[int, list[Batch]]]:
        """Number in the plan, and parts, of each batch from number `begin` on; `fill`: see `assemble`.

        Raises:
            ArchiveError: a file is damaged, or has changed since the plan was made.
        """
        total = len(self._plan)
        spans = np.cumsum(self._plan.spans)
        while begin < total:
            before = int(spans[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(spans, before + self._window_spans, side="right")), begin + 1)
            gathered = self._gather(begin, end)
            for number in range(begin, end):
                parts = gathered.pop(self._key(number))
                yield number, list(assemble(parts, self._tables, renumber=self._renumber, fill=fill))
            begin = end

    def _key(self, number: int) -> BatchKey:
        plan = self._plan
        return plan.producers[plan.producer[number]].tobytes(), int(plan.sequence[number])

    def _gather(self, begin: int, end: int) -> dict[BatchKey, list[Rows]]:
        """The rows of the batches begin … end - 1, each row group read once."""
        plan = self._plan
        pieces = np.arange(plan.piece_begin[begin], plan.piece_begin[end])
        owner = np.repeat(np.arange(begin, end), np.diff(plan.piece_begin[begin : end + 1]))
        wanted: dict[_Group, list[int]] = {}
        for piece, number in zip(pieces.tolist(), owner.tolist(), strict=True):
            wanted.setdefault((int(plan.piece_file[piece]), int(plan.piece_group[piece])), []).append(number)
        gathered: dict[BatchKey, list[Rows]] = {self._key(number): [] for number in range(begin, end)}
        # Those that are there come first, so that none of them is put out to make room and read again.
        for group in sorted(wanted, key=lambda group: (group not in self._kept, group)):
            block = self._block(group)
            last = self._last_use[group] < end
            for number in wanted[group]:
                rows = block.rows_of(self._key(number))
                gathered[self._key(number)].append(rows if last else rows.copied())
            self._settle(group, keep=not last)
        return gathered

    def _block(self, group: _Group) -> Block:
        """A row group, decoded; it stays among those kept until `_settle`."""
        if group in self._kept:
            self._kept.move_to_end(group)
            return self._kept[group]
        self._make_room()
        source = self._archive.sources[group[0]]
        with self._archive.open(source) as file:
            table = read_group(self._archive, source, file, group[1], self._columns)
        block = Block(table, self._tables, self._selection, self._plan.traces)
        self._kept[group] = block
        self.reading.groups_read += 1
        self.reading.most_groups = max(self.reading.most_groups, len(self._kept))
        self.reading.most_spans = max(self.reading.most_spans, sum(each.rows for each in self._kept.values()))
        return block

    def _make_room(self) -> None:
        while self._kept and (
            len(self._kept) >= self._open_groups or sum(block.rows for block in self._kept.values()) > self._cache_spans
        ):
            self._kept.popitem(last=False)

    def _settle(self, group: _Group, *, keep: bool) -> None:
        if not keep:
            del self._kept[group]

    def _last_uses(self) -> dict[_Group, int]:
        """The number of the last batch that has rows in each row group."""
        plan = self._plan
        owner: Int64 = np.repeat(np.arange(len(plan)), np.diff(plan.piece_begin))
        return {
            (file, group): number
            for file, group, number in zip(
                plan.piece_file.tolist(), plan.piece_group.tolist(), owner.tolist(), strict=True
            )
        }

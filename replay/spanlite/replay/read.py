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
from spanlite.contract.errors import ArchiveError
from spanlite.replay.assemble import Head, assemble
from spanlite.replay.blocks import COLUMNS, Block, Part
from spanlite.replay.plan import Plan, read_group
from spanlite.replay.ports import Archive
from spanlite.replay.runs import change_points
from spanlite.replay.selection import Selection
from spanlite.replay.tables import Origin, Tables
from spanlite.replay.window import Window, arranged

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


@dataclass(frozen=True, slots=True)
class Gathered:
    """Batches of a plan, one after the other, with all of their rows.

    Attributes:
        begin: number of the first in the plan.
        producer, sequence, session, emit_ns, origin: of each batch.
        window: the rows.
    """

    begin: int
    producer: list[bytes]
    sequence: list[int]
    session: list[int]
    emit_ns: list[int]
    origin: list[Origin]
    window: Window

    def heads(self) -> list[Head]:
        """What each batch says beside its rows."""
        columns = (self.producer, self.sequence, self.session, self.emit_ns, self.origin)
        return [*map(Head, *columns)]


class Reader:
    """Batches of an archive by a plan.

    Args:
        archive: where from.
        plan: which, in which order.
        selection: that of the plan.
        renumber: see `assemble`.
        window_spans, cache_spans, open_groups: bounds of memory.

    Attributes:
        tables: what the rows of windows point at.
        renumber: as above.
        reading: what reading took so far.
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
        self.renumber = renumber
        self._window_spans = window_spans
        self._cache_spans = cache_spans
        self._open_groups = open_groups
        self.tables = Tables()
        self.reading = Reading()
        self._columns = list(dict.fromkeys([*COLUMNS, *selection.columns]))
        self._kept: OrderedDict[_Group, Block] = OrderedDict()
        self._producers = {name.tobytes(): number for number, name in enumerate(plan.producers)}
        self._owner: Int64 = np.repeat(np.arange(len(plan)), np.diff(plan.piece_begin))
        self._places = self._places_in_groups()
        groups = zip(plan.piece_file.tolist(), plan.piece_group.tolist(), strict=True)
        self._last_use: dict[_Group, int] = dict(zip(groups, self._owner.tolist(), strict=True))

    def batches(self, begin: int = 0, *, fill: bool = False) -> Iterator[tuple[int, list[Batch]]]:
        """Number in the plan, and parts, of each batch from number `begin` on; `fill`: see `assemble`.

        Raises:
            ArchiveError: a file is damaged, or has changed since the plan was made.
        """
        for gathered in self.windows(begin):
            window, heads = gathered.window, gathered.heads()
            begin = gathered.begin
            del gathered  # so that it is gone when the next one is made
            yield from enumerate(assemble(window, heads, self.tables, renumber=self.renumber, fill=fill), begin)
            del window

    def windows(self, begin: int = 0) -> Iterator[Gathered]:
        """The batches from number `begin` on, many at a time.

        Raises:
            ArchiveError: a file is damaged, or has changed since the plan was made.
        """
        total = len(self._plan)
        spans = np.cumsum(self._plan.spans)
        while begin < total:
            before = int(spans[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(spans, before + self._window_spans, side="right")), begin + 1)
            yield self._gather(begin, end)
            begin = end

    def _gather(self, begin: int, end: int) -> Gathered:
        """The batches begin … end - 1, each row group read once."""
        plan, count = self._plan, end - begin
        pieces = slice(int(plan.piece_begin[begin]), int(plan.piece_begin[end]))
        owner, place = self._owner[pieces] - begin, self._places[pieces]
        parts: list[Part] = []
        owners: list[Int64] = []
        session, emit_ns = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.int64)
        origin: list[Origin | None] = [None] * count
        # Those that are there come first, so that none of them is put out to make room and read again.
        wanted = sorted(self._by_group(pieces), key=lambda each: (each[0] not in self._kept, each[0]))
        for group, at in wanted:
            block = self._block(group)
            of, there = owner[at], place[at]
            self._check(block, group, begin + of, there)
            last = self._last_use[group] < end
            parts.append(block.part(there, own=not last))
            owners.append(of)
            session[of], emit_ns[of] = block.session[there], block.emit_ns[there]
            for number, said in zip(of.tolist(), block.origin[there].tolist(), strict=True):
                origin[number] = block.origins[said]
            self._settle(group, keep=not last)
        return Gathered(
            begin,
            [plan.producers[at].tobytes() for at in plan.producer[begin:end].tolist()],
            plan.sequence[begin:end].tolist(),
            session.tolist(),
            emit_ns.tolist(),
            [each for each in origin if each is not None],
            arranged(parts, owners, count),
        )

    def _by_group(self, pieces: slice) -> list[tuple[_Group, Int64]]:
        """Each row group that has rows of some pieces, and which of them."""
        file, group = self._plan.piece_file[pieces], self._plan.piece_group[pieces]
        order = np.lexsort((group, file))
        begins = change_points(file[order], group[order])
        at = np.split(order, begins[1:])
        return [((int(file[each[0]]), int(group[each[0]])), each) for each in at]

    def _places_in_groups(self) -> Int64:
        """The place of each piece among those of its row group, by producer and sequence, as `Block` has them."""
        plan, owner = self._plan, self._owner
        keys = (plan.sequence[owner], plan.producer[owner], plan.piece_group, plan.piece_file)
        order = np.lexsort(keys)
        begins = change_points(plan.piece_file[order], plan.piece_group[order])
        places = np.empty(len(order), dtype=np.int64)
        counts = np.diff(np.append(begins, len(order)))
        places[order] = np.arange(len(order)) - np.repeat(begins, counts)
        return places

    def _check(self, block: Block, group: _Group, numbers: Int64, places: Int64) -> None:
        """Raises ArchiveError where a row group does not hold the batches that the plan has found in it."""
        plan = self._plan
        if int(places.max()) < len(block.producer):
            same = block.producer[places] == plan.producer[numbers]
            if bool((same & (block.sequence[places] == plan.sequence[numbers])).all()):
                return
        name = self._archive.sources[group[0]].name
        raise ArchiveError(f"{self._archive.where}/{name}: has changed since the replay began; start it again")

    def _block(self, group: _Group) -> Block:
        """A row group, decoded; it stays among those kept until `_settle`."""
        if group in self._kept:
            self._kept.move_to_end(group)
            return self._kept[group]
        self._make_room()
        source = self._archive.sources[group[0]]
        with self._archive.open(source) as file:
            table = read_group(self._archive, source, file, group[1], self._columns, runs=True)
        traces = self._plan.traces
        block = Block(table, self.tables, self._selection, producers=self._producers, traces=traces)
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

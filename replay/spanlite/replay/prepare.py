"""A replay from its settings: the plan, and its items one after the other, ready to be handed on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.deliveries import Ready
from spanlite.replay.identity import Keys, Names
from spanlite.replay.items import Turn
from spanlite.replay.plan import make_plan
from spanlite.replay.ports import Archive, Position
from spanlite.replay.read import Reader
from spanlite.replay.selection import EVERYTHING, Selection
from spanlite.replay.shift import check_offset, offset_ns


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides which bytes a replay emits.

    Attributes:
        selection: which spans.
        order: "arrival" or "start", see `make_plan`.
        ids: "keep" or "remap".
        shift: see `shift.offset_ns`.
        loops: turns; 0 for ever.
        seed: of the mapped ids.
        run: name of the run; "" for one that follows from everything else.
        period_ns: by how much each turn is moved on; 0 for what `Replay.period_ns` tells.
        most_batches, most_spans: ends it before the batch with which there would be more, over all turns; 0: no end.
    """

    selection: Selection = EVERYTHING
    order: str = "arrival"
    ids: str = "keep"
    shift: str = "keep"
    loops: int = 1
    seed: int = 0
    run: str = ""
    period_ns: int = 0
    most_batches: int = 0
    most_spans: int = 0

    def __post_init__(self) -> None:
        for flag, value in (("--period", self.period_ns), ("--limit-batches", self.most_batches)):
            if value < 0:
                raise UsageError(f"{flag} {value}: write more than 0")
        if self.most_spans < 0:
            raise UsageError(f"--limit-spans {self.most_spans}: write more than 0")
        if self.loops < 0:
            raise UsageError(f"--loop {self.loops}: write how many turns, or 0 for turns without end")
        if self.loops != 1 and self.ids == "keep":
            raise UsageError("--loop repeats every id, and its turns would be taken for one; take --ids remap with it")

    def facts(self) -> dict[str, Any]:
        """The settings as JSON values."""
        facts = asdict(self)
        facts["selection"]["traces"] = [trace.hex() for trace in self.selection.traces]
        return json.loads(json.dumps(facts))  # type: ignore[no-any-return]  # tuples to lists, as they come back


class Replay:
    """A replay that has been planned.

    Attributes:
        settings: its own.
        plan: batches in the order of emission.
        run: name of the run.
        end: where it ends early; None for the end of the last turn.
        loops: turns, the last of which may be cut; 0 without end.
        offset_ns: by how much times are moved in the first turn.
        period_ns: and by how much more in each further one: from the first start to the last and a mean gap, but no
            less than to the last end.
    """

    def __init__(
        self,
        archive: Archive,
        settings: Settings,
        *,
        now_ns: int,
        offset: int | None = None,
        count_traces: bool = False,
    ) -> None:
        """Reads what the plan needs.

        Args:
            archive: where from.
            settings: what.
            now_ns: now, Unix nanoseconds.
            offset: by how much times are moved, if that was decided before.
            count_traces: see `make_plan`.

        Raises:
            ArchiveError: a file cannot be read.
            ReplayError: nothing is selected.
            UsageError: the shift is none, or too far.
        """
        self.archive = archive
        self.settings = settings
        self.plan = make_plan(archive, settings.selection, order=settings.order, count_traces=count_traces)
        if not len(self.plan):
            raise ReplayError(
                f"{archive.where}: no span is selected; widen the selection, or see `spanlite archive ls`"
            )
        self.run = settings.run or self._run()
        first, last = int(self.plan.start_ns.min()), int(self.plan.end_ns.max())
        self.offset_ns = offset_ns(settings.shift, first_ns=first, now_ns=now_ns) if offset is None else offset
        length = int(self.plan.start_ns.max()) - first
        self.period_ns = settings.period_ns or max(length + max(length // max(len(self.plan) - 1, 1), 1), last - first)
        if settings.loops != 1 and self.period_ns < last - first:
            raise UsageError(f"--period {self.period_ns} ns: a turn is {last - first} ns long; write no less than that")
        self.end, self.loops = self._end()
        check_offset(
            self.offset_ns + (max(self.loops, 1) - 1) * self.period_ns if self.offset_ns > 0 else self.offset_ns,
            first_ns=first,
            last_ns=last,
        )

    @property
    def spans(self) -> int:
        """Spans of one turn."""
        return int(self.plan.spans.sum())

    @property
    def all_batches(self) -> int | None:
        """Batches of all turns; None without end."""
        if self.end is None:
            return len(self.plan) * self.loops or None
        return self.end.loop * len(self.plan) + self.end.batch

    @property
    def all_spans(self) -> int | None:
        """Spans of all turns; None without end."""
        if self.end is None:
            return self.spans * self.loops or None
        return self.end.loop * self.spans + int(self.plan.spans[: self.end.batch].sum())

    def _end(self) -> tuple[Position | None, int]:
        """Where the settings end it early, if they do, and how many turns there are until then (0 without end)."""
        wanted, batches = self.settings, len(self.plan)
        ends = []
        if wanted.most_batches:
            ends.append(Position(*divmod(wanted.most_batches, batches)))
        if wanted.most_spans:
            loop, left = divmod(wanted.most_spans, self.spans)
            ends.append(Position(loop, int(np.searchsorted(np.cumsum(self.plan.spans), left, side="right"))))
        if not ends or (wanted.loops and min(ends) >= Position(wanted.loops)):
            return None, wanted.loops
        end = min(ends)
        if end == Position():
            raise UsageError(f"--limit-spans {wanted.most_spans}: the first batch has {self.plan.spans[0]} spans")
        return end, end.loop + (end.batch > 0)

    def ready(
        self, start: Position | None = None, names: Mapping[str, int] | None = None, *, reader: Reader | None = None
    ) -> Iterator[Ready]:
        """All items from one on.

        Args:
            start: where to begin; at the beginning by default.
            names: sequences given before, by producer in hex.
            reader: where batches come from, if not from one of its own.

        Raises:
            ArchiveError: a file is damaged or gone.
            UsageError: a time would not fit 64 bits.
        """
        begin = start or Position()
        turn = self.turns(begin, names, reader=reader)
        loop = begin.loop
        while not self.loops or loop < self.loops:
            yield from turn(loop)
            loop += 1

    def turns(
        self, begin: Position, names: Mapping[str, int] | None = None, *, reader: Reader | None = None
    ) -> Callable[[int], Iterator[Ready]]:
        """Items as `ready` gives them, turn by turn: call it with the number of each, in order."""
        whole = self.settings.selection.everything
        kept = whole and self.settings.ids == "keep" and not self.offset_ns
        given = {bytes.fromhex(name): count for name, count in (names or {}).items()}
        naming = Names(self.run, self.settings.seed, kept=kept, counts=given)
        source = reader or self.reader()

        def turn(loop: int) -> Iterator[Ready]:
            keys = Keys.of(self.run, self.settings.seed, loop) if self.settings.ids == "remap" else None
            offset = self.offset_ns + loop * self.period_ns
            made = Turn(self.plan, source.tables, loop, self.run, keys, offset, naming, source.renumber)
            for gathered in source.windows(begin.batch if loop == begin.loop else 0):
                if self.end is not None and Position(loop, gathered.begin) >= self.end:
                    return
                items = made.items(gathered, begin, self.end)
                del gathered  # so that it is gone when the next one is made
                yield from items
                del items

        return turn

    def reader(self, **bounds: int) -> Reader:
        """A reader of the plan; `bounds` are those of memory."""
        selection = self.settings.selection
        renumber = self.settings.ids == "remap" and not selection.everything
        return Reader(self.archive, self.plan, selection, renumber=renumber, **bounds)

    def _run(self) -> str:
        said = json.dumps([self.settings.facts(), self.plan.digest], sort_keys=True)
        return hashlib.blake2b(said.encode(), digest_size=6).hexdigest()

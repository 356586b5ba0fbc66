"""Gathered batches to items of one turn, ready to be handed on: mapped, moved, named and encoded.

The library encodes many batches at a time. Where it is missing, or a time does not fit 64 bits, each batch is made and
encoded by itself, which gives the same bytes and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.body import KINDS
from spanlite.contract.codec import Facts, encode_batch, encode_message, encode_origin
from spanlite.contract.columns import Table
from spanlite.contract.tables import RECORDS
from spanlite.native import Library, library
from spanlite.native.bodies import Bodies
from spanlite.replay.assemble import Head, piece
from spanlite.replay.deliveries import Ready, digest_of
from spanlite.replay.identity import Keys, Names, remapped, remapped_traces, stamp, stamped
from spanlite.replay.plan import Plan
from spanlite.replay.ports import Item, Position
from spanlite.replay.read import Gathered
from spanlite.replay.shift import fits, moved_header, moved_traces, shifted
from spanlite.replay.tables import Origin, Tables

_ROWS_AT_ONCE = 1 << 16
_RUNS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Turn:
    """How the batches of one turn go out.

    Attributes:
        plan: what they are numbered by.
        tables: what their rows point at.
        loop: number of the turn.
        run: its name.
        keys: what ids are mapped with; None where they are kept.
        offset: by how much times are moved.
        naming: names that were given.
        renumber: see `assemble`.
    """

    plan: Plan
    tables: Tables
    loop: int
    run: str
    keys: Keys | None
    offset: int
    naming: Names
    renumber: bool

    def items(self, gathered: Gathered, first: Position, end: Position | None) -> Iterator[Ready]:
        """The items of gathered batches from a position on, up to another.

        Raises:
            UsageError: a time would not fit 64 bits.
        """
        window = gathered.window
        runs = window.whole() if self.renumber else window.runs
        bound = np.append(runs.begin, window.bound[-1])
        made = self._encoded(gathered, bound)
        origins: dict[int, _Said] = {}
        part, before, begun = 0, -1, False
        batches, rows, bounds = runs.batch.tolist(), runs.row.tolist(), bound.tolist()
        last = np.append(runs.batch[1:] != runs.batch[:-1], True).tolist()
        for at, (batch, row) in enumerate(zip(batches, rows, strict=True)):
            part = part + 1 if batch == before else 0
            before = batch
            position = Position(self.loop, gathered.begin + batch, part)
            if end is not None and position >= end:
                return
            one = next(made, None) if made is not None else None
            begun = begun or position >= first
            if not begun:
                continue
            facts = _Run(batch, row, bounds[at], bounds[at + 1])
            if one is None or not self._fit(one):
                yield self._slowly(gathered, facts, position, last=last[at])
            else:
                yield self._swiftly(gathered, facts, position, one, origins, last=last[at])

    def _encoded(self, gathered: Gathered, bound: NDArray[np.int64]) -> Iterator[_Body] | None:
        """What the library makes of each run, some at a time; None where it cannot be asked."""
        fast, traces = library(), gathered.window.traces
        known = traces["start_ns"][traces["start_ns"] != 0]
        if fast is None or (self.offset and len(known) and not fits(int(known.min()), int(known.max()), self.offset)):
            return None
        told = remapped_traces(traces, self.keys) if self.keys is not None else traces
        told = moved_traces(told, self.offset) if self.offset else told
        return self._by_library(fast, gathered, told, bound)

    def _by_library(self, fast: Library, gathered: Gathered, told: Table, bound: NDArray[np.int64]) -> Iterator[_Body]:
        tables, window = self.tables, gathered.window
        entries = (tables.configs.table, tables.places.table, tables.nodes.table, window.traces)
        shown = (*entries[:3], told)
        texts = tables.texts.utf8(tables.texts_of(window.columns["config"], window.columns["stage"]))
        bodies = Bodies(fast, window.columns, [*zip(RECORDS, entries, shown, strict=True)], texts, KINDS)
        begin, runs = 0, len(bound) - 1
        while begin < runs:
            rows_end = int(np.searchsorted(bound, bound[begin] + _ROWS_AT_ONCE, side="right")) - 1
            end = max(min(rows_end, begin + _RUNS_AT_ONCE, runs), begin + 1)
            said, made = bodies.encode(bound[begin : end + 1])
            for facts, body in zip(said.tolist(), made, strict=True):
                yield _Body._make((*facts, body))
            begin = end

    def _fit(self, body: _Body) -> bool:
        """Whether the rows' times are within bounds when moved."""
        return not body.odd and fits(body.first_start, max(body.last_start, body.last_end), self.offset)

    def _swiftly(
        self, gathered: Gathered, run: _Run, position: Position, body: _Body, origins: dict[int, _Said], *, last: bool
    ) -> Ready:
        batch, offset = run.batch, self.offset
        said = self._origin(gathered.origin[batch], gathered.emit_ns[batch], origins)
        part = position.part
        name = self.naming.name(gathered.producer[batch], gathered.sequence[batch], loop=self.loop, part=part)
        facts = Facts(
            *name,
            gathered.session[batch] ^ (self.keys.session if self.keys is not None else 0),
            run.row,
            run.end - run.begin,
            gathered.emit_ns[batch] + offset,
            body.first_start + offset,
            body.last_gpu_end + offset,
        )
        payload = encode_message(facts, said.encoded, body.data)
        emitted = _Emitted(*name, said.key, facts.rows, body.first_start + offset, body.last_end + offset)
        return self._ready(position, emitted, payload, last=last)

    def _origin(self, origin: Origin, emit_ns: int, known: dict[int, _Said]) -> _Said:
        """What is said of where batches are from, encoded once for all that are from there."""
        _, clock = moved_header(emit_ns, origin.clock, self.offset)
        said = known.get(id(origin))
        if said is None:
            resource = stamp(origin.resource, self.run)
            encoded = encode_origin(clock, origin.sampling, resource, origin.gpus)
            said = known[id(origin)] = _Said(encoded, _key(origin))
        return said

    def _slowly(self, gathered: Gathered, run: _Run, position: Position, *, last: bool) -> Ready:
        """An item whose batch is made and encoded by itself."""
        at = run.batch
        head = Head(
            gathered.producer[at],
            gathered.sequence[at],
            gathered.session[at],
            gathered.emit_ns[at],
            gathered.origin[at],
        )
        batch = piece(gathered.window, head, self.tables, row=run.row, begin=run.begin, end=run.end)
        if self.keys is not None:
            batch = remapped(batch, self.keys)
        batch = shifted(batch, self.offset)
        batch = stamped(self.naming.named(batch, loop=self.loop, part=position.part), self.run)
        first_ns, last_ns = int(batch.columns.start_ns.min()), int(batch.end_ns.max())
        emitted = _Emitted(batch.producer, batch.sequence, _key(head.origin), len(batch.columns), first_ns, last_ns)
        return self._ready(position, emitted, encode_batch(batch), last=last)

    def _ready(self, position: Position, emitted: _Emitted, payload: bytes, *, last: bool) -> Ready:
        number, plan = position.batch, self.plan
        item = Item(
            position=position,
            producer=emitted.producer,
            sequence=emitted.sequence,
            key=emitted.key,
            spans=emitted.spans,
            arrival_ns=int(plan.arrival_ns[number]),
            start_ns=int(plan.start_ns[number]),
            first_ns=emitted.first_ns,
            last_ns=emitted.last_ns,
        )
        following = Position(self.loop, number, position.part + 1)
        if last:
            following = Position(self.loop, number + 1) if number + 1 < len(plan) else Position(self.loop + 1)
        return Ready(item, payload, digest_of(payload), following, not self.naming.keeps(position.part))


class _Run(NamedTuple):
    """Rows begin … end - 1 of a window, of one batch; the first one's number is `row`."""

    batch: int
    row: int
    begin: int
    end: int


class _Body(NamedTuple):
    """What the library has made of a run; see `native.bodies.SAID`."""

    first_start: int
    last_start: int
    last_end: int
    last_gpu_end: int
    odd: int
    data: memoryview


class _Emitted(NamedTuple):
    """What an item says of the batch that goes out."""

    producer: bytes
    sequence: int
    key: bytes
    spans: int
    first_ns: int
    last_ns: int


class _Said(NamedTuple):
    """An origin as messages have it, and the key of its messages."""

    encoded: bytes
    key: bytes


def _key(origin: Origin) -> bytes:
    return f"{origin.resource.get('host.name', '')}/{','.join(gpu.uuid for gpu in origin.gpus)}".encode()

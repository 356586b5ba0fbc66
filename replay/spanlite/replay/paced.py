"""A replay by a pace: its items, when each is due, and the pacer that lets them go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from spanlite.replay.ahead import ReadAhead
from spanlite.replay.deliveries import Ready
from spanlite.replay.emission import Emission
from spanlite.replay.pacing.late import LatePolicy
from spanlite.replay.pacing.pacer import LEAD_NS, Pacer, Progress, Summary
from spanlite.replay.pacing.quiet import quiet
from spanlite.replay.pacing.schedule import Chunk, Due, Schedule, scheduled
from spanlite.replay.pacing.settings import Pace
from spanlite.replay.pacing.waiting import Waiter
from spanlite.replay.ports import Position
from spanlite.replay.prepare import Replay

_CHUNK_ITEMS = 256
_CHUNK_SPANS = 1 << 17
_CHUNKS_AHEAD = 2


@dataclass(frozen=True)
class Pacing:
    """When items go.

    Attributes:
        pace: due times; its loops are those of the replay.
        waiter: how to wait for them.
        late: what to do with late ones.
        by_spans: whether a limit counts spans; else batches.
    """

    pace: Pace
    waiter: Waiter
    late: LatePolicy
    by_spans: bool = False


def emit_paced(
    replay: Replay,
    emission: Emission,
    pacing: Pacing,
    *,
    stopped: Callable[[], bool],
    progress: Callable[[Progress], object] | None = None,
) -> Summary:
    """Emits all items that are not acknowledged yet, each when it is due.

    A replay that is gone on with keeps the distances that its items have from the first one of all.

    Raises:
        SpanliteError: reading or sending failed.
    """
    begin = emission.account.next
    pace = replace(pacing.pace, loops=max(replay.settings.loops - begin.loop, 0))
    if begin != Position(begin.loop):
        pace = replace(pace, origin_ns=int(_times(replay).min()))
    turn = replay.turns(begin, emission.account.names)
    due = scheduled(Schedule(pace), lambda number: _chunks(replay, turn(begin.loop + number), by_spans=pacing.by_spans))
    pacer: Pacer[Ready] = Pacer(
        pacing.waiter,
        emission.emit,
        policy=pacing.late,
        stopped=stopped,
        progress=progress,
        duration_ns=pace.duration_ns,
    )
    with ReadAhead(due, most=_CHUNKS_AHEAD) as made, quiet():
        first = next(made, None)
        if first is None:
            return Summary()
        start_ns = pacing.waiter.clock.monotonic_ns() + LEAD_NS - int(first.due_ns[0])
        return pacer.run(_handed(emission, chain([first], made)), start_ns=start_ns)


def due_in_ns(replay: Replay, pacing: Pacing) -> int | None:
    """When the last item is due after the first; None for a replay without end."""
    schedule, times = Schedule(replace(pacing.pace, loops=replay.settings.loops)), _times(replay)
    if not replay.settings.loops and pacing.pace.duration_ns is None and pacing.pace.most_items is None:
        return None
    weights = replay.plan.spans if pacing.by_spans else None
    last = 0
    for due in scheduled(schedule, lambda _: [Chunk(times, range(len(times)), weights)]):
        last = int(due.due_ns[-1])
    return last


def _handed(emission: Emission, chunks: Iterable[Due[Ready]]) -> Iterator[Due[Ready]]:
    """The chunks, whose items the emission is told of before the pacer has them."""
    for chunk in chunks:
        yield Due(chunk.due_ns, list(emission.handed(chunk.items)))


def _times(replay: Replay) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    plan = replay.plan
    return plan.arrival_ns if replay.settings.order == "arrival" else plan.start_ns


def _chunks(replay: Replay, items: Iterable[Ready], *, by_spans: bool) -> Iterator[Chunk[Ready]]:
    """Items in chunks that bound what is in memory."""
    held: list[Ready] = []
    spans = 0
    for ready in items:
        held.append(ready)
        spans += len(ready.item.batch.columns)
        if len(held) >= _CHUNK_ITEMS or spans >= _CHUNK_SPANS:
            yield _chunk(replay, held, by_spans=by_spans)
            held, spans = [], 0
    if held:
        yield _chunk(replay, held, by_spans=by_spans)


def _chunk(replay: Replay, items: list[Ready], *, by_spans: bool) -> Chunk[Ready]:
    by_arrival = replay.settings.order == "arrival"
    times = [ready.item.arrival_ns if by_arrival else ready.item.start_ns for ready in items]
    weights = np.array([len(ready.item.batch.columns) for ready in items], np.int64) if by_spans else None
    return Chunk(np.array(times, np.int64), items, weights)

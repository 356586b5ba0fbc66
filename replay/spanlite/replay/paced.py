"""A replay by a pace: its items, when each is due, and the pacer that lets them go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.contract.errors import UsageError
from spanlite.replay.ahead import ReadAhead
from spanlite.replay.apart import ItemsApart, by_turn
from spanlite.replay.deliveries import Ready
from spanlite.replay.emission import Emission
from spanlite.replay.moments import Moment
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
_CHUNKS_AHEAD = 64


@dataclass(frozen=True)
class Pacing:
    """When items go.

    Attributes:
        pace: due times; its loops are those of the replay.
        waiter: how to wait for them.
        late: what to do with late ones.
        counts: what a limit counts: "batches", "spans", or "traces", each in the batch that has its first span.
        realtime: whether the pacing thread comes before all ordinary ones.
        apart: whether reading and encoding go on in another process, else in another thread.
        prime_ns: how long the start may wait until as much is read ahead as may be.
    """

    pace: Pace
    waiter: Waiter
    late: LatePolicy
    counts: str = "batches"
    realtime: bool = False
    apart: bool = False
    prime_ns: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """What a pace makes of a plan, with nothing read.

    Attributes:
        last_due_ns: when the last item is due after the first one of all.
        batches, spans: that are due, in all turns.
    """

    last_due_ns: int
    batches: int
    spans: int


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
        UsageError: real time is asked for and not granted.
    """
    begin = emission.account.next
    if replay.loops and begin >= Position(replay.loops):
        return Summary()
    pace = replace(pacing.pace, loops=max(replay.loops - begin.loop, 0))
    if begin != Position(begin.loop):
        pace = replace(pace, origin_ns=int(_times(replay).min()))
    clock = pacing.waiter.clock
    since_ns = clock.unix_ns() - clock.monotonic_ns()

    def emit(ready: Ready) -> None:
        emission.emit(ready, Moment(since_ns + pacer.due_ns, since_ns + pacer.now_ns))

    pacer: Pacer[Ready] = Pacer(
        pacing.waiter,
        emit,
        policy=pacing.late,
        stopped=stopped,
        progress=progress,
        duration_ns=pace.duration_ns,
    )
    with ExitStack() as stack:
        turn = _turns(replay, emission, stack, apart=pacing.apart)
        due = scheduled(Schedule(pace), lambda number: _chunks(replay, turn(begin.loop + number), pacing.counts))
        ahead = ReadAhead(due, most=_CHUNKS_AHEAD)
        made = stack.enter_context(ahead)
        granted = stack.enter_context(quiet(realtime=pacing.realtime))
        if pacing.realtime and not granted.realtime:
            raise UsageError("--realtime is not permitted: give the command CAP_SYS_NICE, or leave it out")
        first = next(made, None)
        if first is None:
            return Summary()
        _prime(ahead, pacing, stopped)
        start_ns = pacing.waiter.clock.monotonic_ns() + LEAD_NS - int(first.due_ns[0])
        return pacer.run(_handed(emission, chain([first], made)), start_ns=start_ns)


def _prime(ahead: ReadAhead[Due[Ready]], pacing: Pacing, stopped: Callable[[], bool]) -> None:
    clock = pacing.waiter.clock
    end_ns = clock.monotonic_ns() + pacing.prime_ns
    while not ahead.full and clock.monotonic_ns() < end_ns and not stopped():
        clock.sleep_s(0.01)


def _turns(replay: Replay, emission: Emission, stack: ExitStack, *, apart: bool) -> Callable[[int], Iterator[Ready]]:
    begin, names = emission.account.next, emission.account.names
    if not apart:
        return replay.turns(begin, names)
    return by_turn(stack.enter_context(ItemsApart(replay, begin, names)))


def planned(replay: Replay, pacing: Pacing) -> Planned | None:
    """What is due, and until when; None for a replay without end."""
    pace, times = replace(pacing.pace, loops=replay.loops), _times(replay)
    if not replay.loops and pace.duration_ns is None and pace.most_items is None:
        return None
    weights = {"batches": None, "spans": replay.plan.spans, "traces": replay.plan.new_traces}[pacing.counts]
    last = batches = spans = 0

    def turn(number: int) -> list[Chunk[int]]:
        cut = replay.end.batch if replay.end is not None and number == replay.end.loop else len(times)
        return [Chunk(times[:cut], range(cut), None if weights is None else weights[:cut])]

    for due in scheduled(Schedule(pace), turn):
        last = int(due.due_ns[-1])
        batches += len(due.items)
        spans += int(replay.plan.spans[: len(due.items)].sum())
    return Planned(last, batches, spans)


def _handed(emission: Emission, chunks: Iterable[Due[Ready]]) -> Iterator[Due[Ready]]:
    """The chunks, whose items the emission is told of before the pacer has them."""
    for chunk in chunks:
        yield Due(chunk.due_ns, list(emission.handed(chunk.items)))


def _times(replay: Replay) -> Int64:
    plan = replay.plan
    return plan.arrival_ns if replay.settings.order == "arrival" else plan.start_ns


def _chunks(replay: Replay, items: Iterable[Ready], counts: str) -> Iterator[Chunk[Ready]]:
    """Items in chunks that bound what is in memory."""
    held: list[Ready] = []
    spans = 0
    for ready in items:
        held.append(ready)
        spans += ready.item.spans
        if len(held) >= _CHUNK_ITEMS or spans >= _CHUNK_SPANS:
            yield _chunk(replay, held, counts)
            held, spans = [], 0
    if held:
        yield _chunk(replay, held, counts)


def _chunk(replay: Replay, items: list[Ready], counts: str) -> Chunk[Ready]:
    by_arrival = replay.settings.order == "arrival"
    times = [ready.item.arrival_ns if by_arrival else ready.item.start_ns for ready in items]
    return Chunk(np.array(times, np.int64), items, _weights(replay, items, counts))


def _weights(replay: Replay, items: list[Ready], counts: str) -> Int64 | None:
    if counts == "batches":
        return None
    if counts == "spans":
        return np.array([ready.item.spans for ready in items], np.int64)
    places = [ready.item.position for ready in items]
    return np.array([replay.plan.new_traces[at.batch] if not at.part else 0 for at in places], np.int64)

"""One run from its beginning, or from a checkpoint, to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spanlite.contract.errors import ReplayError
from spanlite.replay.ahead import ReadAhead
from spanlite.replay.checkpoint import Account, Checkpoint
from spanlite.replay.emission import IN_FLIGHT, Emission, Keeping
from spanlite.replay.paced import Pacing, emit_paced, planned
from spanlite.replay.pacing.pacer import Progress, Summary
from spanlite.replay.ports import Sink
from spanlite.replay.prepare import Replay
from spanlite.runtime.clock import Clock

_ITEMS_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        account: what was emitted, by the runs before that it went on from as well.
        ended: `finished`, `duration` (the time that was set is over) or `stopped`.
        summary: how well the pace was kept, if there was one.
    """

    account: Account
    ended: str
    summary: Summary | None


@dataclass(frozen=True)
class Watch:
    """Who looks at a run.

    Attributes:
        stopped: ends it once it is true.
        emitted: is told the account after each item.
        paced: is told about each interval of a paced run.
    """

    stopped: Callable[[], bool] = lambda: False
    emitted: Callable[[Account], object] = lambda _: None
    paced: Callable[[Progress], object] | None = None


def run_replay(
    replay: Replay,
    sink: Sink,
    clock: Clock,
    *,
    pacing: Pacing | None = None,
    duration_ns: int | None = None,
    keeping: Keeping | None = None,
    resumed: Checkpoint | None = None,
    watch: Watch | None = None,
    in_flight: int = IN_FLIGHT,
    concluded: Callable[[Outcome], object] = lambda _: None,
) -> Outcome:
    """Emits what is not acknowledged yet.

    Args:
        replay: what.
        sink: where to.
        clock: for checkpoints.
        pacing: when; as fast as it goes without.
        duration_ns: without a pace, when to end; with one, `pacing.pace` says so.
        keeping: where checkpoints go, if they are kept.
        resumed: the checkpoint to go on from.
        watch: who looks.
        in_flight: items handed on and not acknowledged.
        concluded: is told how a run ended that finished, before its checkpoint says so; what it raises is raised.

    Raises:
        SpanliteError: reading or emitting failed; a checkpoint tells how far it came, if one is kept.
        ReplayError: an item was late by more than the pace allows, and that was to end it.
    """
    watch = watch or Watch()
    account = resumed.account if resumed else Account()
    if resumed:
        sink.resume(resumed.sink)
    else:
        sink.begin()
    with Emission(sink, account, clock, keeping=keeping, in_flight=in_flight) as emission:
        if pacing is None:
            end_ns = None if duration_ns is None else clock.monotonic_ns() + duration_ns
            summary, ended = None, _emit_all(replay, emission, watch, clock, end_ns)
        else:
            summary = emit_paced(replay, emission, pacing, stopped=watch.stopped, progress=watch.paced)
            ended = summary.ended
        if not emission.drain(watch.stopped):
            ended = "stopped"
        if ended == "aborted":
            raise ReplayError("an item was later than --late allows; replay slower, or let it catch up")
        if ended in ("finished", "duration"):
            due = planned(replay, pacing) if pacing is not None and ended == "duration" else None
            emission.finish(due.spans if due else None)
            concluded(Outcome(emission.account, ended, summary))
            emission.conclude()
    return Outcome(emission.account, ended, summary)


def _emit_all(replay: Replay, emission: Emission, watch: Watch, clock: Clock, end_ns: int | None) -> str:
    """As fast as it goes; whether it `finished`, was ended by its `duration`, or was `stopped`."""
    items = replay.ready(emission.account.next, emission.account.names)
    with ReadAhead(items, most=_ITEMS_AHEAD) as made:
        for ready in made:
            if watch.stopped():
                return "stopped"
            if end_ns is not None and clock.monotonic_ns() >= end_ns:
                return "duration"
            emission.emit(ready)
            watch.emitted(emission.account)
    return "finished"

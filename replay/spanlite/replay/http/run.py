"""One run: due times, requests made ahead of them, the pacer that lets them go, and the client that takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.ahead import ReadAhead
from spanlite.replay.http.calls import ATTEMPTS
from spanlite.replay.http.client import Client
from spanlite.replay.http.outcomes import UNCONNECTED, Outcomes
from spanlite.replay.http.requests import Maker, Request
from spanlite.replay.paced import Pacing
from spanlite.replay.pacing.pacer import Pacer, Progress, Summary
from spanlite.replay.pacing.quiet import quiet
from spanlite.replay.pacing.schedule import Due, Schedule, scheduled
from spanlite.runtime.clock import Clock

_CHUNKS_AHEAD = 32
_LEAD_NS = 100_000_000
"""From the first requests in hand to the start: those behind them are made meanwhile."""
_LOOK_S = 0.2


@dataclass(frozen=True)
class Watch:
    """Who looks at a run.

    Attributes:
        stopped: ends it once it is true.
        progress: is told about each interval.
        draining: is called now and then while all is sent and not all has ended.
    """

    stopped: Callable[[], bool] = lambda: False
    progress: Callable[[Progress], object] | None = None
    draining: Callable[[], object] = lambda: None


def due_requests(maker: Maker, pacing: Pacing, *, loops: int, by_spans: bool = False) -> Iterator[Due[int]]:
    """The numbers of all requests, and when they are due.

    Args:
        maker: whose.
        pacing: when.
        loops: turns, 0 for ever.
        by_spans: whether a limit counts the traces' spans; else requests.
    """
    weights = maker.traces.spans if by_spans else None
    return scheduled(Schedule(replace(pacing.pace, loops=loops)), lambda turn: maker.chunks(turn, weights))


def run_requests(
    maker: Maker, client: Client, pacing: Pacing, due: Iterator[Due[int]], *, watch: Watch | None = None
) -> Summary:
    """Sends every request when it is due, then waits for what is open; told to stop, for so long as one may take.

    Args:
        maker: what is sent.
        client: what sends it, entered.
        pacing: how to wait, what to do with late ones.
        due: see `due_requests`.
        watch: who looks.

    Raises:
        ReplayError: a request cannot be made.
        UsageError: real time is asked for and not granted.
    """
    watch = watch or Watch()

    def ended() -> bool:
        return watch.stopped() or client.gone or client.broken is not None

    start_ns = 0

    def emit(request: Request) -> None:
        client.send(request, start_ns + pacer.shifted_ns + request.due_ns)

    pacer: Pacer[Request] = Pacer(
        pacing.waiter,
        emit,
        policy=pacing.late,
        stopped=ended,
        progress=watch.progress,
        duration_ns=pacing.pace.duration_ns,
    )
    summary = Summary()
    with ReadAhead(maker.made(due), most=_CHUNKS_AHEAD) as made, quiet(realtime=pacing.realtime) as granted:
        if pacing.realtime and not granted.realtime:
            raise UsageError("--realtime is not permitted: give the command CAP_SYS_NICE, or leave it out")
        if first := list(islice(made, _CHUNKS_AHEAD)):
            start_ns = pacing.waiter.clock.monotonic_ns() + _LEAD_NS - int(first[0].due_ns[0])
            summary = pacer.run(chain(first, made), start_ns=start_ns)
    drain(client, pacing.waiter.clock, ended, watch.draining)
    return summary


def drain(client: Client, clock: Clock, ended: Callable[[], bool], looking: Callable[[], object]) -> None:
    """Waits for what has been handed on; once it is `ended` only for what is open, and so long as that may take."""
    deadline_ns: int | None = None
    while not client.drained(_LOOK_S):
        looking()
        if deadline_ns is None and ended():
            client.give_up(open_too=False)
            deadline_ns = clock.monotonic_ns() + round(client.timeout_s * 1e9)
        if deadline_ns is not None and clock.monotonic_ns() > deadline_ns:
            client.give_up(open_too=True)


def conclude(summary: Summary, outcomes: Outcomes, *, url: str, keep_going: bool) -> ReplayError | None:
    """Settles how a run ended whose outcomes are complete; the error if it failed as a whole."""
    if summary.ended == "finished" and outcomes.errors["stopped"]:
        summary.ended = "stopped"
    if summary.ended == "aborted":
        return ReplayError("a request was later than --late allows; replay slower, or let it catch up")
    attempts = outcomes.count - sum(outcomes.lost.values())
    missed = {kind: outcomes.errors[kind] for kind in UNCONNECTED if outcomes.errors[kind]}
    if keep_going or not missed or sum(missed.values()) < attempts:
        return None
    summary.ended = "aborted"
    said = ", ".join(f"{count} {kind}" for kind, count in missed.items())
    return ReplayError(
        f"{url}: nobody is there: the first {attempts} attempts: {said}; start the service or correct the address "
        f"(--keep-going goes on after {ATTEMPTS})"
    )

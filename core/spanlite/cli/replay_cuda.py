"""`spanlite replay run --to cuda`: archived kernels as busy ones on a GPU, when they are due."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import replace
from typing import Any

from spanlite.cli.drawn import DrawnLine
from spanlite.cli.replay_flags import duration_of, pacing_of, selection_of
from spanlite.cli.stopping import Stopping
from spanlite.contract.errors import UsageError
from spanlite.replay.checkpoint import write_json
from spanlite.replay.cuda.launches import Launches, make_launches
from spanlite.replay.cuda.library import Enactor, Stand
from spanlite.replay.cuda.run import Enacted, Watch, due_kernels, enact
from spanlite.replay.cuda.timeline import Timeline
from spanlite.replay.pacing.lateness import Lateness
from spanlite.replay.pacing.settings import Pace
from spanlite.replay.ports import Archive
from spanlite.replay.shift import parse_time_ns
from spanlite.runtime.clock import Clock
from spanlite.runtime.durations import parse_duration_ns

_COARSE_NS = 1_000


def run_cuda(args: argparse.Namespace, archive: Archive, clock: Clock) -> int:
    """0 when every kernel was launched, 3 when some do not fit on the GPU, 130 when it was stopped.

    Raises:
        SpanliteError: what is wrong with the call, the archive or the GPU.
    """
    pace, ahead_ns = _pace(args, clock), parse_duration_ns(args.ahead)
    _start_ns(args, clock)  # says at once what is wrong with it
    timeline = Timeline(archive, selection_of(args))
    facts = _plan_facts(args, archive, timeline)
    if args.dry_run:
        facts |= _due_facts(timeline, pace)
        print(json.dumps(facts, indent=2)) if args.json else _say_plan(facts)
        return 0
    line = _Line(len(timeline) * args.loop, quiet=args.quiet)
    with Enactor(args.device) as enactor, Stopping() as stopping:
        with line:
            launches = make_launches(timeline, enactor, line.compiled)
            _check_clock(enactor, launches)
            start_ns = _start_ns(args, clock)
            watch = Watch(lambda: stopping.told, line.enacted)
            done = enact(timeline, launches, enactor, pace, clock, ahead_ns=ahead_ns, start_ns=start_ns, watch=watch)
        facts |= _gpu_facts(enactor, launches) | _run_facts(done)
    if args.manifest:
        write_json(args.manifest, facts)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    return _close(args, done)


def _pace(args: argparse.Namespace, clock: Clock) -> Pace:
    pacing = pacing_of(args, clock)
    if pacing is None:
        raise UsageError("--to cuda launches kernels when they are due: take --speed 1 for as recorded, or --qps N")
    return replace(pacing.pace, duration_ns=duration_of(args), most_items=args.limit_spans or None)


def _start_ns(args: argparse.Namespace, clock: Clock) -> int | None:
    """Time 0 on the monotonic clock; None for at once."""
    if not args.shift.startswith("at="):
        return None
    ahead_ns = parse_time_ns(args.shift.removeprefix("at=")) - clock.unix_ns()
    if ahead_ns < 0:
        raise UsageError(
            f"--shift {args.shift}: that was {-ahead_ns / 1e9:.1f} s ago; name a later time, or leave it out"
        )
    return clock.monotonic_ns() + ahead_ns


def _check_clock(enactor: Enactor, launches: Launches) -> None:
    step_ns = launches.calibration.clock_step
    if step_ns > _COARSE_NS:
        raise UsageError(f"{enactor.gpu}: its timer goes in steps of {step_ns} ns, too coarse for kernels")


def _plan_facts(args: argparse.Namespace, archive: Archive, timeline: Timeline) -> dict[str, Any]:
    said = json.dumps([archive.where, timeline.gpu, len(timeline), timeline.first_ns, timeline.last_ns, args.speed])
    return {
        "run": args.run or hashlib.blake2b(said.encode(), digest_size=6).hexdigest(),
        "archive": archive.where,
        "recorded_on": timeline.gpu,
        "kernels": len(timeline),
        "loops": args.loop,
        "launches": len(timeline.kernels),
        "queues": len(timeline.queues),
        "left_out": {kind: count for kind, count in sorted(timeline.left_out.items()) if count},
        "first_start_ns": timeline.first_ns,
        "recorded_s": (timeline.last_ns - timeline.first_ns) / 1e9,
        "busy_s": timeline.busy_ns / 1e9,
        "speed": args.speed,
        "qps": args.qps,
    }


def _due_facts(timeline: Timeline, pace: Pace) -> dict[str, Any]:
    if not pace.loops and pace.duration_ns is None and pace.most_items is None:
        return {"duration_s": None}
    last = 0
    for due in due_kernels(timeline, pace):
        last = int(due.due_ns[-1])
    return {"duration_s": last / 1e9}


def _gpu_facts(enactor: Enactor, launches: Launches) -> dict[str, Any]:
    found = launches.calibration
    return {
        "gpu": enactor.gpu,
        "driver_cuda": f"{enactor.driver // 1000}.{enactor.driver % 1000 // 10}",
        "functions": launches.functions,
        "grids_cut": launches.cut,
        "other_registers": launches.other_registers,
        "clock_uncertainty_ns": found.clock_uncertainty,
        "clock_step_ns": found.clock_step,
        "launch_ns": found.launch,
        "gap_ns": found.gap,
        "train_launch_ns": found.train_launch,
        "train_gap_ns": found.train_gap,
        "in_trains": enactor.stand.in_trains,
    }


def _run_facts(done: Enacted) -> dict[str, Any]:
    late = done.lateness
    return {
        "ended": done.ended,
        "launched": done.launched,
        "started": done.started,
        "lost": dict(done.lost),
        "lengthened": done.lengthened,
        "took_s": done.took_ns / 1e9,
        "start_error_us": {
            "bias": done.signed_ns / max(done.started, 1) / 1e3,
            "p50": late.quantile_ns(0.5) / 1e3,
            "p99": late.quantile_ns(0.99) / 1e3,
            "p999": late.quantile_ns(0.999) / 1e3,
            "max": late.max_ns / 1e3,
            "early": done.early,
            "most_early": done.most_early_ns / 1e3,
        },
    }


def _say_plan(facts: dict[str, Any]) -> None:
    left = ", ".join(f"{count:,} {kind}" for kind, count in facts["left_out"].items()) or "none"
    print(
        f"kernels    {facts['kernels']:,} of {facts['launches']:,} launches in {facts['queues']} streams "
        f"of {facts['recorded_on']}"
    )
    print(f"left out   {left}")
    print(f"recorded   {facts['recorded_s']:.3f} s, of which kernels {facts['busy_s']:.3f} s")
    print(f"takes      {'without end' if facts['duration_s'] is None else format(facts['duration_s'], '.3f') + ' s'}")


def _close(args: argparse.Namespace, done: Enacted) -> int:
    lost = ", ".join(f"{kernels} {reason}" for reason, kernels in sorted(done.lost.items())) or "none"
    late = done.lateness
    if not args.quiet or done.ended == "stopped":
        print(
            f"{'stopped after' if done.ended == 'stopped' else 'launched'} {done.launched:,} kernels in "
            f"{done.took_ns / 1e9:.3f} s; late p50 {late.quantile_ns(0.5) / 1e3:.1f} µs, p99 "
            f"{late.quantile_ns(0.99) / 1e3:.1f} µs, at most {late.max_ns / 1e6:.3f} ms; lost: {lost}",
            file=sys.stderr,
        )
    if done.ended == "stopped":
        return 130
    return 3 if done.lost else 0


class _Line(DrawnLine):
    """Where a re-enactment stands."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._total = total

    def compiled(self, done: int, of: int) -> None:
        self.draw(f"compiling kernels  {done} of {of}")

    def enacted(self, stand: Stand, recent: Lateness) -> None:
        total = f" of {self._total:,}" if self._total else ""
        self.draw(
            f"{stand.started:,}{total} kernels  {recent.count:,}/s  late p50 {recent.quantile_ns(0.5) / 1e3:,.1f} µs "
            f"p99 {recent.quantile_ns(0.99) / 1e3:,.1f} µs"
        )

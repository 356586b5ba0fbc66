"""What a replay says of itself: a line while it runs, and an estimate before."""

from __future__ import annotations

from typing import Any

from spanlite.cli.drawn import DrawnLine
from spanlite.contract.columns import Int64
from spanlite.replay.checkpoint import Account
from spanlite.replay.paced import Pacing, planned
from spanlite.replay.pacing.pacer import Progress
from spanlite.replay.prepare import Replay
from spanlite.runtime.clock import Clock

_EVERY_NS = 500_000_000
_SAMPLE_BATCHES = 8


class ProgressLine(DrawnLine):
    """Where a replay stands."""

    def __init__(self, replay: Replay, clock: Clock, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._clock = clock
        self._total = replay.all_spans
        self._batches = replay.all_batches
        self._begin_ns = self._drawn_ns = clock.monotonic_ns()
        self._begin_spans: int | None = None

    def emitted(self, account: Account) -> None:
        """Draws what has come of it so far, if it is time to."""
        if self._begin_spans is None:
            self._begin_spans = account.spans
        now_ns = self._clock.monotonic_ns()
        if not self.shown or now_ns - self._drawn_ns < _EVERY_NS:
            return
        self._drawn_ns = now_ns
        rate = (account.spans - self._begin_spans) / ((now_ns - self._begin_ns) / 1e9)
        left = f"{(self._total - account.spans) / rate:.0f} s left" if self._total and rate else "without end"
        self.draw(f"{_of(account.spans, self._total)} spans  {rate / 1e6:.2f} M/s  {left}")

    def paced(self, progress: Progress) -> None:
        """Draws one interval of a paced run."""
        if not self.shown:
            return
        late = progress.lateness
        elapsed_s = progress.elapsed_ns / 1e9
        mean = progress.sent / elapsed_s if elapsed_s else 0.0
        left = f"{(self._batches - progress.sent) / mean:.0f} s left" if self._batches and mean else "without end"
        self.draw(
            f"{_of(progress.sent, self._batches)} batches  {progress.rate:,.0f}/s of {progress.target:,.0f}/s  late "
            f"p50 {late.quantile_ns(0.5) / 1e3:,.0f} µs p99 {late.quantile_ns(0.99) / 1e3:,.0f} µs  "
            f"behind {progress.behind_ns / 1e6:.1f} ms  {left}"
        )


def _of(done: int, total: int | None) -> str:
    return f"{done:,} of {total:,}" if total is not None else f"{done:,}"


def estimate(replay: Replay, pacing: Pacing | None) -> dict[str, Any]:
    """What a replay would emit; its bytes from the first batches."""
    plan, loops = replay.plan, replay.loops
    size = spans = 0
    for number, ready in enumerate(replay.ready()):
        size, spans = size + len(ready.payload), spans + ready.item.spans
        if number + 1 == _SAMPLE_BATCHES:
            break
    due = planned(replay, pacing) if pacing else None
    emitted = due.spans if due else replay.all_spans or replay.spans
    batches = due.batches if due else replay.all_batches or len(plan)
    times: Int64 = plan.arrival_ns if replay.settings.order == "arrival" else plan.start_ns
    return {
        "run": replay.run,
        "archive": replay.archive.where,
        "files": len(replay.archive.sources),
        "spans": emitted,
        "batches": batches,
        "traces": plan.trace_count * max(loops, 1),
        "loops": loops,
        "first_start_ns": int(plan.start_ns.min()) + replay.offset_ns,
        "last_end_ns": int(plan.end_ns.max()) + replay.offset_ns + max(loops - 1, 0) * replay.period_ns,
        "offset_ns": replay.offset_ns,
        "recorded_s": (int(times.max()) - int(times.min())) / 1e9,
        "duration_s": due.last_due_ns / 1e9 if due is not None else None,
        "bytes": round(size / max(spans, 1) * emitted),
    }


def say_estimate(facts: dict[str, Any]) -> None:
    """Prints it for people."""
    duration = f"{facts['duration_s']:.3f} s" if facts["duration_s"] is not None else "as fast as it goes"
    print(f"run        {facts['run']}")
    print(f"spans      {facts['spans']:,} in {facts['batches']:,} batches and {facts['traces']:,} traces")
    print(f"starts     {facts['first_start_ns']} to ends {facts['last_end_ns']} (Unix ns)")
    print(f"bytes      about {facts['bytes']:,}")
    print(f"recorded   {facts['recorded_s']:.3f} s")
    print(f"takes      {duration}{'' if facts['loops'] else ' (a turn; without end)'}")

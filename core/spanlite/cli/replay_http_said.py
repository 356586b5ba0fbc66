"""A replay to a service, and what it says of itself: an estimate before, a line while it runs, a manifest after."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from spanlite.cli.drawn import DrawnLine
from spanlite.contract.columns import Int64
from spanlite.replay.http.client import Client
from spanlite.replay.http.outcomes import Outcomes
from spanlite.replay.http.requests import Maker, Template, peak_per_s
from spanlite.replay.http.run import due_requests
from spanlite.replay.manifest import FORMAT, pacing_facts
from spanlite.replay.paced import Pacing
from spanlite.replay.pacing.pacer import Progress, Summary
from spanlite.replay.ports import Archive
from spanlite.replay.prepare import Settings


@dataclass(frozen=True)
class HttpPlan:
    """What is to be sent."""

    archive: Archive
    settings: Settings
    pacing: Pacing
    template: Template
    maker: Maker
    run: str
    offset_ns: int
    by_spans: bool

    @property
    def url(self) -> str:
        """The address as given, without what may be secret in it."""
        said: str = self.template.url.source.partition("?")[0]
        return said


def estimate(plan: HttpPlan) -> dict[str, Any]:
    """What would be sent; of a run without end, its first turn."""
    count, last_ns, traces = 0, 0, plan.maker.traces

    def times() -> Iterator[Int64]:
        nonlocal count, last_ns
        for due in due_requests(plan.maker, plan.pacing, loops=plan.settings.loops or 1, by_spans=plan.by_spans):
            count, last_ns = count + len(due.due_ns), int(due.due_ns[-1])
            yield due.due_ns

    peak = peak_per_s(times())
    return {
        "run": plan.run,
        "archive": plan.archive.where,
        "url": plan.url,
        "requests": count,
        "traces": len(traces),
        "loops": plan.settings.loops,
        "peak_per_s": peak,
        "duration_s": last_ns / 1e9,
        "recorded_s": (int(traces.start_ns[-1]) - int(traces.start_ns[0])) / 1e9,
    }


def say_estimate(facts: Mapping[str, Any]) -> None:
    turns = "" if facts["loops"] else " (a turn; without end)"
    print(f"run        {facts['run']}")
    print(f"requests   {facts['requests']:,} of {facts['traces']:,} traces to {facts['url']}{turns}")
    print(f"peak       {facts['peak_per_s']:,} in one second")
    print(f"recorded   {facts['recorded_s']:.3f} s")
    print(f"takes      {facts['duration_s']:.3f} s{turns}")


def http_manifest(
    args: argparse.Namespace, plan: HttpPlan, summary: Summary, outcomes: Outcomes, client: Client
) -> dict[str, Any]:
    """What was done; of headers the names, of templates a digest."""
    sent_s = (outcomes.last_sent_ns - outcomes.first_sent_ns) / 1e9
    asked_s = summary.intended_ns / 1e9
    facts = outcomes.facts()
    late = {reason: count for reason, count in summary.dropped.items() if reason != "stopped"}
    facts["lost"] = {**facts["lost"], **late}
    body = plan.template.body
    return {
        "format": FORMAT,
        "spanlite": package_version(),
        "run": plan.run,
        "seed": plan.settings.seed,
        "archive": {
            "where": plan.archive.where,
            "files": len(plan.archive.sources),
            "traces": plan.maker.traces.digest,
        },
        "settings": plan.settings.facts(),
        "offset_ns": plan.offset_ns,
        "to": {
            "url": plan.url,
            "method": args.method,
            "headers": sorted(plan.template.headers),
            "body": hashlib.blake2b(body.source.encode(), digest_size=16).hexdigest() if body else None,
            "connections": args.connections,
            "queue": args.queue,
            "timeout": args.timeout,
            "expect": args.expect,
        },
        "selected": {"traces": len(plan.maker.traces), "spans": int(plan.maker.traces.spans.sum())},
        "outcome": facts,
        "waited": {"requests": client.state.waited, "most": client.state.most_waiting},
        "rate": {
            "asked_per_s": (summary.sent - 1) / asked_s if asked_s and summary.sent else None,
            "written_per_s": (outcomes.dispatch.count - 1) / sent_s if sent_s else None,
        },
        "ended": summary.ended,
        "pacing": {
            "speed": args.speed,
            "qps": args.qps,
            "mode": plan.pacing.waiter.name,
            "qps_of": "spans" if plan.by_spans else "requests",
            "late_policy": args.late,
            **{name: getattr(args, name) for name in ("burst", "duration", "period", "gap_cap", "realtime")},
            **pacing_facts(summary),
        },
    }


def close_http(args: argparse.Namespace, plan: HttpPlan, facts: Mapping[str, Any]) -> int:
    """Says how it went; the exit code."""
    outcome, rate = facts["outcome"], facts["rate"]
    stopped = facts["ended"] == "stopped"
    if not args.quiet or stopped:
        how = "stopped after " if stopped else ""
        print(
            f"run {plan.run}: {how}{outcome['requests']} requests, {outcome['as_expected']} as expected; "
            f"statuses: {_counts(outcome['statuses'])}; errors: {_counts(outcome['errors'])}; "
            f"lost: {_counts(outcome['lost'])}; "
            f"waited: {facts['waited']['requests']} (most {facts['waited']['most']}); "
            f"{_rate(rate['written_per_s'])} of {_rate(rate['asked_per_s'])} asked",
            file=sys.stderr,
        )
        shown = (("latency from due", "latency_from_due_ns"), ("service", "service_ns"), ("dispatch", "dispatch_ns"))
        print("; ".join(f"{name} {_quantiles(outcome[key])}" for name, key in shown), file=sys.stderr)
    if stopped:
        return 130
    return 3 if outcome["as_expected"] < outcome["requests"] or outcome["lost"] else 0


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(counts.items())) or "none"


def _rate(per_s: float | None) -> str:
    return f"{per_s:,.1f}/s" if per_s is not None else "-"


def _quantiles(values: Mapping[str, float]) -> str:
    named = [name for name in values if name != "count"]
    return " ".join(f"{name} {values[name] / 1e6:.3g}" for name in named) + " ms"


class HttpLine(DrawnLine):
    """Where a replay to a service stands."""

    def __init__(self, plan: HttpPlan, client: Client, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._client = client
        self._total = len(plan.maker.traces) * plan.settings.loops

    def paced(self, progress: Progress) -> None:
        """Draws one interval."""
        late, elapsed_s = progress.lateness, progress.elapsed_ns / 1e9
        mean = progress.sent / elapsed_s if elapsed_s else 0.0
        left = f"{(self._total - progress.sent) / mean:.0f} s left" if self._total and mean else "without end"
        self.draw(
            f"{progress.sent:,} of {self._total or '…'} requests  {progress.rate:,.0f}/s of {progress.target:,.0f}/s  "
            f"late p50 {late.quantile_ns(0.5) / 1e3:,.0f} µs p99 {late.quantile_ns(0.99) / 1e3:,.0f} µs  "
            f"{self._state()}  {left}"
        )

    def draining(self) -> None:
        """Draws what all is sent and has not ended."""
        if self.shown:
            self.draw(f"{self._client.handed:,} requests sent  {self._state()}")

    def _state(self) -> str:
        state = self._client.state
        return f"open {state.open} waiting {state.waiting}"


def package_version() -> str:
    """Of spanlite, as installed."""
    try:
        return version("spanlite")
    except PackageNotFoundError:
        return "0+unknown"

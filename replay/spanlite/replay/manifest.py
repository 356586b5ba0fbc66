"""What a replay was, was to do and did, as JSON: the same settings and seed give the same manifest."""

from __future__ import annotations

from typing import Any

from spanlite.replay.checkpoint import Account
from spanlite.replay.pacing.pacer import Summary
from spanlite.replay.prepare import Replay

FORMAT = 1


def manifest(
    replay: Replay, account: Account, *, ended: str, version: str, output: str, pacing: dict[str, Any]
) -> dict[str, Any]:
    """The manifest.

    Args:
        replay: what was replayed.
        account: what was emitted.
        ended: `finished`, or why not: `stopped`, `duration`, `aborted`.
        version: of spanlite.
        output: where to.
        pacing: how it was paced, and how well that went.
    """
    plan = replay.plan
    return {
        "format": FORMAT,
        "spanlite": version,
        "run": replay.run,
        "seed": replay.settings.seed,
        "archive": {"where": replay.archive.where, "files": len(replay.archive.sources), "plan": plan.digest},
        "settings": replay.settings.facts(),
        "offset_ns": replay.offset_ns,
        "period_ns": replay.period_ns if replay.settings.loops != 1 else None,
        "output": output,
        "selected": {
            "batches": len(plan),
            "spans": replay.spans,
            "first_start_ns": int(plan.start_ns.min()),
            "last_end_ns": int(plan.end_ns.max()),
        },
        "emitted": {
            "batches": account.batches,
            "spans": account.spans,
            "bytes": account.bytes,
            "lost": dict(account.lost),
            "first_start_ns": account.first_ns,
            "last_end_ns": account.last_ns,
            "digest": account.digest,
        },
        "ended": ended,
        "pacing": pacing,
    }


def pacing_facts(summary: Summary) -> dict[str, Any]:
    """How well a pace was kept."""
    late = summary.lateness
    return {
        "read": summary.read,
        "sent": summary.sent,
        "late": summary.late,
        "dropped": dict(summary.dropped),
        "shifts": summary.shifts,
        "shifted_ns": summary.shifted_ns,
        "length_ratio": summary.length_ratio,
        "lateness_ns": {
            "mean": late.mean_ns,
            "p50": late.quantile_ns(0.5),
            "p99": late.quantile_ns(0.99),
            "max": late.max_ns,
        },
    }

"""`spanlite backtest run`: joins the archive's files, the replay's reader and the pipeline's stages."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spanlite.cli.output import progress_bar, whole_file
from spanlite.cli.replay_flags import selection_of
from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.pipeline.backtest.files import write_columns, write_lines
from spanlite.pipeline.backtest.run import Account, Backtest
from spanlite.pipeline.pointset import PointSet
from spanlite.pipeline.windows import WindowPolicy
from spanlite.replay.ahead import ReadAhead
from spanlite.replay.plan import Plan, make_plan
from spanlite.replay.read import Reader
from spanlite.replay.selection import EVERYTHING, Selection
from spanlite.runtime.clock import SystemClock
from spanlite.runtime.durations import parse_duration_ns

_BATCHES_AHEAD = 4


def run(args: argparse.Namespace) -> int:
    """See `spanlite.cli.commands.backtest.run`."""
    if args.runner == "kafka":
        from spanlite.cli import backtest_kafka

        return backtest_kafka.run(args)
    if args.output is None:
        raise UsageError("-o FILE is missing: where the points go; .bin holds them as columns, - is stdout")
    if args.json and str(args.output) == "-":
        raise UsageError("--json and -o - would both write to stdout; give the points a file")
    policy, top_k = policy_of(args), top_k_of(args)
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    binary = args.output.suffix == ".bin"
    with whole_file(args.output, binary=binary) as stream:
        bar = progress_bar("backtest", quiet=args.quiet)
        found, account = backtest_archive(args.archive, policy, top_k=top_k, selection=selection_of(args), progress=bar)
        (write_columns if binary else write_lines)(stream, found)
    facts = _facts(found, account, args.output)
    if args.json:
        print(json.dumps(facts, indent=2))
    elif not args.quiet:
        took_s = (clock.monotonic_ns() - began_ns) / 1e9
        rejected = ", ".join(f"{spans} {reason}" for reason, spans in sorted(account.rejected.items())) or "none"
        made = f"{facts['points']} points of {account.series} series in {facts['windows']} windows"
        print(
            f"{account.spans} spans, {made}; late: {account.folds.late}; rejected: {rejected}; {took_s:.1f} s",
            file=sys.stderr,
        )
    return 3 if account.rejected else 0


def policy_of(args: argparse.Namespace) -> WindowPolicy:
    """Windows as --window and --lateness have them; without a lateness all stay open to the end."""
    lateness = getattr(args, "lateness", None)
    return WindowPolicy(
        width_ns=parse_duration_ns(args.window or "10s"),
        lateness_ns=parse_duration_ns(lateness) if lateness else None,
    )


def top_k_of(args: argparse.Namespace) -> int:
    """Value of --top-k.

    Raises:
        UsageError: it is below 0.
    """
    if args.top_k < 0:
        raise UsageError(f"--top-k must be 0 or more, not {args.top_k}")
    return int(args.top_k)


def backtest_archive(
    where: str,
    policy: WindowPolicy,
    *,
    top_k: int,
    selection: Selection = EVERYTHING,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> tuple[PointSet, Account]:
    """The points of an archive's spans, read by a thread of its own.

    Args:
        progress: is told spans done and all of them.

    Raises:
        ArchiveError: no archive there, or a file is damaged or foreign.
        ReplayError: nothing is selected.
    """
    files = ArchiveFiles(where)
    plan = make_plan(files, selection)
    if not len(plan):
        raise ReplayError(f"{files.where}: no span is selected; widen the selection, or see `spanlite archive ls`")
    graph, done, total = Backtest(policy, top_k=top_k), 0, int(plan.spans.sum())
    with ReadAhead(_batches(Reader(files, plan, selection), plan), most=_BATCHES_AHEAD) as batches:
        for batch, fillers in batches:
            graph.take(batch, fillers=fillers)
            done += len(batch.columns) - fillers
            progress(done, total)
    return graph.finish(), graph.account


def _batches(reader: Reader, plan: Plan) -> Iterator[tuple[Batch, int]]:
    """Batches, and how many rows of each are there only to fill gaps between those that are selected."""
    for number, parts in reader.batches(fill=True):
        for batch in parts:
            filled = len(batch.columns) - int(plan.spans[number]) if len(parts) == 1 else 0
            yield batch, max(filled, 0)


def _facts(found: PointSet, account: Account, output: Path) -> dict[str, Any]:
    folds = account.folds
    return {
        "output": str(output),
        "window_ns": found.width_ns,
        "points": len(found),
        "windows": len(set(found.rows.window.tolist())),
        "series": account.series,
        "kernels_in_other": account.in_other,
        "spans": account.spans,
        "folded": folds.folded,
        "late": folds.late,
        "ignored_ranges": folds.ranges,
        "rejected": dict(account.rejected),
    }

"""Try windows, thresholds and code on old data: an archive through the pipeline again, points and alerts compared.

  run     archived spans through the same stages as in production, to points
  diff    two sets of points: what is only in one, and what differs
  alerts  rules on old points; against other rules or windows

ARCHIVE is a folder, or s3://bucket/prefix with options such as ?endpoint_override=host:port&scheme=http&region=….
POINTS is a file that `run -o` or `spanlite ingest --points` has written; diff also takes kafka:TOPIC and an ARCHIVE.

exit codes: 0 done (diff: equal), 1 failed (diff: different), 2 the call is wrong (diff: or nothing to compare),
            3 done and spans were rejected

examples:
  spanlite backtest run traces/ -o points.jsonl
  spanlite backtest run traces/ -o coarse.bin --window 1m --kernel '*gemm*' --since 2026-11-29T00:00:00Z
  spanlite backtest diff live.jsonl points.jsonl
  spanlite backtest diff kafka:spanlite.points --archive traces/ --tolerance 1%
  spanlite backtest alerts traces/ --window 1s --rule 'p99 > 2ms for 3' --rule 'mean > 1.5x of 30 for 2'
  spanlite backtest alerts points.bin --rule 'p99 > 2ms for 3' --against 'p99 > 3ms' --against-window 1m
"""

from __future__ import annotations

import argparse

from spanlite.cli import backtest_flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions, each with flags of its own."""
    backtest_flags.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """See the exit codes above.

    Raises:
        SpanliteError: what is wrong with the call, the archive, the files or the brokers.
    """
    if args.action == "run":
        from spanlite.cli import backtest_run

        return backtest_run.run(args)
    if args.action == "diff":
        from spanlite.cli import backtest_diff

        return backtest_diff.run(args)
    from spanlite.cli import backtest_alerts

    return backtest_alerts.run(args)

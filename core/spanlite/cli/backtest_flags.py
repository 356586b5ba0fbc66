"""The flags of `spanlite backtest`."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanlite.cli.kafka_flags import add_kafka_arguments
from spanlite.cli.replay_flags import add_selection
from spanlite.transport.topics import PARTITIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The three actions, each with flags of its own."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    _add_run(actions.add_parser("run", help="archived spans to points"))
    _add_diff(actions.add_parser("diff", help="compare two sets of points"))
    _add_alerts(actions.add_parser("alerts", help="try rules on old points"))


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="ARCHIVE", help="a folder, or s3://bucket/prefix?…")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="JSON lines; FILE.bin: columns; - for stdout")
    _add_windows(parser)
    parser.add_argument("--lateness", help="close windows this long after their end instead of at the end of the input")
    parser.add_argument("--json", action="store_true", help="print the account as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no closing account")
    selection = parser.add_argument_group("which spans (all conditions; of several values of one, any)")
    add_selection(selection)
    selection.add_argument("--seed", type=int, default=0, help="of --sample (default %(default)s)")
    kafka = parser.add_argument_group("--runner kafka")
    kafka.add_argument(
        "--runner",
        choices=("embedded", "kafka"),
        default="embedded",
        help="kafka: emit to a replay topic instead, for a job to work on (default %(default)s)",
    )
    kafka.add_argument(
        "--prefix", metavar="NAME", help="of the topics: spanlite.replay.NAME.spans, … (default: the run)"
    )
    kafka.add_argument(
        "--partitions", type=int, default=PARTITIONS, help="of topics that are made (default %(default)s)"
    )
    kafka.add_argument("--replication", type=int, default=1, help="likewise (default %(default)s)")
    add_kafka_arguments(parser)


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="POINTS, kafka:TOPIC or ARCHIVE")
    parser.add_argument("b", metavar="B", nargs="?", help="likewise")
    parser.add_argument("--archive", metavar="ARCHIVE", help="instead of B: the points of this archive")
    _add_windows(parser)
    parser.add_argument(
        "--tolerance", default="0", help="5%% or 0.05: figures so close count as equal (default: to the bit)"
    )
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="points to show (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
    add_kafka_arguments(parser)


def _add_alerts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("points", metavar="POINTS|ARCHIVE", help="a file of points, or an archive")
    parser.add_argument(
        "--rule",
        action="append",
        metavar="RULE",
        help="'p99 > 2ms for 3', 'mean > 1.5x of 30 for 2', or @FILE of such lines",
    )
    parser.add_argument("--against", action="append", metavar="RULE", help="compare with the alerts of these rules")
    parser.add_argument("--against-window", metavar="TIME", help="and of windows of this width")
    _add_windows(parser)
    for flag, what in (("kernel", "id or full name"), ("stage", "'' outside all stages"), ("gpu", ""), ("host", "")):
        parser.add_argument(f"--{flag}", action="append", metavar="PATTERN", help=f"of series: {what}".rstrip(": "))
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="alerts to show (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON, every alert")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def _add_windows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--window", metavar="TIME", help="width of the windows (default: the file's; of archives 10s)")
    parser.add_argument("--top-k", type=int, default=500, help="archives: kernels per GPU with points of their own")

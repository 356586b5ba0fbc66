"""`spanlite backtest run --runner kafka`: an archive into a topic of its own, for the jobs of a cluster to work on."""

from __future__ import annotations

import argparse
import json
import re
import sys

from spanlite.cli.kafka_flags import kafka_settings
from spanlite.cli.replay_flags import selection_of
from spanlite.cli.replay_progress import ProgressLine
from spanlite.cli.replay_run import ArchiveFiles
from spanlite.cli.replay_topic import PREFIX, topic_sink
from spanlite.cli.stopping import Stopping
from spanlite.contract.errors import UsageError
from spanlite.replay.prepare import Replay, Settings
from spanlite.replay.running import Outcome, Watch, run_replay
from spanlite.runtime.clock import SystemClock
from spanlite.transport.topics import topics

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OUTPUTS = ("points", "late", "dead")


def run(args: argparse.Namespace) -> int:
    """0 when all was emitted, 3 when spans were lost, 130 when it was stopped before its end.

    Raises:
        SpanliteError: what is wrong with the call, the archive or the brokers.
    """
    if args.output is not None or args.window or args.lateness:
        raise UsageError("--runner kafka writes no points; -o, --window and --lateness belong to the job's own call")
    if args.prefix and not _NAME.fullmatch(args.prefix):
        raise UsageError(f"--prefix {args.prefix!r}: write up to 64 letters, digits, - and _")
    for flag, value in (("--partitions", args.partitions), ("--replication", args.replication)):
        if value < 1:
            raise UsageError(f"{flag} must be 1 or more, not {value}")
    clock = SystemClock()
    replay = Replay(ArchiveFiles(args.archive), Settings(selection=selection_of(args)), now_ns=clock.unix_ns())
    prefix = f"{PREFIX}{args.prefix or replay.run}"
    topic = {"topic": f"{prefix}.spans", "create_topic": True, "yes_live": 0, "partition": "source"}
    _make_outputs(args, prefix)
    with (
        Stopping() as stopping,
        topic_sink(argparse.Namespace(**{**vars(args), **topic}), replay, clock, paced=False) as sink,
        ProgressLine(replay, clock, quiet=args.quiet) as line,
    ):
        watch = Watch(stopped=lambda: stopping.told, emitted=line.emitted)
        outcome = run_replay(replay, sink, clock, watch=watch)
    return _close(args, prefix, outcome)


def _make_outputs(args: argparse.Namespace, prefix: str) -> None:
    """The topics that the job writes to, where they are not there."""
    from spanlite.transport.kafka_admin import KafkaAdmin

    admin = KafkaAdmin(kafka_settings(args, client_id="spanlite-backtest"))
    wanted = topics(prefix=prefix, partitions=args.partitions, replication=args.replication)
    found = admin.found(topic.name for topic in wanted)
    for topic in wanted:
        if topic.name.rpartition(".")[2] in _OUTPUTS and topic.name not in found:
            admin.create(topic)


def _close(args: argparse.Namespace, prefix: str, outcome: Outcome) -> int:
    account = outcome.account
    facts = {
        "prefix": prefix,
        "spans": account.spans,
        "batches": account.batches,
        "lost": dict(account.lost),
        "ended": outcome.ended,
    }
    if args.json:
        print(json.dumps(facts, indent=2))
    elif not args.quiet:
        lost = ", ".join(f"{spans} {reason}" for reason, spans in sorted(account.lost.items())) or "none"
        print(f"{prefix}.spans: {account.spans} spans in {account.batches} batches; lost: {lost}", file=sys.stderr)
        print(f"next: spanlite pipeline submit --job metrics --bounded --prefix {prefix} …", file=sys.stderr)
        print(f"then: spanlite backtest diff kafka:{prefix}.points --archive {args.archive}", file=sys.stderr)
    if outcome.ended != "finished":
        return 130
    return 3 if account.lost else 0

"""Tell what this node, or a program, can and cannot do with spanlite, each finding with its fix.

It only looks: no lock is taken, no file written, nothing said to an agent. Behind -- stands a program that is run for a
while as `spanlite run` would, with an agent of its own that sends nothing anywhere.

exit codes: 0 fine, or warnings only; 1 at least one failure; 2 the call is wrong

examples:
  spanlite doctor
  spanlite doctor --socket /run/spanlite/agent.sock --spool /var/lib/spanlite/spool --bootstrap kafka:9092
  spanlite doctor --pid 4242
  spanlite doctor --seconds 20 -- python serve.py
  spanlite doctor --json | jq '.findings[] | select(.level == "failure")'
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spanlite.cli.kafka_flags import add_kafka_arguments, kafka_settings
from spanlite.contract.errors import UsageError
from spanlite.runtime import settings
from spanlite.runtime.sizes import parse_size
from spanlite.transport.topics import PREFIX

if TYPE_CHECKING:
    from spanlite.agent.doctor.asked import Asked
    from spanlite.agent.doctor.finding import Finding

_SCHEMA = 1
_NOWHERE = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("--json", action="store_true", help="print JSON (docs/doctor.md)")
    parser.add_argument("--pid", type=int, metavar="PID", help="a program that runs")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="of the agent (default: where collectors look)")
    parser.add_argument("--spool", type=Path, metavar="DIR", help="of the agent")
    parser.add_argument("--spool-limit", default="1GiB", metavar="SIZE", help="of the agent (default %(default)s)")
    parser.add_argument("--metrics", metavar="URL", help="of the agent, such as http://127.0.0.1:9465/metrics")
    parser.add_argument("--prefix", default=PREFIX, help="first word of the topics' names (default %(default)s)")
    parser.add_argument(
        "--collector", type=Path, metavar="FILE", help="the library, where it is not the one built here"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="N",
        help="that the program behind -- may run (default %(default)s)",
    )
    add_kafka_arguments(parser)
    parser.set_defaults(bootstrap=_NOWHERE)  # Kafka is looked at where it is named
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the program and its words")


def run(args: argparse.Namespace) -> int:
    """Looks, and prints.

    Returns:
        0, or 1 with at least one failure.

    Raises:
        UsageError: a flag is off.
    """
    from spanlite.agent.doctor.finding import exit_code
    from spanlite.agent.doctor.text import lines

    asked = _asked(args)
    findings = list(_findings(args, asked))
    if args.json:
        print(json.dumps({"schema": _SCHEMA, "findings": [finding.as_json() for finding in findings]}, indent=2))
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        for line in lines(findings, colour=sys.stdout.isatty(), width=width):
            print(line)
    return exit_code(findings)


def _findings(args: argparse.Namespace, asked: Asked) -> Iterator[Finding]:
    from spanlite.agent.doctor.checks import examine
    from spanlite.agent.doctor.probe import real_probe
    from spanlite.agent.doctor.trial import trial

    probe = real_probe(settings.inherited())
    yield from examine(probe, asked)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if command:
        yield from trial(probe, command, seconds=args.seconds, collector=asked.collector)


def _asked(args: argparse.Namespace) -> Asked:
    from spanlite.agent.doctor.asked import Asked

    if args.pid is not None and args.pid < 1:
        raise UsageError(f"--pid {args.pid}: name the number of a process")
    if args.seconds <= 0:
        raise UsageError(f"--seconds {args.seconds:g}: must be more than 0")
    if args.metrics is not None and not args.metrics.startswith(("http://", "https://")):
        raise UsageError(f"--metrics {args.metrics}: write a URL, such as http://127.0.0.1:9465/metrics")
    return Asked(
        pid=args.pid,
        socket=args.socket.absolute() if args.socket else None,
        spool=args.spool.absolute() if args.spool else None,
        spool_limit=parse_size(args.spool_limit),
        kafka=None if args.bootstrap == _NOWHERE else kafka_settings(args, client_id="spanlite-doctor"),
        prefix=args.prefix,
        metrics=args.metrics,
        collector=args.collector,
    )

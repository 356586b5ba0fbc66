"""The flags of `spanlite replay compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanlite.cli.kafka_flags import add_kafka_arguments

HELP = """Compare a replay with its original, and say how faithful it was.

  ORIGINAL   the archive that was replayed: a folder, or s3://bucket/prefix?…
  REPLAY     where it went: a file, kafka:TOPIC (all that is there now), or another archive that took it in

The manifest of the run tells which spans were to come, and what is to be undone before they are compared; beside a file
it is FILE.json. Every span is matched by its identity and compared in all columns.

exit codes: 0 compared, and all that is required holds; 1 it does not, or a side cannot be read; 2 the call is wrong

examples:
  spanlite replay compare traces/ again.spans
  spanlite replay compare traces/ again.spans --require missing=0 --require topology=100 --require timing_error_ns=0
  spanlite replay compare traces/ kafka:load-test --manifest run.json --bootstrap kafka:9092 --html report.html
  spanlite replay compare traces/ replayed-traces/ --manifest run.json --json -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all of them."""
    parser.add_argument("original", metavar="ORIGINAL", help="the archive: a folder, or s3://bucket/prefix?…")
    parser.add_argument("replay", metavar="REPLAY", help="a file, kafka:TOPIC, or an archive")
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="of the run (beside a file: default FILE.json)")
    parser.add_argument(
        "--require",
        action="append",
        metavar="EXPR",
        help="a figure that must hold, else exit 1: missing=0, topology=100, 'ks<0.01'; may be given again",
    )
    parser.add_argument("--json", dest="json_file", type=Path, metavar="FILE", help="the report as JSON; - for stdout")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the report as one page with plots")
    parser.add_argument(
        "--formats", action="store_true", help="also measure other ways to write the spans, on up to 100,000 of them"
    )
    add_kafka_arguments(parser)

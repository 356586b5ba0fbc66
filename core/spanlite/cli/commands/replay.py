"""Emit the spans of an archive again: to a file, to stdout, to a Kafka topic; as fast as it goes, or as they came.

With --to http send a request for each trace to a service, when it is due (docs/replay-http.md). With --to cuda run the
kernels again on a GPU, as busy ones of the same names, shapes, durations and streams (docs/replay-cuda.md).

  run       read, select, move in time, rename, pace, emit
  compare   what came of it beside what was to come, span by span

ARCHIVE is a folder, or s3://bucket/prefix with options such as ?endpoint_override=host:port&scheme=http&region=….
Durations and the relations between spans are never changed; where ids are, all are mapped one to one.

exit codes: 0 done, 3 done and spans were lost (counted by reason), 1 failed, 2 the call is wrong, 130 stopped

examples:
  spanlite replay run traces/ --to file -o again.spans
  spanlite replay run traces/ --to stdout --kernel '*gemm*' --whole-traces | jq .duration_ns
  spanlite replay run traces/ --to kafka --bootstrap kafka:9092 --create-topic --shift now --speed 1
  spanlite replay run traces/ --to kafka --topic load.spans-test --ids remap --loop 10 --speed max --qps 500
  spanlite replay run traces/ --to file -o day.spans --since 2026-11-29T00:00:00Z --until 2026-11-30T00:00:00Z --dry-run
  spanlite replay run traces/ --to kafka --checkpoint run.json --resume
  spanlite replay run traces/ --to http --url http://127.0.0.1:8000/v1 --speed 1 --results r.parquet
  spanlite replay run traces/ --to cuda --speed 1 --gpu GPU-8f0d2c6e-1f5c-0b7a-6a77-4f3f0f6b1a52 --device 0
"""

from __future__ import annotations

import argparse

from spanlite.cli import replay_compare_flags, replay_flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions, each with flags of its own."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    run_parser = actions.add_parser(
        "run",
        help="emit an archive's spans again",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay_flags.add_arguments(run_parser)
    compare_parser = actions.add_parser(
        "compare",
        help="say how faithful a replay was",
        description=replay_compare_flags.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay_compare_flags.add_arguments(compare_parser)


def run(args: argparse.Namespace) -> int:
    """Of `run`: 0 when all was emitted, 3 when spans were lost, 130 when it was stopped before its end.

    Of `compare`: 0 when all that is required holds, else 1.

    Raises:
        SpanliteError: what is wrong with the call, the archive, the place to write to, or the brokers.
    """
    if args.action == "compare":
        from spanlite.cli import replay_compare

        return replay_compare.run(args)
    from spanlite.cli import replay_run

    return replay_run.run(args)

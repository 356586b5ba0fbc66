"""Run the pipeline over Kafka, hand its jobs to a Flink cluster, or work out what a fleet needs.

  run     here: `--runner embedded` keeps its state in one file and goes on from it after any kill; `--runner flink`
          hands the jobs to a cluster and waits until they end
  submit  hand a job to a Flink cluster and return; prints the job's id
  size    partitions, cores, network, disk and series for a fleet, with the arithmetic shown

examples:
  spanlite pipeline run --bootstrap kafka:9092 --state /var/lib/spanlite/pipeline.db --archive traces/
  spanlite pipeline submit --job metrics --flink-python /opt/venv/bin/python --flink-conf /opt/flink/conf
  spanlite pipeline submit --job archive --archive s3://bucket/traces --resume /checkpoints/4f1c…   the newest below it
  spanlite pipeline size --gpus 10000 --kernels-per-second 50000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from spanlite.cli import flink_client, pipeline_size
from spanlite.cli.kafka_flags import add_kafka_arguments
from spanlite.contract.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The three actions, each with flags of its own."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    run_parser = actions.add_parser("run", help="run the jobs here, or on a cluster until they end")
    _add_common(run_parser)
    here = run_parser.add_argument_group("runner")
    here.add_argument("--runner", choices=("embedded", "flink"), default="embedded", help="(default %(default)s)")
    here.add_argument("--state", type=Path, metavar="FILE", help="embedded: where state and offsets are kept")
    here.add_argument(
        "--metrics-port",
        type=int,
        default=0,
        metavar="PORT",
        help="embedded: of /metrics about the pipeline itself, on loopback (default: none)",
    )
    flink_client.add_arguments(run_parser.add_argument_group("--runner flink"))
    submit = actions.add_parser("submit", help="hand a job to a Flink cluster and return; prints the job's id")
    _add_common(submit)
    flink_client.add_arguments(submit.add_argument_group("Flink"))
    pipeline_size.add_arguments(actions.add_parser("size", help="what a fleet needs, with the arithmetic shown"))


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_kafka_arguments(parser)
    topics = parser.add_argument_group("topics and windows")
    topics.add_argument("--prefix", default="spanlite", help="of the topics' names (default %(default)s)")
    topics.add_argument("--window", default="10s", help="width of the metric windows (default %(default)s)")
    topics.add_argument("--lateness", default="2s", help="a window closes so long after its end (default %(default)s)")
    topics.add_argument("--idle", default="10s", help="or when its producer is silent for so long")
    topics.add_argument("--emit", default="200ms", help="a series is told at most once in this time")
    topics.add_argument("--top-k", type=int, default=500, help="kernels per GPU with points of their own")
    topics.add_argument("--bounded", action="store_true", help="end when all that is in the topic now is worked off")
    archive = parser.add_argument_group("archive")
    archive.add_argument("--archive", metavar="WHERE", help="folder or URI, such as s3://bucket/traces")
    archive.add_argument("--buckets", type=int, default=1, help="files an hour and flush, a power of two")
    archive.add_argument("--flush", default="60s", help="write what has waited for so long, however little")


def run(args: argparse.Namespace) -> int:
    """0 when all went well.

    Raises:
        SpanliteError: what is wrong with the call, the cluster, the topics or the archive.
    """
    if args.action == "size":
        return pipeline_size.run(args)
    if args.buckets < 1 or args.buckets & (args.buckets - 1):
        raise UsageError(f"--buckets must be a power of two, not {args.buckets}")
    if args.action == "submit" or args.runner == "flink":
        return flink_client.run(args, wait=args.action == "run")
    from spanlite.cli.durable import run as run_embedded

    return run_embedded(args)

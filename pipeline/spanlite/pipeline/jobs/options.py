"""Flags that all jobs take, and what they mean to Flink."""

from __future__ import annotations

import argparse

from pyflink.datastream import StreamExecutionEnvironment


def add_common(parser: argparse.ArgumentParser, *, group: str) -> None:
    """Kafka, names, retention."""
    parser.add_argument("--bootstrap", required=True, help="Kafka brokers, host:port,…")
    parser.add_argument("--spans", default="spanlite.spans", help="topic of span batches")
    parser.add_argument("--group", default=group, help="consumer group")
    parser.add_argument("--name", default="", help="the job's name in Flink")
    parser.add_argument(
        "--retain", default="168h", help="state of a silent producer goes after this; ≥ the topic's retention"
    )
    parser.add_argument(
        "--max-parallelism", type=int, default=1024, help="key groups; fixed for ever when the job first starts"
    )
    parser.add_argument("--bounded", action="store_true", help="end when all that is in the topic now is worked off")
    parser.add_argument(
        "-X", "--property", action="append", default=[], metavar="NAME=VALUE", help="property of Kafka's Java client"
    )


def properties(options: argparse.Namespace) -> dict[str, str]:
    """The -X flags."""
    return dict(each.split("=", 1) for each in options.property)


def environment(options: argparse.Namespace) -> StreamExecutionEnvironment:
    """Where the job's operators are added."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(options.max_parallelism)
    return env

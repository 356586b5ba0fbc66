"""Flags that all jobs take, and what they mean to Flink."""

from __future__ import annotations

import argparse

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.util.java_utils import get_j_env_configuration


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
    env.get_config().enable_object_reuse()  # no operator changes what it was given: nothing has to be copied for it
    return env


def stateful(env: StreamExecutionEnvironment, name: str) -> str:
    """Id of an operator with state; it names the execution mode.

    The modes keep state under different types (see jobs.state), and Flink would begin without state where it cannot
    read what is there: so a job that is resumed in the other mode is refused, as for an operator that is missing.
    """
    made_by = get_j_env_configuration(env._j_stream_execution_environment)  # noqa: SLF001  # PyFlink offers no other way
    mode = Configuration(j_configuration=made_by).get_string("python.execution-mode", "process")
    return f"{name}-{mode}"

"""The metrics job: span batches from Kafka → cumulative points of every series, to a compacted topic.

    flink run -d -pyexec PYTHON -py metrics.py --bootstrap broker:9092

It only wires: the stages are those that the embedded runner drives as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from pyflink.common import Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment

from spanlite.pipeline.jobs.functions import DEAD, KEYED, LATE, PIECE, Fold, Plan, Total
from spanlite.pipeline.jobs.kafka import Output, sinks, source
from spanlite.pipeline.jobs.keys import gpu_of_piece, key_of_message
from spanlite.pipeline.jobs.options import add_common, environment, properties, stateful
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.durations import parse_duration_ns


class Streams(NamedTuple):
    """Rows of key and value."""

    points: DataStream
    late: DataStream
    dead: DataStream


def streams(env: StreamExecutionEnvironment, options: argparse.Namespace) -> Streams:
    """Adds the job's operators."""
    plan = Plan(
        policy=WindowPolicy(
            width_ns=parse_duration_ns(options.window),
            lateness_ns=parse_duration_ns(options.lateness),
            idle_ns=parse_duration_ns(options.idle),
        ),
        emit_ms=parse_duration_ns(options.emit) // 10**6,
        retain_ms=parse_duration_ns(options.retain) // 10**6,
        top_k=options.top_k,
        epoch=options.epoch,
    )
    messages = source(
        env, options.bootstrap, options.spans, options.group, properties(options), bounded=options.bounded
    )
    pieces = (
        messages.key_by(key_of_message, key_type=Types.STRING())
        .process(Fold(plan), output_type=PIECE)
        .uid(stateful(env, "fold"))
        .name("fold by producer")
    )
    points = (
        pieces.key_by(gpu_of_piece, key_type=Types.STRING())
        .process(Total(plan), output_type=KEYED)
        .uid(stateful(env, "total"))
        .name("total by GPU")
    )
    return Streams(points, pieces.get_side_output(LATE), pieces.get_side_output(DEAD))


def write(env: StreamExecutionEnvironment, made: Streams, options: argparse.Namespace) -> None:
    """Adds the sinks."""
    outputs = [
        Output(made.points, options.points),
        Output(made.late, options.late),
        Output(made.dead, options.dead),
    ]
    sinks(env, outputs, options.bootstrap, properties(options))


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The job's flags."""
    parser = argparse.ArgumentParser(prog="metrics", description="span batches to cumulative metric points")
    add_common(parser, group="spanlite-metrics")
    parser.add_argument("--points", default="spanlite.points", help="compacted topic of cumulative points")
    parser.add_argument("--late", default="spanlite.late", help="topic of points that came after their window")
    parser.add_argument("--dead", default="spanlite.dead", help="topic of messages that are no batch")
    parser.add_argument("--window", default="10s", help="width of the event-time windows")
    parser.add_argument("--lateness", default="2s", help="a window closes when its producer is so far past its end")
    parser.add_argument("--idle", default="10s", help="or when nothing has come from it for so long")
    parser.add_argument("--emit", default="200ms", help="a series is told at most once in this time")
    parser.add_argument("--top-k", type=int, default=500, help="kernels per GPU with series of their own")
    parser.add_argument(
        "--epoch", type=int, required=True, help="generation of totals without state: submission time, ns"
    )
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    """Submits the job."""
    options = parse(words)
    env = environment(options)
    write(env, streams(env, options), options)
    env.execute(options.name or "spanlite metrics")


if __name__ == "__main__":
    main(sys.argv[1:])

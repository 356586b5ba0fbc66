"""The archive job: span batches from Kafka → Parquet files, each span once.

flink run -d -pyexec PYTHON -py archive.py --bootstrap broker:9092 --archive s3://bucket/traces
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

from spanlite.pipeline.jobs.archiving import Archive, ArchivePlan
from spanlite.pipeline.jobs.kafka import discard, source
from spanlite.pipeline.jobs.keys import key_of_message
from spanlite.pipeline.jobs.options import add_common, environment, properties, stateful
from spanlite.runtime.durations import parse_duration_ns


def build(env: StreamExecutionEnvironment, options: argparse.Namespace) -> None:
    """Adds the job's operators."""
    plan = ArchivePlan(
        archive=options.archive,
        buckets=options.buckets,
        most_spans=options.file_spans,
        flush_ms=parse_duration_ns(options.flush) // 10**6,
        idle_ms=2 * parse_duration_ns(options.flush) // 10**6,
        retain_ms=parse_duration_ns(options.retain) // 10**6,
    )
    messages = source(
        env, options.bootstrap, options.spans, options.group, properties(options), bounded=options.bounded
    )
    written = (
        messages.key_by(key_of_message, key_type=Types.STRING())
        .process(Archive(plan), output_type=Types.ROW([Types.STRING()]))
        .uid(stateful(env, "archive"))
        .name("archive by producer")
    )
    discard(env, written)


def main(words: Sequence[str]) -> None:
    """Submits the job."""
    parser = argparse.ArgumentParser(prog="archive", description="span batches to a Parquet archive")
    add_common(parser, group="spanlite-archive")
    parser.add_argument("--archive", required=True, help="folder or URI, such as s3://bucket/traces")
    parser.add_argument("--buckets", type=int, default=1, help="files an hour and flush, a power of two")
    parser.add_argument("--file-spans", type=int, default=1 << 20, help="spans of a producer that make a file")
    parser.add_argument("--flush", default="60s", help="write what has waited for so long, however little")
    options = parser.parse_args(words)
    env = environment(options)
    build(env, options)
    env.execute(options.name or "spanlite archive")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The peer: the same spans one a record, each parsed and counted in Python, as a stream job is usually written."""

from __future__ import annotations

import math
import struct
import sys

from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

from spanlite.pipeline.jobs.kafka import discard, source

_SPAN = "<Iqq"
"""Kernel number, start, duration: the cheapest record that a span can be."""
_COUNTED = Types.ROW([Types.INT(), Types.INT(), Types.LONG()])


def _bucket(value: bytes) -> Row:
    kernel, _start, duration = struct.unpack(_SPAN, bytes(value))
    return Row(kernel, math.ceil(32 * math.log2(duration / 1e9)), 1)


if __name__ == "__main__":
    bootstrap, topic, group = sys.argv[1:]
    env = StreamExecutionEnvironment.get_execution_environment()
    counted = (
        source(env, bootstrap, topic, group, {}, bounded=True)
        .map(_bucket, output_type=_COUNTED)
        .key_by(lambda row: row[0] * 4096 + row[1], key_type=Types.INT())
        .reduce(lambda one, other: Row(one[0], one[1], one[2] + other[2]))
        .map(lambda row: Row(str(row[2])), output_type=Types.ROW([Types.STRING()]))
    )
    discard(env, counted)
    env.execute("one span a record")

"""The least that a columnar job can do with spans: kernel numbers and durations in, counts by kernel and bucket out.

No names, windows, duplicates, exemplars or totals: how near the metrics job comes to it says what those cost, on a fast
machine and on a slow one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import zstandard
from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment

from spanlite.contract.histogram import bucket_index
from spanlite.pipeline.jobs.kafka import discard, source


class Fold(KeyedProcessFunction):  # type: ignore[misc]  # pyflink ships no types
    """Counts the spans of a message by kernel and bucket; emits how many counters it has touched."""

    def open(self, _context: Any) -> None:
        """Counts of this subtask."""
        self._zstd = zstandard.ZstdDecompressor()
        self._counts = np.zeros(1 << 22, dtype=np.int64)

    def process_element(self, value: Any, _context: Any) -> Iterator[Row]:
        """One message: int64 durations, then uint16 kernels."""
        data = self._zstd.decompress(bytes(value))
        rows = len(data) // 10
        duration = np.frombuffer(data, dtype="<i8", count=rows)
        kernel = np.frombuffer(data, dtype="<u2", offset=8 * rows)
        code, count = np.unique(kernel.astype(np.int64) * 4096 + bucket_index(duration) + 2048, return_counts=True)
        self._counts[code % len(self._counts)] += count
        yield Row(str(len(code)))


if __name__ == "__main__":
    bootstrap, topic, group = sys.argv[1:]
    env = StreamExecutionEnvironment.get_execution_environment()
    folded = (
        source(env, bootstrap, topic, group, {}, bounded=True)
        .key_by(lambda value: value[-1], key_type=Types.INT())
        .process(Fold(), output_type=Types.ROW([Types.STRING()]))
        .name("fold")
    )
    discard(env, folded)
    env.execute("minimal")

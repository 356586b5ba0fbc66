"""Archive: write, compaction and read in spans/s on one core, and bytes per span on disk.

Batches are as large as an agent's, and freed memory is kept, as in the archive job. `arrow_share_of_write` is what of
the writing is spent in Arrow's Parquet writer, which encodes and compresses.

SPANLITE_RECORDINGS names a folder with serve_steady.parquet, a kernel table; else a slice of it in tests/data serves.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanlite.agent.batcher import BATCH_ROWS
from spanlite.contract.batch import Batch, Gpu
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Table, make_columns
from spanlite.contract.names import kernel_id
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.archive.read import read_batches
from spanlite.pipeline.archive.rows import distinct
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.runtime.allocator import keep_freed

REPEATS = 5
FLUSHES = 8
LAUNCH_FIELDS = tuple(CONFIG.fields or ())[2:]
ROOT = Path(__file__).parents[1]


def find_table() -> Path:
    """The recording, else the slice of it that comes with the tests."""
    recording = Path(os.environ.get("SPANLITE_RECORDINGS", "tests/data")) / "serve_steady.parquet"
    return recording if recording.is_file() else ROOT / "tests" / "data" / "serve_slice.parquet"


def launch_table(table: Any, names: list[str], codes: Any) -> tuple[Table, Any]:
    """Distinct launch configurations, and the index of each row's."""
    launches = np.zeros(len(table), dtype=CONFIG)
    for name in table.column_names:
        if name in LAUNCH_FIELDS:
            launches[name] = table[name].to_numpy()
    launches["name"], launches["kernel"] = 1 + codes, 1 + len(names) + codes
    launches["active_warps"], launches["max_warps"], launches["limiter"] = 32, 64, 3
    index, first = distinct(launches)
    return launches[first], index


def read_table(path: Path) -> list[Batch]:
    """The kernel table as a reader of the wire gets it: an agent's batches, each with tables of its own."""
    table = pq.read_table(path)
    kernel = table["kernel"].unify_dictionaries().combine_chunks()
    kernel = kernel.chunk(0) if isinstance(kernel, pa.ChunkedArray) else kernel
    names, codes = kernel.dictionary.to_pylist(), kernel.indices.to_numpy()
    configs, config = launch_table(table, names, codes)
    places = np.zeros(1, dtype=PLACE)
    places["gpu"], places["context_id"], places["stream_id"] = 1, 1, 7
    tables = (("", *names, *map(kernel_id, names)), configs, places, np.zeros(1, NODE), np.zeros(0, TRACE))
    start, duration = table["start_ns"].to_numpy(), table["duration_ns"].to_numpy()
    has_ids = "correlation_id" in table.column_names
    correlation = table["correlation_id"].to_numpy() if has_ids else np.arange(len(table))
    batches = []
    for sequence, at in enumerate(range(0, len(table), BATCH_ROWS)):
        rows = slice(at, at + BATCH_ROWS)
        ids = {"config": config[rows], "correlation": correlation[rows]}
        batch = Batch(
            producer=bytes(range(16)),
            sequence=sequence,
            session=0x0123456789ABCDEF,
            first_row=at,
            emit_ns=int(start[rows].max()) + 5_000_000,
            columns=make_columns(start[rows], duration[rows], tables=tables, **ids),
            resource={"host.name": "node-1", "process.pid": "4711", "workload": "serve"},
            gpus=(Gpu("GPU-8f0d2c6e-1f5c-0b7a-6a77-4f3f0f6b1a52", 0, "NVIDIA H200", 9, 0, 132),),
        )
        batches.append(decode_batch(encode_batch(batch)))
    return batches


def best_rate(spans: int, work: Callable[[], object]) -> float:
    """Spans per second of the best of some runs."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return spans / best


def write(root: Path, batches: list[Batch], *, roll_spans: int) -> ArchiveWriter:
    """Writes all batches, sorting, encoding and syncing included."""
    writer = ArchiveWriter(root, roll_spans=roll_spans)
    for batch in batches:
        writer.add(batch)
    writer.close()
    return writer


def arrow_share(batches: list[Batch], root: Path) -> float:
    """Share of writing that is spent in Arrow's Parquet writer: encoding and compressing its columns."""
    spent = 0.0
    whole = pq.ParquetWriter.write_table

    def timed(*positional: object, **named: object) -> None:
        nonlocal spent
        begin = time.perf_counter()
        whole(*positional, **named)
        spent += time.perf_counter() - begin

    with patch.object(pq.ParquetWriter, "write_table", timed):
        begin = time.perf_counter()
        write(root, batches, roll_spans=1 << 20)
        return spent / (time.perf_counter() - begin)


def measure(batches: list[Batch], folder: Path) -> dict[str, float]:
    """The figures by name."""
    spans = sum(len(batch.columns) for batch in batches)
    figures: dict[str, float] = {"spans": spans}
    figures["write_spans_per_s"] = best_rate(spans, lambda: write(folder / "one", batches, roll_spans=1 << 20))
    figures["arrow_share_of_write"] = arrow_share(batches, folder / "share")
    figures["read_spans_per_s"] = best_rate(spans, lambda: sum(len(b.columns) for b in read_batches(folder / "one")))
    writer = write(folder / "many", batches, roll_spans=max(spans // FLUSHES, 1))
    figures["files_written"] = writer.files_written
    figures["bytes_per_span_written"] = writer.bytes_written / spans
    begin = time.perf_counter()
    done = compact(folder / "many")
    figures["compact_spans_per_s"] = spans / (time.perf_counter() - begin)
    figures["bytes_per_span_compacted"] = sum(entry.bytes_after for entry in done) / spans
    return figures


def main() -> None:
    """Prints the figures; `--json FILE` writes them as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    keep_freed()
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    source = find_table()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(read_table(source), Path(folder))
    print(f"archive, {source.name}")
    for name, value in figures.items():
        print(f"  {name:<28}{value:>16,.2f}")
    if args.json:
        args.json.write_text(json.dumps({"source": source.name, **figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()

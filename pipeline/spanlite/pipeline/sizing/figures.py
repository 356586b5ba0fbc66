"""The measured figures that sizes are reckoned from: one table, refreshed from what the benchmarks write.

Rates are of one core of a small shared virtual machine; a server's are rather better, and those of bench_sizes.py were
taken while it was busy with other work, so a quiet machine's are better still. A figure that nobody has measured is
marked as assumed, and so is all that is reckoned from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spanlite.contract.errors import UsageError


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        value: in `unit`.
        meaning: half a sentence for people.
        script: in benchmarks/, without suffix, that measures it; empty where none does.
        column: its name in that script's JSON, where that is not the figure's own.
        scale: what the number there is multiplied by.
        assumed: nobody has measured it yet.
    """

    value: float
    unit: str
    meaning: str
    script: str = ""
    column: str = ""
    scale: float = 1.0
    assumed: bool = False


FIGURES: dict[str, Figure] = {
    # Agent: the least of its recordings, with traces and stages.
    "agent_spans_per_core_second": Figure(
        2.0e6, "spans/s", "raw CUPTI bytes to batches", "bench_agent", "M spans/s", 1e6
    ),
    "wire_bytes_per_span": Figure(2.73, "B", "of a batch, each span, without a trace", "bench_sizes"),
    "trace_bytes_per_span": Figure(0.22, "B", "more with trace, stage and parent on every kernel", "bench_codec"),
    "wire_bytes_per_batch": Figure(1730, "B", "of a batch, whatever is in it", "bench_sizes"),
    # Fold, without a stream engine.
    "decode_fold_spans_per_core_second": Figure(
        11.0e6, "spans/s", "decode and fold full batches", "bench_fold", "decode + fold + merge M/s", 1e6
    ),
    "fold_seconds_per_batch": Figure(0.0020, "s", "of the fold stage, whatever is in a batch", "bench_sizes"),
    "archive_write_spans_per_core_second": Figure(
        2.45e6, "spans/s", "sort, compress, write", "bench_archive", "write_spans_per_s"
    ),
    "archive_bytes_per_span": Figure(3.46, "B", "compacted Parquet", "bench_archive", "bytes_per_span_compacted"),
    "compact_spans_per_core_second": Figure(
        1.0e6, "spans/s", "spanlite archive compact", "bench_archive", "compact_spans_per_s", assumed=True
    ),
    # Stream jobs, end to end, with broker and Flink on the same two cores: half of what both make.
    "metrics_thread_spans_per_core_second": Figure(2.2e6, "spans/s", "metrics job, thread mode", "bench_flink"),
    "metrics_process_spans_per_core_second": Figure(2.2e6, "spans/s", "metrics job, process mode", "bench_flink"),
    "archive_spans_per_core_second": Figure(0.70e6, "spans/s", "archive job", "bench_flink"),
    "point_records_per_core_second": Figure(
        8_000, "records/s", "total stage and its sink", "bench_flink", assumed=True
    ),
    # State and points.
    "point_bytes": Figure(404, "B", "an encoded cumulative point", "bench_sizes"),
    "point_key_bytes": Figure(16, "B", "key of a point: a hash of its series"),
    "point_compressed_share": Figure(0.27, "", "points in Kafka, zstd over plain", "bench_sizes"),
    "pending_bytes_per_series": Figure(423, "B", "open windows, a series of a batch", "bench_sizes"),
    "state_entry_bytes": Figure(100, "B", "what Flink adds to an entry of keyed state", assumed=True),
    # Exporter and Prometheus. A label set is a kernel, GPU and workload; launch configurations and stages share one.
    "series_per_label_set": Figure(2.4, "", "series that share a label set", "bench_sizes"),
    "exporter_bytes_per_series": Figure(3270, "B", "memory of a series in the exporter", "bench_sizes"),
    "exporter_point_decodes_per_core_second": Figure(41_000, "records/s", "points read", "bench_sizes"),
    "scrape_seconds_per_label_set": Figure(0.00044, "s", "text exposition", "bench_sizes"),
    "scrape_text_bytes_per_label_set": Figure(2870, "B", "text exposition", "bench_sizes"),
    "scrape_native_bytes_per_label_set": Figure(912, "B", "protobuf with native histograms", "bench_sizes"),
    "prometheus_classic_series_per_label_set": Figure(17.1, "", "with classic buckets", "bench_sizes"),
    "prometheus_native_series_per_label_set": Figure(4.07, "", "with native histograms", "bench_sizes"),
    # What no benchmark of ours can say.
    "partition_bytes_per_second": Figure(10e6, "B/s", "that one partition should take", assumed=True),
    "file_message_bytes": Figure(float(16 << 20), "B", "messages of a producer that make a file (archive job)"),
    "hottest_core_share": Figure(0.9, "", "of a core, that the fullest subtask may be busy", assumed=True),
}


def read_figures(path: Path, known: Mapping[str, Figure] | None = None) -> dict[str, Figure]:
    """The table with what a benchmark has measured in place of what stands there; such figures are no more assumed.

    Args:
        path: JSON that a benchmark wrote (its name is the script's), or an object of figures by name, or a folder of
            such files, of which those that measure no figure are passed over.
        known: the table, FIGURES where it is None.

    Raises:
        UsageError: a file cannot be read, or holds none of the figures.
    """
    table = dict(FIGURES if known is None else known)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = 0
    for file in files:
        numbers = _numbers(_load(file))
        for key, figure in table.items():
            mine = numbers.get(key) or (numbers.get(figure.column) if file.stem == figure.script else None)
            if mine is None:
                continue
            # Of several recordings the one that is slowest, or largest in bytes.
            worst = (min if figure.unit.endswith("/s") else max)(mine)
            value = worst * (1.0 if key in numbers else figure.scale)
            if not value > 0:
                raise UsageError(f"{file}: {key} is {value:g}; a figure is above 0, measure it again")
            table[key] = replace(figure, value=value, assumed=False)
            found += 1
    if not found:
        raise UsageError(
            f"{path}: none of the figures is in there; give what a benchmark wrote with --json, a folder of such "
            f"files, or an object with one of {', '.join(FIGURES)}"
        )
    return table


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that a benchmark wrote with --json") from error
    except ValueError as error:
        raise UsageError(f"{file}: no JSON ({error}); name a file that a benchmark wrote with --json") from error


def _numbers(loaded: Any) -> dict[str, list[float]]:
    """Numbers of an object, of its rows, and of rows that are a figure and its value each."""
    found: dict[str, list[float]] = {}
    for name, value in _pairs(loaded):
        if isinstance(value, int | float) and not isinstance(value, bool):
            found.setdefault(name, []).append(float(value))
    return found


def _pairs(loaded: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(loaded, list):
        for row in loaded:
            yield from _pairs(row)
    elif isinstance(loaded, dict):
        if isinstance(loaded.get("figure"), str) and "value" in loaded:
            yield loaded["figure"], loaded["value"]
            return
        yield from loaded.items()
        for value in loaded.values():
            yield from _pairs(value)

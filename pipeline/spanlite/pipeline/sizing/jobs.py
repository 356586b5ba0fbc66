"""The two stream jobs: cores, slots, state, files."""

from __future__ import annotations

import math

from spanlite.pipeline.sizing.request import Request
from spanlite.pipeline.sizing.sheet import Sheet
from spanlite.pipeline.sizing.skew import MOST_PARALLELISM, hottest_share, max_parallelism, parallelism

FULL_BATCH = 8192
"""Spans of the batches that rates were measured with."""
_PARTIALS = 16
"""windows.Windows merges what is pending when there are so many."""


def metrics_job(s: Sheet, r: Request) -> None:
    """Folding by producer, totals by GPU, and the state of both."""
    s.section(f"Metrics job, {r.mode} mode")
    s.product("fold_cores", "folding", "cores", ["spans"], [f"metrics_{r.mode}_spans_per_core_second"])
    extra = max(0.0, s["batches"] - s["spans"] / FULL_BATCH) * s["fold_seconds_per_batch"]
    formula = "( batches - spans / full_batch ) × fold_seconds_per_batch , at least 0"
    s.line("batch_cores", "more for batches that are not full", "cores", extra, formula)
    s.product("total_cores", "totals and points", "cores", ["point_records"], ["point_records_per_core_second"])
    s.total("metrics_busy", "busy in all", "cores", ["fold_cores", "batch_cores", "total_cores"])
    _subtasks(s, "metrics", "gpus")
    s.line(
        "series_state",
        "state of a series",
        "B",
        s["point_bytes"] + 2 * s["point_key_bytes"] + s["state_entry_bytes"],
        "point_bytes + 2 × point_key_bytes + state_entry_bytes",
    )
    s.product("totals_state", "state of all series", "B", ["series", "series_state"])
    rows = min(math.ceil(r.series_per_gpu / r.processes_per_gpu), s["batch"])
    formula = "least of series_per_gpu / processes_per_gpu , rounded up, and batch"
    s.line("pending_rows", "series in a batch, at most", "", rows, formula)
    partials = min(_PARTIALS, math.ceil(s["process_spans"] * (r.window_s + r.lateness_s) / s["batch"]))
    formula = f"least of {_PARTIALS} and process_spans × ( window_s + lateness_s ) / batch , rounded up"
    s.line("partials", "batches of a process that wait, at most", "", partials, formula)
    times = ["producers", "partials", "pending_rows", "pending_bytes_per_series"]
    s.product("pending_state", "state of all processes, at most", "B", times)
    s.total("metrics_state", "a checkpoint, at most", "B", ["totals_state", "pending_state"])
    s.product("metrics_checkpoint_rate", "checkpoints, if whole", "B/s", ["metrics_state"], ["checkpoint_interval_s"])


def archive_job(s: Sheet, r: Request) -> None:
    """Writing, what waits to be written, and what lies on the disk."""
    s.section("Archive job")
    s.product("archive_busy", "busy in all", "cores", ["spans"], ["archive_spans_per_core_second"])
    _subtasks(s, "archive", "producers")
    by_time, by_bytes = s["process_spans"] * r.archive_flush_s, s["file_message_bytes"] / s["span_bytes"]
    s.line(
        "flush_spans",
        "spans of a flush",
        "",
        max(1.0, min(r.file_spans, by_time, by_bytes)),
        "least of file_spans and process_spans × archive_flush_s and file_message_bytes / span_bytes , at least 1",
    )
    s.product("files", "files before compaction", "files/h", ["spans", "hour", "buckets"], ["flush_spans"])
    s.product("archive_state", "a checkpoint, at most", "B", ["producers", "flush_spans", "span_bytes"])
    s.product("archive_checkpoint_rate", "checkpoints, if whole", "B/s", ["archive_state"], ["checkpoint_interval_s"])
    s.product("archive_rate", "into the archive, compacted", "B/s", ["spans", "archive_bytes_per_span"])
    s.product("archive_disk", "archive", "B", ["archive_rate", "archive_retention_s"])
    s.product("compaction_busy", "compaction", "cores", ["spans"], ["compact_spans_per_core_second"])


def _subtasks(s: Sheet, job: str, keys: str) -> None:
    """Subtasks of a job whose `<job>_busy` cores are spread by a hash of `keys`, and how busy the fullest is."""
    spread = s["rate_spread"]
    slots = parallelism(s[f"{job}_busy"], s[keys], spread, mean=s["headroom"], hottest=s["hottest_core_share"])
    s.line(
        f"{job}_slots",
        "slots (parallelism)",
        "",
        slots,
        f"fewest with {job}_busy / slots ≤ headroom and, with {keys} keys, the fullest ≤ hottest_core_share",
    )
    skew = slots * hottest_share(s[keys], slots, spread)
    formula = f"{keys} keys, sigma rate_spread , over {job}_slots subtasks"
    s.line(f"{job}_skew", "fullest subtask over the mean", "", skew, formula)
    s.product(
        f"{job}_hottest", "busy in the fullest subtask", "cores", [f"{job}_busy", f"{job}_skew"], [f"{job}_slots"]
    )
    formula = f"power of two ≥ 16 × {job}_slots , 128 to {MOST_PARALLELISM:,}"
    s.line(f"{job}_max_parallelism", "maximum parallelism, fixed at first start", "", max_parallelism(slots), formula)

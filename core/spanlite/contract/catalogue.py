"""The metric catalogue as data: every metric that spanlite exposes, once, for code, docs, rules and dashboards.

Code names a metric by its constant (`catalogue.KERNEL_LAUNCHES.name`), so a typo fails the type check.
`python -m spanlite.contract.catalogue` writes docs/metrics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class MetricType(Enum):
    """Prometheus's types; the value is the word of the exposition formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric family.

    Attributes:
        name: as Prometheus stores it: counters end in _total, infos in _info.
        unit: base unit that ends the name (before _total), or empty.
        labels: every label it may carry; one that is empty is left out.
        meaning: one sentence for HELP and the docs.
        group: heading in docs/metrics.md.
    """

    name: str
    type: MetricType
    unit: str
    labels: tuple[str, ...]
    meaning: str
    group: str


CATALOGUE: dict[str, MetricSpec] = {}
"""Every metric by its name, in the order of the docs."""

_WORKLOAD = ("namespace", "pod", "container")
_GPU = "GPU work"
_ACHIEVED = "Hardware counters"
_INFO = "Identity"
_AGENT = "Agent"
_PIPELINE = "Pipeline"
_EXPORTER = "Exporter"


def _add(name: str, meaning: str, *, group: str, labels: tuple[str, ...] = (), unit: str = "") -> MetricSpec:
    """Enters a metric; the end of the name says its type, as Prometheus's conventions have it."""
    if name.endswith("_total"):
        kind = MetricType.COUNTER
    elif name.endswith("_info"):
        kind = MetricType.INFO
    elif name.endswith("_duration_seconds"):
        kind = MetricType.HISTOGRAM
    else:
        kind = MetricType.GAUGE
    if name in CATALOGUE or not name.removesuffix("_total").endswith(unit):
        raise AssertionError(f"catalogue: {name} is there twice, or does not end in its unit {unit}")
    spec = CATALOGUE[name] = MetricSpec(name, kind, unit, labels, meaning, group)
    return spec


KERNEL_DURATION = _add(
    "spanlite_kernel_duration_seconds",
    "Time that executions of a kernel took on the GPU.",
    group=_GPU,
    labels=("UUID", "kernel", *_WORKLOAD),
    unit="seconds",
)
KERNEL_LAUNCHES = _add(
    "spanlite_kernel_launches_total",
    "Executions of a kernel.",
    group=_GPU,
    labels=("UUID", "kernel", *_WORKLOAD),
)
KERNEL_OCCUPANCY = _add(
    "spanlite_kernel_theoretical_occupancy_ratio",
    "Theoretical occupancy of a kernel, 0 to 1: mean over its launch configurations, weighted by GPU time.",
    group=_GPU,
    labels=("UUID", "kernel", *_WORKLOAD),
    unit="ratio",
)
KERNEL_LIMITER_TIME = _add(
    "spanlite_kernel_limiter_time_seconds_total",
    "GPU time of a kernel by the resource that limits its theoretical occupancy.",
    group=_GPU,
    labels=("UUID", "kernel", "limiter"),
    unit="seconds",
)
STAGE_TIME = _add(
    "spanlite_stage_time_seconds_total",
    "GPU time of kernels by the stage (innermost named range) that launched them; no stage label where there was none.",
    group=_GPU,
    labels=("UUID", "stage", *_WORKLOAD),
    unit="seconds",
)
MEMCPY_DURATION = _add(
    "spanlite_memcpy_duration_seconds",
    "Time that memory copies took.",
    group=_GPU,
    labels=("UUID", "direction", *_WORKLOAD),
    unit="seconds",
)
MEMCPY_BYTES = _add(
    "spanlite_memcpy_bytes_total",
    "Bytes moved by memory copies.",
    group=_GPU,
    labels=("UUID", "direction", *_WORKLOAD),
    unit="bytes",
)
MEMSET_DURATION = _add(
    "spanlite_memset_duration_seconds",
    "Time that memory sets took.",
    group=_GPU,
    labels=("UUID", *_WORKLOAD),
    unit="seconds",
)
MEMSET_BYTES = _add(
    "spanlite_memset_bytes_total",
    "Bytes written by memory sets.",
    group=_GPU,
    labels=("UUID", *_WORKLOAD),
    unit="bytes",
)

GPU_SM_ACTIVE = _add(
    "spanlite_gpu_sm_active_ratio",
    "Share of the last second's samples in which SMs had work, 0 to 1: mean over SMs and time.",
    group=_ACHIEVED,
    labels=("UUID",),
    unit="ratio",
)
GPU_TENSOR_ACTIVE = _add(
    "spanlite_gpu_tensor_active_ratio",
    "Likewise, the share in which tensor cores were active.",
    group=_ACHIEVED,
    labels=("UUID",),
    unit="ratio",
)
GPU_WARPS_ACTIVE = _add(
    "spanlite_gpu_warps_active_ratio",
    "Likewise, warps that were resident, of the most that fit; divided by the ratio of SMs it is achieved occupancy.",
    group=_ACHIEVED,
    labels=("UUID",),
    unit="ratio",
)
GPU_DRAM_READ = _add(
    "spanlite_gpu_dram_read_bytes_total",
    "Bytes read from the GPU's memory while it was sampled.",
    group=_ACHIEVED,
    labels=("UUID",),
    unit="bytes",
)
GPU_DRAM_WRITE = _add(
    "spanlite_gpu_dram_write_bytes_total",
    "Bytes written to the GPU's memory while it was sampled.",
    group=_ACHIEVED,
    labels=("UUID",),
    unit="bytes",
)
GPU_L2_SECTORS = _add(
    "spanlite_gpu_l2_sectors_total",
    "Sectors of 32 bytes that the L2 cache was asked for while the GPU was sampled.",
    group=_ACHIEVED,
    labels=("UUID",),
)
KERNEL_ACHIEVED = _add(
    "spanlite_kernel_achieved_occupancy_ratio",
    "Achieved occupancy of a kernel, 0 to 1, in samples in which it ran alone: mean since counting began, weighted by "
    "the time in which SMs were active.",
    group=_ACHIEVED,
    labels=("UUID", "kernel"),
    unit="ratio",
)
KERNEL_ACHIEVED_ACTIVE = _add(
    "spanlite_kernel_achieved_active_seconds_total",
    "Time in which SMs were active, mean over SMs, in samples in which a kernel ran alone.",
    group=_ACHIEVED,
    labels=("UUID", "kernel"),
    unit="seconds",
)
KERNEL_ACHIEVED_WARPS = _add(
    "spanlite_kernel_achieved_warp_seconds_total",
    "The same time, times achieved occupancy: its rate by that of the active seconds is the occupancy of that while.",
    group=_ACHIEVED,
    labels=("UUID", "kernel"),
    unit="seconds",
)

GPU_INFO = _add(
    "spanlite_gpu_info",
    "1 for each GPU or MIG instance; UUID joins with the series of dcgm-exporter.",
    group=_INFO,
    labels=("UUID", "gpu", "hostname", "pci_bus_id", "device", "model_name", "GPU_I_PROFILE", "GPU_I_ID"),
)
KERNEL_INFO = _add(
    "spanlite_kernel_info",
    "1 for each kernel id, with the first full name seen for it, cut at 200 characters.",
    group=_INFO,
    labels=("kernel", "name"),
)
BUILD_INFO = _add(
    "spanlite_build_info",
    "1, with the version that serves these metrics.",
    group=_INFO,
    labels=("version", "revision", "python"),
)

AGENT_BUFFERS_RECEIVED = _add(
    "spanlite_agent_buffers_received_total", "Activity buffers handed over by traced processes.", group=_AGENT
)
AGENT_FRAMES_LOST = _add(
    "spanlite_agent_frames_lost_total", "Frames of traced processes that never arrived, by their numbers.", group=_AGENT
)
AGENT_RECORDS_SKIPPED = _add(
    "spanlite_agent_records_skipped_total",
    "Activity records that are no spans, or of a kind this version does not read.",
    group=_AGENT,
    labels=("kind",),
)
AGENT_SPANS_RECEIVED = _add("spanlite_agent_spans_received_total", "Spans decoded from activity buffers.", group=_AGENT)
AGENT_SPANS_DROPPED = _add(
    "spanlite_agent_spans_dropped_total",
    "Spans the agent gave up, by reason.",
    group=_AGENT,
    labels=("reason",),
)
AGENT_OBSERVATIONS_RECEIVED = _add(
    "spanlite_agent_observations_received_total",
    "Observations of custom metrics, those that programs dropped themselves included; they are among the spans.",
    group=_AGENT,
)
AGENT_OBSERVATIONS_DROPPED = _add(
    "spanlite_agent_observations_dropped_total",
    "Observations given up by a program or the agent, by reason; among the dropped spans as observation_REASON.",
    group=_AGENT,
    labels=("reason",),
)
AGENT_SPANS_SENT = _add("spanlite_agent_spans_sent_total", "Spans handed on in batches.", group=_AGENT)
AGENT_SPANS_SAMPLED_OUT = _add(
    "spanlite_agent_spans_sampled_out_total",
    "Spans of traces that --sample-traces leaves out; no loss, since those kept stand for them.",
    group=_AGENT,
)
AGENT_WEIGHTS_CAPPED = _add(
    "spanlite_agent_weights_capped_total",
    "Spans that stand for more than 2^32 - 1 executions and say so many: windows and --sample-traces together.",
    group=_AGENT,
)
AGENT_SPANS_UNSTAGED = _add(
    "spanlite_agent_spans_stage_unknown_total",
    "Spans whose stage could not be told, since their records contradict each other.",
    group=_AGENT,
)
AGENT_BATCHES_SENT = _add(
    "spanlite_agent_batches_sent_total", "Batches handed on, by outcome.", group=_AGENT, labels=("outcome",)
)
AGENT_BATCH_BYTES = _add(
    "spanlite_agent_batch_bytes_total", "Bytes of the batches handed on.", group=_AGENT, unit="bytes"
)
AGENT_SEND_FAILURES = _add(
    "spanlite_agent_send_failures_total",
    "Deliveries that failed and are tried again, by reason.",
    group=_AGENT,
    labels=("reason",),
)
AGENT_SPANS_RECOVERED = _add(
    "spanlite_agent_spans_recovered_total", "Spans that the spool held when the agent started.", group=_AGENT
)
AGENT_SPOOL_SPANS = _add("spanlite_agent_spool_spans", "Spans that wait in the spool.", group=_AGENT)
AGENT_SPOOL_RECORDS = _add("spanlite_agent_spool_records", "Batches that wait in the spool.", group=_AGENT)
AGENT_SPOOL_BYTES = _add(
    "spanlite_agent_spool_bytes", "Bytes of the spool's files on disk.", group=_AGENT, unit="bytes"
)
AGENT_SPOOL_LIMIT = _add(
    "spanlite_agent_spool_limit_bytes", "Bytes that the spool's files may take.", group=_AGENT, unit="bytes"
)
AGENT_SPOOL_MEMORY = _add(
    "spanlite_agent_spool_memory_bytes",
    "Bytes of batches that are in memory only, since the disk would not take them.",
    group=_AGENT,
    unit="bytes",
)
AGENT_SPOOL_DEGRADED = _add(
    "spanlite_agent_spool_degraded", "1 while the spool's disk takes nothing and batches stay in memory.", group=_AGENT
)
AGENT_SPOOL_OLDEST = _add(
    "spanlite_agent_spool_oldest_timestamp_seconds",
    "Time of the oldest data that waits in the spool, as Unix time; absent when nothing waits.",
    group=_AGENT,
    unit="seconds",
)
AGENT_SPOOL_QUARANTINED = _add(
    "spanlite_agent_spool_quarantined_files", "Files of the spool that were put aside, unreadable.", group=_AGENT
)
AGENT_SPOOL_RECORDS_LOST = _add(
    "spanlite_agent_spool_records_lost_total",
    "Batches that the spool lost, by reason; their spans are among the dropped where they are known.",
    group=_AGENT,
    labels=("reason",),
)
AGENT_SPOOL_FAULTS = _add(
    "spanlite_agent_spool_faults_total",
    "What was found wrong with the spool's disk, by kind.",
    group=_AGENT,
    labels=("kind",),
)

AGENT_IDENTITIES = _add(
    "spanlite_agent_identities_total",
    "Identities of traced processes, one a connection, by what the kernel told: pod, container, slurm, host, hidden (a "
    "process of another pid namespace), gone (ended meanwhile), timeout.",
    group=_AGENT,
    labels=("outcome",),
)
AGENT_IDENTITY_SOURCE = _add(
    "spanlite_agent_identity_source_info",
    "1 for each source of identities, with how it stands: ok, not_asked, absent, not_installed, no_driver, forbidden, "
    "timeout, failed.",
    group=_AGENT,
    labels=("source", "state"),
)
AGENT_GPUS_UNVERIFIED = _add(
    "spanlite_agent_gpus_unverified_total", "GPUs that processes named and the driver does not list.", group=_AGENT
)
AGENT_COLLECTORS = _add(
    "spanlite_agent_collectors",
    "Connected collectors by the state that they told last and how much they record: full, duty or none; untold where "
    "they told nothing.",
    group=_AGENT,
    labels=("state", "sampling"),
)
AGENT_CONNECTIONS_REFUSED = _add(
    "spanlite_agent_connections_refused_total",
    "Connections hung up on before their first frame, by reason: uid_connections, uid_rate, connections, threads.",
    group=_AGENT,
    labels=("reason",),
)
AGENT_STAMPS_DROPPED = _add(
    "spanlite_agent_stamps_dropped_total", "Range boundaries that collectors had no room for.", group=_AGENT
)
AGENT_QUOTA_PAUSES = _add(
    "spanlite_agent_quota_pauses_total",
    "Frames that cannot be dropped, such as names and range boundaries, whose process had to wait for its quota.",
    group=_AGENT,
)
AGENT_FRAME_MEMORY = _add(
    "spanlite_agent_frame_memory_bytes",
    "Bytes of large frames that are being read, wait, or are worked off.",
    group=_AGENT,
    unit="bytes",
)
AGENT_CLOCK_UNCERTAINTY = _add(
    "spanlite_agent_clock_uncertainty_seconds",
    "Largest uncertainty of the newest clock reading of each connected process; absent without readings.",
    group=_AGENT,
    unit="seconds",
)
AGENT_CLOCK_OFFSET = _add(
    "spanlite_agent_clock_offset_seconds",
    "CUPTI's clock minus Unix time in the newest reading of that connected process in which they are furthest apart.",
    group=_AGENT,
    unit="seconds",
)
AGENT_CLOCK_STEPS = _add(
    "spanlite_agent_clock_steps_total",
    "Times that the node's Unix clock was set by more than 0.1 s, beside its monotonic clock.",
    group=_AGENT,
)

AGENT_COUNTERS_STATE = _add(
    "spanlite_agent_counters_state",
    "1 for each GPU whose hardware counters are to be sampled, with how that stands: starting, sampling, slowed, "
    "forbidden, busy, unsupported, gone, failed, stuck, unavailable, absent.",
    group=_AGENT,
    labels=("UUID", "state"),
)
AGENT_COUNTER_SAMPLES = _add(
    "spanlite_agent_counter_samples_total",
    "Samples of hardware counters by whose they were: owned (one kernel's), partial (one kernel ran for a part of it), "
    "shared (several ran), copy (a memory set or copy), idle, unseen (SMs were active, and no span says why), "
    "incomplete (of that time not all spans are known).",
    group=_AGENT,
    labels=("fate",),
)
AGENT_COUNTER_LOST = _add(
    "spanlite_agent_counter_lost_total",
    "Samples of hardware counters that never came or were given up, by reason: overflow (the GPU's buffer was full), "
    "gap, order (older than one before), value (no such number), held (nobody fetched them), stopped.",
    group=_AGENT,
    labels=("reason",),
)
AGENT_COUNTER_OVERFLOWS = _add(
    "spanlite_agent_counter_overflows_total", "Times that a GPU's buffer of samples was full.", group=_AGENT
)
AGENT_COUNTER_LATE_SPANS = _add(
    "spanlite_agent_counter_late_spans_total",
    "Spans that came after samples of their time had been given to kernels, or to none.",
    group=_AGENT,
)
AGENT_COUNTER_DECODE = _add(
    "spanlite_agent_counter_decode_seconds_total",
    "Time that decoding samples of hardware counters took.",
    group=_AGENT,
    unit="seconds",
)

PIPELINE_BATCHES_RECEIVED = _add("spanlite_pipeline_batches_received_total", "Batches read.", group=_PIPELINE)
PIPELINE_BATCHES_REJECTED = _add(
    "spanlite_pipeline_batches_rejected_total",
    "Batches that could not be decoded or claim what cannot be, by reason.",
    group=_PIPELINE,
    labels=("reason",),
)
PIPELINE_SPANS_RECEIVED = _add("spanlite_pipeline_spans_received_total", "Spans in batches read.", group=_PIPELINE)
PIPELINE_SPANS_FOLDED = _add("spanlite_pipeline_spans_folded_total", "Spans counted in a window.", group=_PIPELINE)
PIPELINE_SPANS_IGNORED = _add(
    "spanlite_pipeline_spans_ignored_total",
    "Spans that belong to no window, by reason: named ranges, batches seen before.",
    group=_PIPELINE,
    labels=("reason",),
)
PIPELINE_LATE_SPANS = _add(
    "spanlite_pipeline_late_spans_total",
    "Spans that came after their window had closed; they are among the folded, and told by points of their own.",
    group=_PIPELINE,
)
PIPELINE_SEQUENCES_GIVEN_UP = _add(
    "spanlite_pipeline_sequences_given_up_total",
    "Batches that had not come when their gap among a producer's numbers was closed to bound memory, by the step that "
    "did so; one that comes after that is taken for a duplicate.",
    group=_PIPELINE,
    labels=("stage",),
)
PIPELINE_SPANS_ARCHIVED = _add("spanlite_pipeline_spans_archived_total", "Spans written to Parquet.", group=_PIPELINE)
PIPELINE_WINDOWS_CLOSED = _add(
    "spanlite_pipeline_windows_closed_total",
    "Windows closed, those of each producer for themselves; one that late spans add to counts once more.",
    group=_PIPELINE,
)
PIPELINE_POINTS_EMITTED = _add("spanlite_pipeline_points_emitted_total", "Metric points handed on.", group=_PIPELINE)
PIPELINE_LAST_EVENT = _add(
    "spanlite_pipeline_last_event_timestamp_seconds",
    "Start of the newest span that a step has handled, as Unix time.",
    group=_PIPELINE,
    labels=("stage",),
    unit="seconds",
)

SERIES_CAPPED = _add(
    "spanlite_series_capped_total",
    "Label sets folded into others, since the family had reached its cap.",
    group=_EXPORTER,
    labels=("family",),
)
EXPORTER_CUSTOM_REFUSED = _add(
    "spanlite_exporter_custom_series_refused_total",
    "Series of custom metrics that are not shown, by reason: cap (their family, or the number of families, had "
    "reached its cap), collision (the name is another metric's, or another kind's), labels (two alike), name (none).",
    group=_EXPORTER,
    labels=("reason",),
)
EXPORTER_SERIES = _add(
    "spanlite_exporter_series", "Series of points that were heard of within the expiry.", group=_EXPORTER
)
EXPORTER_POINTS = _add(
    "spanlite_exporter_points_total",
    "Points offered, by outcome: newest (held now), older (tells of no more than the held one: ignored), "
    "restarted (counting began anew at zero, and goes on from what was held), refused (of a custom series not shown).",
    group=_EXPORTER,
    labels=("outcome",),
)
EXPORTER_DROPPED = _add(
    "spanlite_exporter_series_dropped_total",
    "Series no longer shown, by reason: expired (not heard of for long), removed (ended by a tombstone).",
    group=_EXPORTER,
    labels=("reason",),
)
EXPORTER_LAST_EVENT = _add(
    "spanlite_exporter_last_event_timestamp_seconds",
    "End of the newest window that a point told of, as Unix time.",
    group=_EXPORTER,
    unit="seconds",
)
EXPORTER_RECORDS = _add("spanlite_exporter_records_total", "Records read from the topic of points.", group=_EXPORTER)
EXPORTER_TOMBSTONES = _add(
    "spanlite_exporter_tombstones_total", "Records that end a series instead of telling of it.", group=_EXPORTER
)
EXPORTER_REJECTED = _add(
    "spanlite_exporter_points_rejected_total",
    "Records that are no point to show, by reason.",
    group=_EXPORTER,
    labels=("reason",),
)
EXPORTER_SCRAPES = _add(
    "spanlite_exporter_scrapes_total", "Answers of the metrics endpoint.", group=_EXPORTER, labels=("format",)
)

_HEAD = """# Metrics

Written by `python -m spanlite.contract.catalogue`; change core/spanlite/contract/catalogue.py instead.

- `UUID` is the GPU's, as dcgm-exporter spells it: `… * on(UUID) group_left(model_name) spanlite_gpu_info`, or
  `… and on(UUID) DCGM_FI_DEV_XID_ERRORS > 0`. (`model_name` is dcgm-exporter's `modelName`, in snake case as promtool
  wants it.) Spans carry the process that launched them, so figures by pod are measured even where pods share a GPU.
- `kernel` is a bounded id; `spanlite_kernel_info` gives the full name. A label without a value is left out.
- Histograms come classic (`le` = 4^-10, 4^-9 … 4^0 seconds, about 1 µs to 1 s: counts are exact at these bounds) and,
  to a Prometheus that scrapes protobuf, native as well (schema 5: buckets are 2.2 % wide).
- Each family holds up to a cap of label sets (2,000), first come, first served; within one hand-over the one with most
  GPU time comes first. A label set that has its own series keeps it, so no counter falls. What comes after the cap adds
  to `kernel="other"` (or `stage="other"`) of its GPU, and is counted in `spanlite_series_capped_total`.
- [Custom metrics](custom-metrics.md) have families of their own, `spanlite_custom_…`; what is beyond their cap is
  refused, not folded, and counted.
- State that begins anew at zero adds to what its series had. A point that counts less than the held one in any bucket,
  from a job that went back to its checkpoint, is ignored.
- A label set of which nothing was heard for the expiry (24 h of the spans' time) is no longer shown.
- Aggregate the occupancy weighted by time, never as a mean of ratios. With `T` for
  `rate(spanlite_kernel_duration_seconds_sum[5m])`, or `histogram_sum(rate(spanlite_kernel_duration_seconds[5m]))` where
  histograms are native: `sum(spanlite_kernel_theoretical_occupancy_ratio * T) / sum(T)`.

What must add up:

    spanlite_agent_spans_received_total + spanlite_agent_spans_recovered_total
                                           = spanlite_agent_spans_sent_total + spanlite_agent_spans_dropped_total
                                             + spanlite_agent_spans_sampled_out_total + spanlite_agent_spool_spans
    spanlite_pipeline_spans_received_total = spanlite_pipeline_spans_folded_total
                                             + spanlite_pipeline_spans_ignored_total
    spanlite_exporter_records_total        = spanlite_exporter_points_total + spanlite_exporter_tombstones_total
                                             + spanlite_exporter_points_rejected_total
"""


def markdown(catalogue: Mapping[str, MetricSpec] = CATALOGUE) -> str:
    """The page docs/metrics.md."""
    lines = [_HEAD]
    group = ""
    for spec in catalogue.values():
        if spec.group != group:
            group = spec.group
            lines += [f"\n## {group}\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"]
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        lines += [f"| `{spec.name}` | {spec.type.value} | {spec.unit} | {labels} | {spec.meaning} |\n"]
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(markdown())

"""What stands around the jobs: brokers with their disks, exporters, Prometheus."""

from __future__ import annotations

import math

from spanlite.pipeline.sizing.request import Request
from spanlite.pipeline.sizing.sheet import Sheet
from spanlite.pipeline.sizing.skew import hottest_share, power_of_two

FEWEST_PARTITIONS = 4
"""What `spanlite topics create` makes unless told otherwise."""


def kafka(s: Sheet, r: Request) -> None:
    """Brokers, partitions, disks."""
    s.section("Kafka")
    both = s["ingress"] + s["points_in"]
    s.line("written", "all brokers write", "B/s", both * r.replication, "( ingress + points_in ) × replication")
    brokers = max(r.replication, math.ceil(s["written"] / s["broker_bytes"]))
    s.line("brokers", "brokers", "", brokers, "most of replication and written / broker_bytes , rounded up")
    s.product("broker_written", "a broker writes", "B/s", ["written"], ["brokers"])
    sent = both * (r.replication - 1) + 2 * s["ingress"] + s["points_in"]
    formula = "( ( ingress + points_in ) × ( replication - 1 ) + 2 × ingress + points_in ) / brokers"
    s.line("broker_sent", "a broker sends", "B/s", sent / brokers, formula)
    least = f"power of two ≥ {FEWEST_PARTITIONS} and metrics_slots and archive_slots"
    formula = f"{least} , the fullest ≤ partition_bytes_per_second"
    s.line("partitions", "partitions of spans and of points", "", _partitions(s, r), formula)
    skew = s["partitions"] * hottest_share(r.gpus, int(s["partitions"]), r.rate_spread)
    formula = "gpus keys, sigma rate_spread , over partitions"
    s.line("partition_skew", "fullest partition over the mean", "", skew, formula)
    s.product(
        "hottest_partition", "spans into the fullest partition", "B/s", ["ingress", "partition_skew"], ["partitions"]
    )
    s.product("spans_disk", "spans on all disks", "B", ["ingress", "retention_s", "replication"])
    s.product("broker_disk", "spans on a broker's disk", "B", ["spans_disk"], ["brokers"])
    active = min(s["points_in"] * s["hour"], s["partitions"] * s["segment_bytes"])
    formula = "least of points_in × hour and partitions × segment_bytes"
    s.line("points_active", "points that are not compacted yet", "B", active, formula)
    newest = s["series"] * s["record_bytes"] * s["point_compressed_share"]
    formula = "( series × record_bytes × point_compressed_share + points_active ) × replication"
    s.line("points_disk", "points on all disks", "B", (newest + active) * r.replication, formula)


def exporters(s: Sheet, r: Request) -> None:
    """Exporters, their memory and answers, and what Prometheus keeps."""
    s.section("Exporter and Prometheus")
    s.product("label_sets", "label sets", "", ["series"], ["series_per_label_set"])
    s.product("reading", "reading points", "cores", ["point_records"], ["exporter_point_decodes_per_core_second"])
    s.product("scrape_s", "writing everything for a scrape", "s", ["label_sets", "scrape_seconds_per_label_set"])
    shares = math.ceil(max(s["reading"] / r.headroom, s["scrape_s"] / r.scrape_timeout_s / r.headroom, 1.0))
    formula = "at least 1, most of reading / headroom and scrape_s / scrape_timeout_s / headroom , rounded up"
    s.line("exporters", "exporters, each for a share of the GPUs", "", shares, formula)
    s.product("exporter_gpus", "GPUs of an exporter", "", ["gpus"], ["exporters"])
    s.product("exporter_memory", "memory of an exporter", "B", ["series", "exporter_bytes_per_series"], ["exporters"])
    s.product("scrape_text", "a scrape, text", "B", ["label_sets", "scrape_text_bytes_per_label_set"], ["exporters"])
    native = ["label_sets", "scrape_native_bytes_per_label_set"]
    s.product("scrape_native", "a scrape, native histograms", "B", native, ["exporters"])
    classic = ["label_sets", "prometheus_classic_series_per_label_set"]
    s.product("prometheus_classic", "Prometheus series, classic buckets", "", classic)
    native = ["label_sets", "prometheus_native_series_per_label_set"]
    s.product("prometheus_native", "Prometheus series, native histograms", "", native)


def exporter_start(s: Sheet) -> None:
    """How long an exporter reads before it answers; needs `kafka` and `exporters`."""
    records = s["points_active"] / s["record_bytes"] / s["point_compressed_share"] + s["series"]
    formula = "points_active / record_bytes / point_compressed_share + series"
    s.line("start_records", "records read at an exporter's start", "", records, formula)
    over = ["exporter_point_decodes_per_core_second", "exporters"]
    s.product("exporter_start", "an exporter's start", "s", ["start_records"], over)


def _partitions(s: Sheet, r: Request) -> int:
    """Enough for the slots, and none too full, though never more for that than there are keys."""
    found = power_of_two(max(FEWEST_PARTITIONS, s["metrics_slots"], s["archive_slots"]))
    most = s["partition_bytes_per_second"]
    while found < r.gpus and s["ingress"] * hottest_share(r.gpus, found, r.rate_spread) > most:
        found *= 2
    return found

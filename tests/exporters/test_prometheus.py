"""Text and OpenMetrics, read back by prometheus_client's parsers and judged by promtool."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from spanlite.contract.batch import Gpu
from spanlite.contract.columns import Kind
from spanlite.contract.points import Point, Series
from spanlite.exporters.families import families
from spanlite.exporters.prometheus import openmetrics, text
from spanlite.exporters.table import PointTable

MakePoint = Callable[..., Point]
Parse = Callable[[str], Iterator[Metric]]
BOTH = pytest.mark.parametrize(
    ("write", "parse"), [(text, parse_text), (openmetrics, parse_openmetrics)], ids=["text", "openmetrics"]
)
HOSTILE = [
    'quote"back\\slash',
    "line\nbreak",
    "nul\0",
    "lone\ud800",
    "x" * 1_000_000,
    '"} 1\n# EOF\n',
    "ünï✓",
    "a,b={}",
]


@pytest.fixture
def full(serve_points: list[Point], make_point: MakePoint) -> PointTable:
    """A table with every GPU family, and own metrics."""
    table = PointTable()
    table.put(serve_points)
    table.put([make_point(Series("GPU-1", kind, "x", pod="p"), [1000], moved=8) for kind in (Kind.MEMCPY, Kind.MEMSET)])
    table.gpu_info([Gpu("GPU-1", 0, "NVIDIA H200", 9, 0, 132, "0000:01:00.0")], host="node-1")
    table.set_counters(
        lambda: {
            "spanlite_agent_spans_received_total": [({}, 20_001)],
            "spanlite_agent_spans_dropped_total": [({"reason": "no_end"}, 1), ({"reason": "reversed"}, 0)],
            "spanlite_pipeline_last_event_timestamp_seconds": [({"stage": "fold"}, 1_700_000_000.25)],
        }
    )
    return table


@BOTH
def test_classic_buckets_are_exact(
    full: PointTable,
    serve_durations: dict[str, NDArray[np.int64]],
    write: Callable[..., bytes],
    parse: Parse,
) -> None:
    """Proves each bucket of each kernel against np.histogram over the raw durations, bounds in whole nanoseconds."""
    parsed = {m.name: m for m in parse(write(families(full.snapshot())).decode())}
    buckets: dict[str, dict[float, float]] = {}
    for sample in parsed["spanlite_kernel_duration_seconds"].samples:
        if sample.name.endswith("_bucket"):
            buckets.setdefault(sample.labels["kernel"], {})[float(sample.labels["le"])] = sample.value
    assert len(buckets) == len(serve_durations)
    for number, durations in enumerate(serve_durations.values()):
        found = buckets[f"k{number:02}"]
        assert list(found) == [*(4.0**k for k in range(-10, 1)), float("inf")]
        edges = [0, *((10**9 * 4 ** (k + 10)) // 4**10 + 1 for k in range(-10, 1)), 2**62]
        counts, _ = np.histogram(durations, bins=np.array(edges))
        assert list(found.values()) == np.cumsum(counts).tolist()


@BOTH
def test_every_family_survives_a_parser(full: PointTable, write: Callable[..., bytes], parse: Parse) -> None:
    """Proves types, help texts and values of the written families by reading them back."""
    wanted = {family.spec.name: family for family in families(full.snapshot())}
    parsed = list(parse(write(families(full.snapshot())).decode()))
    assert len(parsed) == len(wanted)
    for metric, family in zip(parsed, wanted.values(), strict=True):
        assert metric.documentation == family.spec.meaning
        per_series = 14 if metric.type == "histogram" else 1
        assert len(metric.samples) == per_series * len(family.samples)
        assert {s.name for s in metric.samples} <= {family.spec.name + end for end in ("", "_bucket", "_count", "_sum")}


def test_openmetrics_carries_the_longest_execution_of_each_bucket(make_point: MakePoint) -> None:
    """Proves that an exemplar stands at the bucket it lies in, with its ids and the end of its execution."""
    table = PointTable()
    series = Series("GPU-1", Kind.KERNEL, "k")
    table.put([make_point(series._replace(stage=str(n)), [n]) for n in (953, 954, 3000, 2_000_000_000)])
    parse: Parse = parse_openmetrics
    metric = next(parse(openmetrics(families(table.snapshot())).decode()))
    found = {s.labels["le"]: s.exemplar for s in metric.samples if s.exemplar}
    assert {le: exemplar.value for le, exemplar in found.items()} == {
        "9.5367431640625e-07": 953e-9,
        "3.814697265625e-06": 3000e-9,
        "+Inf": 2.0,
    }
    last = found["+Inf"]
    assert last.labels == {"trace_id": bytes(range(16)).hex(), "span_id": "0000000000000abc"}
    assert last.timestamp is not None
    assert float(last.timestamp) == 1_700_000_002.0


def test_text_ends_as_its_format_wants(full: PointTable) -> None:
    """Proves that OpenMetrics ends in EOF, with units, and that the old text format has neither, nor exemplars."""
    old, new = (write(families(full.snapshot())).decode() for write in (text, openmetrics))
    assert new.endswith("\n# EOF\n")
    assert "# UNIT spanlite_kernel_duration_seconds seconds\n" in new
    assert "trace_id" in new
    assert all(word not in old for word in ("# EOF", "# UNIT", "trace_id"))


@BOTH
def test_hostile_names_survive(make_point: MakePoint, write: Callable[..., bytes], parse: Parse) -> None:
    """Proves that whatever a kernel, stage, pod or GPU is called, each keeps its own sample and its count."""
    table = PointTable()
    for number, name in enumerate(HOSTILE):
        series = Series(name, Kind.KERNEL, name, name=name, stage=name, pod=name, namespace=name, container=name)
        table.put([make_point(series, [1000] * (number + 1))])
    table.gpu_info([Gpu(name, name=name, pci_bus_id=name) for name in HOSTILE], host=HOSTILE[0])
    written = write(families(table.snapshot()))
    parsed = {m.name: m for m in parse(written.decode("utf-8"))}
    launches = parsed["spanlite_kernel_launches"].samples
    assert sorted(s.value for s in launches) == list(range(1, len(HOSTILE) + 1))
    assert {s.value: s.labels["kernel"] for s in launches}[1] == HOSTILE[0]
    assert len({s.labels["kernel"] for s in launches}) == len(HOSTILE)
    assert len(written) < 200_000


@pytest.mark.prometheus
@pytest.mark.parametrize("hostile", [False, True])
def test_promtool_finds_nothing_to_say(full: PointTable, make_point: MakePoint, *, hostile: bool) -> None:
    """Proves by Prometheus's own linter that names, units and types are clean, also with hostile labels."""
    if hostile:
        full.put([make_point(Series("GPU-1", Kind.KERNEL, name, name=name), [1000]) for name in HOSTILE])
    written = text(families(full.snapshot()))
    done = subprocess.run(["promtool", "check", "metrics"], input=written, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

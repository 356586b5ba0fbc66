"""Families from the table."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from spanlite.contract import catalogue
from spanlite.contract.batch import Gpu
from spanlite.contract.columns import Kind
from spanlite.contract.errors import ExporterError
from spanlite.contract.points import Launch, Point, Series
from spanlite.exporters.families import Sample, families
from spanlite.exporters.table import PointTable
from spanlite.exporters.totals import Total

MakePoint = Callable[..., Point]


def samples(table: PointTable) -> dict[str, list[Sample]]:
    """Samples by family."""
    return {family.spec.name: family.samples for family in families(table.snapshot())}


def values(table: PointTable, name: str) -> dict[tuple[str, ...], float]:
    """Numbers of a family by label values in the catalogue's order, empty ones included."""
    found = {}
    for sample in samples(table)[name]:
        assert not isinstance(sample.value, Total)
        found[tuple(sample.labels.get(label, "") for label in catalogue.CATALOGUE[name].labels)] = sample.value
    return found


def test_launch_configurations_and_stages_of_a_kernel_are_one_series(
    serve_points: list[Point], serve_durations: dict[str, NDArray[np.int64]]
) -> None:
    """Proves counts and sums per kernel against the raw durations of a recorded run."""
    table = PointTable()
    table.put(serve_points)
    launches = values(table, "spanlite_kernel_launches_total")
    truth = {f"k{n:02}": durations for n, durations in enumerate(serve_durations.values())}
    assert {key[1]: value for key, value in launches.items()} == {k: len(d) for k, d in truth.items()}
    for sample in samples(table)["spanlite_kernel_duration_seconds"]:
        assert isinstance(sample.value, Total)
        assert sample.value.sum_ns == int(truth[sample.labels["kernel"]].sum())
        assert set(sample.labels) == {"UUID", "kernel"}


def test_occupancy_is_weighted_by_time(serve_points: list[Point]) -> None:
    """Proves the mean over configurations in exact fractions: sum of time x warps over sum of time x 64."""
    table = PointTable()
    table.put(serve_points)
    for (_, kernel, *_), value in values(table, "spanlite_kernel_theoretical_occupancy_ratio").items():
        mine = [p for p in serve_points if p.series.kernel == kernel]
        time = sum(p.sum_ns for p in mine)
        exact = sum(Fraction(p.sum_ns * p.series.launch.active_warps, 64) for p in mine) / time
        assert value == pytest.approx(float(exact), rel=1e-15)


def test_a_kernel_without_known_warps_has_no_occupancy(make_point: MakePoint) -> None:
    """Proves that unknown is absent, not zero."""
    table = PointTable()
    table.put([make_point(Series("GPU-1", Kind.KERNEL, "k"), [1000])])
    assert "spanlite_kernel_theoretical_occupancy_ratio" not in samples(table)


def test_stage_and_limiter_times_add_up_to_kernel_time(serve_points: list[Point]) -> None:
    """Proves that the two breakdowns are of the same whole."""
    table = PointTable()
    table.put(serve_points)
    whole = sum(p.sum_ns for p in serve_points) / 1e9
    stages = values(table, "spanlite_stage_time_seconds_total")
    assert {stage for _, stage, *_ in stages} == {"prefill", "decode"}
    assert sum(stages.values()) == pytest.approx(whole, rel=1e-12)
    limiters = values(table, "spanlite_kernel_limiter_time_seconds_total")
    assert {limiter for _, _, limiter in limiters} == {"warps", "blocks", "registers"}
    assert sum(limiters.values()) == pytest.approx(whole, rel=1e-12)


def test_a_limiter_of_a_later_version_is_unknown(make_point: MakePoint) -> None:
    """Proves that a number from the wire cannot break a scrape."""
    table = PointTable()
    table.put([make_point(Series("GPU-1", Kind.KERNEL, "k", launch=Launch(limiter=99)), [1000])])
    assert values(table, "spanlite_kernel_limiter_time_seconds_total") == {("GPU-1", "k", "unknown"): 1e-6}


def test_copies_and_sets_have_families_of_their_own(make_point: MakePoint) -> None:
    """Proves direction, bytes and workload labels."""
    table = PointTable()
    up = Series("GPU-1", Kind.MEMCPY, "memcpy", launch=Launch(copy_kind=1), namespace="ml", pod="p", container="c")
    table.put(
        [
            make_point(up, [1000, 3000], moved=4096),
            make_point(up._replace(stage="load"), [1000], moved=100),
            make_point(Series("GPU-1", Kind.MEMSET, "memset"), [500], moved=64),
        ]
    )
    assert values(table, "spanlite_memcpy_bytes_total") == {("GPU-1", "h2d", "ml", "p", "c"): 4196}
    assert values(table, "spanlite_memset_bytes_total") == {("GPU-1", "", "", ""): 64}
    (copies,) = samples(table)["spanlite_memcpy_duration_seconds"]
    assert isinstance(copies.value, Total)
    assert (copies.value.count, copies.value.sum_ns) == (3, 5000)
    assert "spanlite_kernel_launches_total" not in samples(table)


def test_a_mig_instance_is_told_with_its_profile() -> None:
    """Proves the labels that join with dcgm-exporter."""
    table = PointTable()
    table.gpu_info([Gpu("MIG-1", 2, "NVIDIA H200", 9, 0, 16, "0000:1b:00.0", "1g.18gb", "7")], host="node-1")
    (info,) = samples(table)["spanlite_gpu_info"]
    assert info.labels == {
        "UUID": "MIG-1",
        "gpu": "2",
        "hostname": "node-1",
        "pci_bus_id": "0000:1b:00.0",
        "device": "nvidia2",
        "model_name": "NVIDIA H200",
        "GPU_I_PROFILE": "1g.18gb",
        "GPU_I_ID": "7",
    }


def test_own_metrics_are_asked_at_each_scrape() -> None:
    """Proves that counters are read when scraped, not when set."""
    table = PointTable()
    late = [0]
    table.set_counters(lambda: {"spanlite_pipeline_late_spans_total": [({}, late[0])]})
    late[0] = 7
    assert values(table, "spanlite_pipeline_late_spans_total") == {(): 7}


def test_label_values_of_own_metrics_are_made_fit() -> None:
    """Proves that a reason word that came with broken input cannot break the scrape."""
    table = PointTable()
    table.set_counters(lambda: {"spanlite_agent_spans_dropped_total": [({"reason": "nul\0"}, 1)]})
    ((reason,),) = values(table, "spanlite_agent_spans_dropped_total")
    assert "\0" not in reason
    assert reason.startswith("nul")


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("spanlite_nonsense_total", {}, "spanlite_nonsense_total is not in the catalogue"),
        ("spanlite_pipeline_late_spans_total", {"why": "x"}, "spanlite_pipeline_late_spans_total has no label why"),
    ],
)
def test_own_metrics_are_held_to_the_catalogue(name: str, labels: dict[str, str], message: str) -> None:
    """Proves that a metric without documentation is not served."""
    table = PointTable()
    table.set_counters(lambda: {name: [(labels, 1)]})
    with pytest.raises(ExporterError, match=message):
        list(families(table.snapshot()))


def test_every_sample_is_as_the_catalogue_says(serve_points: list[Point], make_point: MakePoint) -> None:
    """Proves that no family carries a label that its documentation lacks, nor a label set twice."""
    table = PointTable(series_cap=4)
    table.put(serve_points)
    table.put([make_point(Series("GPU-1", kind, "x", pod="p"), [1000]) for kind in (Kind.MEMCPY, Kind.MEMSET)])
    table.count_scrape("text")
    for family in families(table.snapshot()):
        keys = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(keys)) == len(keys)
        assert all(set(sample.labels) <= set(family.spec.labels) for sample in family.samples)

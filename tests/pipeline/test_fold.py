"""The fold against a span-by-span brute force, on recorded work and on cases made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.ids import row_span_ids
from spanlite.contract.points import Launch, Point
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.series import SeriesRegistry
from tests.pipeline.conftest import (
    LAUNCH,
    SLICE,
    Expectation,
    Span,
    brute_force,
    fold_all,
    make_batch,
    plain,
    span_lists,
)

SECOND_NS = 10**9
WIDTHS = [SECOND_NS, 100_000_000, 70_000_001, 50_000]
"""The slice has 0.77 s: 2, 8 and 12 windows, and 15,000 that a batch cannot keep in a short table."""


def recorded_expectation(width_ns: int) -> Expectation:
    """The brute force over the slice's own columns; what the file does not say is taken from the batches below."""
    table = pq.read_table(SLICE).to_pydict()
    shape = zip(
        *(zip(*(table[f"{what}_{axis}"] for axis in "xyz"), strict=True) for what in ("grid", "block")), strict=True
    )
    return brute_force(
        (
            Span(start, duration, kernel=kernel, launch=Launch(grid, block, registers_per_thread=registers))
            for start, duration, kernel, registers, (grid, block) in zip(
                table["start_ns"],
                table["duration_ns"],
                table["kernel"],
                table["registers_per_thread"],
                shape,
                strict=True,
            )
        ),
        width_ns,
    )


def by_name(made: list[Point]) -> dict[tuple[object, ...], Point]:
    """Points by window, full name and launch, as far as the file tells launches apart."""
    keyed: dict[tuple[object, ...], Point] = {
        (
            point.window_start_ns,
            point.series.name,
            point.series.launch.grid,
            point.series.launch.block,
            point.series.launch.registers_per_thread,
        ): point
        for point in made
    }
    assert len(keyed) == len(made)
    return keyed


@pytest.mark.parametrize("width_ns", WIDTHS)
def test_recorded_run_equals_brute_force(recorded: list[Batch], width_ns: int) -> None:
    """Of 20,000 recorded executions every count, sum, extreme and bucket of every window and series is exact."""
    made = by_name(fold_all(recorded, width_ns))
    expected = {
        (window, series.kernel, series.launch.grid, series.launch.block, series.launch.registers_per_thread): what
        for (window, series), what in recorded_expectation(width_ns).items()
    }
    assert made.keys() == expected.keys()
    for key, what in expected.items():
        point = made[key]
        assert (point.count, point.spans, point.sum_ns) == (what.count, what.spans, what.sum_ns)
        assert (point.min_ns, point.max_ns) == (what.min_ns, what.max_ns)
        buckets = zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True)
        assert tuple(buckets) == what.buckets
        assert point.window_end_ns == point.window_start_ns + width_ns
    assert sum(point.count for point in made.values()) == 20_000


def test_quantiles_of_a_recorded_run_are_within_the_bound(recorded: list[Batch]) -> None:
    """p01 … p99.9 of every series lie within 1.1 % of the value of that rank among the sorted durations."""
    table = pq.read_table(SLICE)
    columns = ["kernel", *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"), "registers_per_thread"]
    keys = list(zip(*(table[name].to_pylist() for name in columns), strict=True))
    durations: dict[tuple[object, ...], list[int]] = {}
    for key, duration in zip(keys, table["duration_ns"].to_pylist(), strict=True):
        durations.setdefault(key, []).append(duration)
    worst = 0.0
    for (_, name, grid, block, registers), point in by_name(fold_all(recorded, 10 * SECOND_NS)).items():
        exact = sorted(durations.pop((name, *grid, *block, registers)))  # type: ignore[misc]  # tuples of three
        for q in (0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0):
            value = exact[max(int(np.ceil(q * len(exact))), 1) - 1]
            worst = max(worst, abs(point.quantile_ns(q) - value) / value)
    assert durations == {}
    assert 0 < worst <= 2 ** (1 / 64) - 1 + 1e-12


def test_occupancy_of_a_recorded_run_is_weighted_by_time(recorded: list[Batch]) -> None:
    """Over all series, time-weighted occupancy equals that of the spans, summed one by one in floating point."""
    made = fold_all(recorded, 10 * SECOND_NS)
    known = [point for point in made if point.series.launch.max_warps]
    folded = sum(point.warp_ns / point.series.launch.max_warps for point in known) / sum(p.sum_ns for p in known)
    occupancy = np.concatenate([batch.columns.occupancy for batch in recorded])
    duration = np.concatenate([batch.columns.duration_ns for batch in recorded]).astype(np.float64)
    valid = ~np.isnan(occupancy)
    assert valid.any()
    assert folded == pytest.approx(np.average(occupancy[valid], weights=duration[valid]), rel=1e-12)


def test_exemplars_of_a_recorded_run_name_the_longest_span(recorded: list[Batch]) -> None:
    """Each exemplar's span id leads to a span of that duration and start, the longest of its series."""
    spans: dict[int, tuple[int, int]] = {}
    for batch in recorded:
        ids = row_span_ids(batch.session, batch.first_row, batch.columns.range_number)
        times = zip(batch.columns.duration_ns.tolist(), batch.columns.start_ns.tolist(), strict=True)
        spans.update(zip(ids.tolist(), times, strict=True))
    for point in fold_all(recorded, SECOND_NS):
        assert point.exemplar is not None
        assert spans[point.exemplar.span_id] == (point.max_ns, point.exemplar.start_ns)
        assert point.window_start_ns <= point.exemplar.start_ns < point.window_end_ns


@settings(max_examples=150, deadline=None)
@given(span_lists(), st.sampled_from([1, 100, 10**9]))
def test_any_batch_equals_brute_force(spans: list[Span], width_ns: int) -> None:
    """All fields of all points, exemplars included, for any mix of kinds, GPUs, stages, weights and launches."""
    assert plain(fold_all([make_batch(spans)], width_ns)) == brute_force(spans, width_ns)


@settings(max_examples=50, deadline=None)
@given(span_lists())
def test_the_wire_changes_nothing(spans: list[Span]) -> None:
    """Points of an encoded and decoded batch are those of the batch."""
    batch = make_batch(spans)
    assert plain(fold_all([decode_batch(encode_batch(batch))], 100)) == brute_force(spans, 100)


def test_a_span_on_an_edge_opens_the_next_window() -> None:
    """Windows hold their start and not their end, before 1970 as well."""
    spans = [Span(start, row=row) for row, start in enumerate([-101, -100, -1, 0, 99, 100])]
    made = fold_all([make_batch(spans)], 100)
    assert [(point.window_start_ns, point.count) for point in made] == [(-200, 1), (-100, 2), (0, 2), (100, 1)]


def test_a_span_that_outlasts_its_window_counts_where_it_started() -> None:
    """A duration longer than the window is neither split nor moved."""
    (point,) = fold_all([make_batch([Span(950, 5000)])], 1000)
    assert (point.window_start_ns, point.sum_ns) == (0, 5000)


def test_weights_multiply_everything_but_extremes() -> None:
    """A span of weight 10 counts as ten executions of its duration and bytes, and as one span."""
    spans = [Span(0, 1000, 0, launch=LAUNCH, weight=10, moved=7), Span(1, 3000, 1, launch=LAUNCH, weight=1, moved=5)]
    (point,) = fold_all([make_batch(spans)], 100)
    assert (point.count, point.spans, point.sum_ns, point.bytes) == (11, 2, 13_000, 75)
    assert (point.min_ns, point.max_ns) == (1000, 3000)
    assert point.warp_ns == 13_000 * 48
    assert point.occupancy == 0.75
    assert point.bucket_count.tolist() == [10, 1]


def test_copies_carry_bytes_and_no_occupancy() -> None:
    """A copy's series has its bytes, and an occupancy that says it is not known."""
    copy = Launch(copy_kind=1)
    spans = [Span(0, 100, row, "memcpy", copy, Kind.MEMCPY, moved=1 << 40) for row in range(3)]
    (point,) = fold_all([make_batch(spans)], 100)
    assert (point.bytes, point.count, point.series.kind) == (3 << 40, 3, Kind.MEMCPY)
    assert np.isnan(point.occupancy)


def test_ranges_are_left_out_and_shift_no_id() -> None:
    """Ranges between kernels count nowhere, and exemplars keep the row numbers that include them."""
    spans = [Span(0, 900, 0, kind=Kind.RANGE), Span(1, 5, 1), Span(2, 800, 2, kind=Kind.RANGE), Span(3, 6, 3)]
    (point,) = fold_all([make_batch(spans)], 100)
    assert (point.count, point.sum_ns) == (2, 11)
    assert point.exemplar is not None
    assert point.exemplar.span_id == spans[3].span_id


@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_of_equally_long_spans_the_earliest_is_the_exemplar(earlier: int) -> None:
    """Within a batch a tie goes to the first start, whatever the rows' order and ids."""
    spans = [Span(5 if row == earlier else 7, 500, row) for row in range(3)]
    (point,) = fold_all([make_batch(spans)], 100)
    assert point.exemplar is not None
    assert (point.exemplar.span_id, point.exemplar.start_ns) == (spans[earlier].span_id, 5)


def test_a_batch_of_ranges_or_of_nothing_has_no_rows() -> None:
    """Batches without GPU work fold to nothing and name no series."""
    registry = SeriesRegistry()
    assert len(fold_batch(make_batch([]), 100, registry)) == 0
    assert len(fold_batch(make_batch([Span(0, kind=Kind.RANGE)]), 100, registry)) == 0
    assert registry.series == []


def test_numbered_stages_are_one_series() -> None:
    """request:1 and request:2 add up under one label, as one point."""
    spans = [Span(0, 10, 0, stage="request:1"), Span(1, 20, 1, stage="request:2"), Span(2, 40, 2, stage="load")]
    made = fold_all([make_batch(spans)], 100)
    assert {(point.series.stage, point.sum_ns) for point in made} == {("request", 30), ("load", 40)}


def test_every_part_of_the_launch_tells_series_apart() -> None:
    """Two launches that differ in any one field are two series."""
    for at in range(len(LAUNCH)):
        changed: Any = (5, 5, 5) if at < 3 else 9
        other = Launch._make([*LAUNCH[:at], changed, *LAUNCH[at + 1 :]])
        assert len(fold_all([make_batch([Span(0, 1, 0, launch=LAUNCH), Span(0, 1, 1, launch=other)])], 100)) == 2


def test_series_say_who_ran_the_work() -> None:
    """The owner comes from the resource; the same work of two pods is two series."""
    mine = {"workload": "llm", "k8s.namespace.name": "prod", "k8s.pod.name": "a", "k8s.container.name": "c"}
    batches = [make_batch([Span(0)], resource={**mine, "k8s.pod.name": pod, "host.name": "n1"}) for pod in "ab"]
    made = fold_all(batches, 100)
    assert [(p.series.workload, p.series.namespace, p.series.pod, p.series.container, p.series.host) for p in made] == [
        ("llm", "prod", "a", "c", "n1"),
        ("llm", "prod", "b", "c", "n1"),
    ]

"""The demo's tables, on points made by hand."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from spanlite.cli.view import draw, kernel_rows, stage_shares, summary_json
from spanlite.contract.columns import Kind
from spanlite.contract.points import Launch, Point, Series

LAUNCH = Launch(active_warps=48, max_warps=64, limiter=3)


def point(
    kernel: str, sums_ns: tuple[int, ...], *, stage: str = "", launch: Launch = LAUNCH, kind: int = Kind.KERNEL
) -> Point:
    """A cumulative point of executions, one in each bucket -640, -639, …, that took so long."""
    return Point(
        series=Series("GPU-1", kind, kernel, kernel, launch, stage),
        window_start_ns=0,
        window_end_ns=10**9,
        count=len(sums_ns),
        spans=len(sums_ns),
        sum_ns=sum(sums_ns),
        min_ns=min(sums_ns),
        max_ns=max(sums_ns),
        warp_ns=sum(sums_ns) * launch.active_warps,
        bytes=0,
        bucket_index=np.arange(-640, -640 + len(sums_ns), dtype=np.int32),
        bucket_count=np.ones(len(sums_ns), dtype=np.int64),
        cumulative=True,
    )


POINTS = [
    point("gemm", (1000, 2000), stage="prefill"),
    point("gemm", (4000,), stage="decode", launch=LAUNCH._replace(grid=(2, 1, 1), active_warps=16, limiter=1)),
    point("softmax", (500, 500, 500), stage="decode", launch=Launch()),
    point("memcpy_host_to_device", (1500,), launch=Launch(copy_kind=1), kind=Kind.MEMCPY),
]


def drawn(points: list[Point], width: int = 160) -> str:
    """The tables as a terminal would show them."""
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=width, color_system=None).print(draw(points))
    return stream.getvalue()


def test_rows_sum_up_a_kernels_series_and_keep_every_total() -> None:
    """Proves counts, time and shares by hand: three kernels of four series, most time first."""
    rows = kernel_rows(POINTS)
    assert [(row.kernel, row.kind, row.count, row.sum_ns) for row in rows] == [
        ("gemm", "kernel", 3, 7000),
        ("memcpy_host_to_device", "memcpy", 1, 1500),
        ("softmax", "kernel", 3, 1500),
    ]
    assert [row.share for row in rows] == [0.7, 0.15, 0.15]
    assert sum(row.count for row in rows) == sum(p.count for p in POINTS)
    assert sum(row.sum_ns for row in rows) == sum(p.sum_ns for p in POINTS)


def test_occupancy_is_weighted_by_time_and_blank_where_unknown() -> None:
    """Proves 3000 ns at 48 and 4000 ns at 16 of 64 warps to be 46.4 %, limited as the longer launch is."""
    rows = {row.kernel: row for row in kernel_rows(POINTS)}
    assert rows["gemm"].occupancy == pytest.approx((3000 * 48 + 4000 * 16) / (7000 * 64), rel=1e-15)
    assert rows["gemm"].limiter == "warps"
    assert math.isnan(rows["softmax"].occupancy)
    assert rows["softmax"].limiter == ""


def test_quantiles_are_those_of_all_launches_together() -> None:
    """Proves that buckets are added up: of four executions in buckets -640, -640, -639 the median is in -640."""
    (row, *_) = kernel_rows(POINTS)
    assert row.p50_ns == pytest.approx(2 ** (-640.5 / 32) * 1e9, rel=1e-12)
    assert row.p99_ns == pytest.approx(2 ** (-639.5 / 32) * 1e9, rel=1e-12)


def test_stage_shares_add_up_to_one() -> None:
    """Proves the shares by hand; what lies outside all ranges has a name of its own."""
    shares = stage_shares(POINTS)
    assert list(shares.items()) == [("decode", 0.55), ("prefill", 0.3), ("(none)", 0.15)]
    assert sum(shares.values()) == pytest.approx(1, rel=1e-15)


def test_json_is_json_without_nan() -> None:
    """Proves that unknown occupancy is null, since NaN is no JSON."""
    summary = json.loads(json.dumps(summary_json(POINTS), allow_nan=False))
    assert [kernel["theoretical_occupancy"] is None for kernel in summary["kernels"]] == [False, True, True]
    assert summary["kernels"][0]["seconds"] == 7e-6
    assert summary["stages"]["decode"] == 0.55


def test_nothing_draws_as_empty_tables() -> None:
    """Proves that the table stands before the first span has come."""
    assert kernel_rows([]) == []
    assert stage_shares([]) == {}
    assert "Kernels by GPU time" in drawn([])


def test_what_does_not_fit_is_summed_up_in_the_last_row() -> None:
    """Proves that rows beyond the twelfth are counted in one, with their share and launches."""
    points = [point(f"k{number:02}", (100 - number,)) for number in range(20)]
    text = drawn(points)
    assert "k11" in text
    assert "k12" not in text
    (last,) = (line for line in text.splitlines() if "8 more" in line)
    rest = sum(100 - number for number in range(12, 20)) / sum(100 - number for number in range(20))
    assert f"{rest:.1%}" in last
    assert " 8 " in last.replace("8 more", "")


@pytest.mark.parametrize(
    "name",
    ["[/red]", "[bold]x[/]", "a\nb", "\x1b[31mred", "\x07bell", "x" * 1000, "🔥", "\u202eright to left", "[link=x]"],
)
def test_names_are_shown_and_not_obeyed(name: str) -> None:
    """Proves that brackets are no markup, and that nothing in a name or stage steers the terminal or breaks a row."""
    text = drawn([point(name, (1000,), stage=name)])
    plain = drawn([point("k", (1000,), stage="k")])
    assert len(text.splitlines()) == len(plain.splitlines())
    assert not any(char in text for char in "\x1b\x07\u202e")
    shown = "".join(char if char.isprintable() else "?" for char in name)
    assert text.count(shown if len(shown) <= 46 else "x" * 22 + "…" + "x" * 23) == 2


def test_long_names_keep_both_ends() -> None:
    """Proves that two kernels that differ in their hashes alone stay apart."""
    text = drawn([point("at::native::" + "long_" * 20 + "#11111111", (1,)), point("long_" * 20 + "#22222222", (1,))])
    assert "…" in text
    assert "#11111111" in text
    assert "#22222222" in text
    assert "at::native::" not in text


def test_custom_metrics_are_no_kernels() -> None:
    """Observations take no GPU time, so they are in neither table, and change no share."""
    observed = [point("rope_ms", (10**6,), kind=kind) for kind in (Kind.TIMING, Kind.COUNTER, Kind.GAUGE)]
    kernels = [point("gemm", (10,), stage="decode")]
    assert kernel_rows([*observed, *kernels]) == kernel_rows(kernels)
    assert stage_shares([*observed, *kernels]) == {"decode": 1.0}

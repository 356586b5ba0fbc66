"""What agents measured with hardware counters, on the page: of which names, and as means that no merge can change."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.achieved import KERNEL_ACTIVE, KERNEL_WARPS, MARK, SHOWN
from spanlite.contract.columns import COUNTER, GAUGE
from spanlite.contract.customs import write_series
from spanlite.contract.point_codec import series_key
from spanlite.contract.points import Exemplar, Point, Series
from spanlite.exporters.families import families
from spanlite.exporters.prometheus import openmetrics, text
from spanlite.exporters.table import PointTable
from tests.exporters.conftest import cumulative_point

RATIO = "spanlite_kernel_achieved_occupancy_ratio"


def point(
    name: str, value: float, *, kernel: str = "", host: str = "n1", stage: str = MARK, uuid: str = "GPU-1"
) -> Point:
    """A cumulative point of an agent: an increment, or a gauge's value."""
    kind = SHOWN[name].kind
    text_ = write_series(name, {"kernel": kernel} if kernel else {})
    made = cumulative_point(Series("GPU-1", kind, name, text_, stage=stage, host=host), [1])
    bits = struct.unpack("<Q", struct.pack("<d", value))[0] if kind == GAUGE else 0
    moved = int(value) if kind == COUNTER else 0
    return replace(made, sum_ns=0, min_ns=0, max_ns=0, bytes=moved, exemplar=Exemplar(bytes(16), bits, 0, 5))


def pair(kernel: str, active: int, warps: int, host: str = "n1") -> list[Point]:
    """Both sums of a kernel."""
    both = ((KERNEL_ACTIVE, active), (KERNEL_WARPS, warps))
    return [point(name, value, kernel=kernel, host=host) for name, value in both]


def shown(table: PointTable) -> dict[tuple[str, str, str], float]:
    """Values by family, GPU and kernel."""
    return {
        (family.spec.name, sample.labels["UUID"], sample.labels.get("kernel", "")): float(sample.value)  # type: ignore[arg-type]  # no histogram
        for family in families(table.snapshot())
        if family.spec.group == "Hardware counters"
        for sample in family.samples
    }


def test_each_is_the_family_of_the_catalogue() -> None:
    """They would stand among the metrics that programs made up, under other names."""
    table = PointTable()
    for at, (name, what) in enumerate(SHOWN.items()):
        table.put([point(name, 0.5 if what.kind == GAUGE else at, kernel="gemm" if what.divisor > 1 else "")])
    assert shown(table) == {
        ("spanlite_gpu_sm_active_ratio", "GPU-1", ""): 0.5,
        ("spanlite_gpu_tensor_active_ratio", "GPU-1", ""): 0.5,
        ("spanlite_gpu_warps_active_ratio", "GPU-1", ""): 0.5,
        ("spanlite_gpu_dram_read_bytes_total", "GPU-1", ""): 3,
        ("spanlite_gpu_dram_write_bytes_total", "GPU-1", ""): 4,
        ("spanlite_gpu_l2_sectors_total", "GPU-1", ""): 5,
        ("spanlite_kernel_achieved_active_seconds_total", "GPU-1", "gemm"): 6e-9,
        ("spanlite_kernel_achieved_warp_seconds_total", "GPU-1", "gemm"): 7e-9,
        (RATIO, "GPU-1", "gemm"): 7 / 6,
    }
    assert "spanlite_custom_" not in text(families(table.snapshot())).decode()


def test_a_program_cannot_speak_for_the_agent() -> None:
    """Whoever names a metric of his like one of these would change what the page says of the hardware."""
    table = PointTable()
    table.put([point("spanlite_gpu_sm_active_ratio", 0.5, stage=""), *pair("k", 2, 1)])
    assert list(shown(table)) == [
        (name, "GPU-1", "k") for name in (*map(_family, (KERNEL_ACTIVE, KERNEL_WARPS)), RATIO)
    ]
    assert "spanlite_custom_spanlite_gpu_sm_active_ratio" in text(families(table.snapshot())).decode()
    for odd in ("spanlite_gpu_nothing", "no series {", write_series("spanlite_gpu_sm_active_ratio", {"a": "b"})):
        series = Series("GPU-1", GAUGE, "k", odd, stage=MARK)
        table.put([replace(point("spanlite_gpu_sm_active_ratio", 0.5), series=series)])
    assert "spanlite_gpu_sm_active_ratio{" not in text(families(table.snapshot())).decode().replace(
        "custom_spanlite", ""
    )


def _family(name: str) -> str:
    return SHOWN[name].spec.name


_SUMS = st.tuples(
    st.sampled_from("abc"), st.integers(1, 1 << 52), st.integers(0, 1 << 52), st.sampled_from(("n1", "n2"))
)


@given(st.lists(_SUMS, max_size=12), st.integers(1, 3))
def test_the_ratio_is_one_sum_by_the_other(told: list[tuple[str, int, int, str]], cap: int) -> None:
    """A mean of means, or of a kernel with others, would depend on how agents and restarts split the samples."""
    table = PointTable(series_cap=cap)
    latest: dict[tuple[str, str], tuple[int, int]] = {}
    for at, (kernel, active, warps, host) in enumerate(told):
        before = latest.get((kernel, host), (0, 0))
        now = latest[kernel, host] = (before[0] + active, before[1] + warps)
        table.put([replace(one, count=at + 1, window_end_ns=10**10 + at) for one in pair(kernel, *now, host)])
    order = list(dict.fromkeys(kernel for kernel, *_ in told))
    sums: dict[str, list[int]] = {}
    for (kernel, _), both in latest.items():
        place = kernel if order.index(kernel) < cap else "other"
        of = sums.setdefault(place, [0, 0])
        of[0], of[1] = of[0] + both[0], of[1] + both[1]
    ratios = {kernel: value for (name, _, kernel), value in shown(table).items() if name == RATIO}
    assert ratios == {kernel: float(Fraction(warps, active)) for kernel, (active, warps) in sums.items()}
    assert table.snapshot().capped["achieved"] == max(0, len(order) - cap)


def test_a_series_that_ends_leaves_each_sum_its_own() -> None:
    """Both sums of a kernel would be added into one."""
    table = PointTable()
    table.put([*pair("k", 8, 4), *pair("k", 8, 2, host="n2")])
    table.remove([series_key(one.series) for one in pair("k", 0, 0)])
    assert shown(table)[RATIO, "GPU-1", "k"] == 6 / 16


@pytest.mark.prometheus
def test_promtool_finds_nothing_to_say() -> None:
    """Prometheus's own linter would complain of names, units or help."""
    table = PointTable()
    table.put([point(name, 0.5) for name, what in SHOWN.items() if what.divisor == 1])
    table.put([one for kernel in ("gemm", 'odd"\\{kernel}') for one in pair(kernel, 2, 1)])
    openmetrics(families(table.snapshot()))
    written = text(families(table.snapshot()))
    assert RATIO.encode() in written
    done = subprocess.run(["promtool", "check", "metrics"], input=written, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

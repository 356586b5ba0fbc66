"""Custom metrics in expositions: names, types and values, what collides, and that no name can break a page."""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from spanlite.contract.columns import Kind
from spanlite.contract.customs import fit_label, fit_name, fit_value, parse_series, write_series
from spanlite.contract.points import Exemplar, Point, Series
from spanlite.exporters.families import families
from spanlite.exporters.native import protobuf
from spanlite.exporters.prometheus import openmetrics, text
from spanlite.exporters.table import PointTable
from spanlite.exporters.totals import Total
from tests.exporters.conftest import cumulative_point

KINDS = [Kind.TIMING, Kind.COUNTER, Kind.GAUGE]


def point(kind: Kind, name: str, value: float, *, start_ns: int = 5, **owner: Any) -> Point:
    """A cumulative point: one timing of so many ns, an increment, or a gauge's value."""
    series = Series(owner.pop("gpu_uuid", ""), kind, parse_or_cut(name), name, **owner)
    made = cumulative_point(series, [int(value) if kind == Kind.TIMING else 1])
    if kind == Kind.TIMING:
        return made
    bits = struct.unpack("<Q", struct.pack("<d", value))[0] if kind == Kind.GAUGE else 0
    moved = int(value) if kind == Kind.COUNTER else 0
    return replace(made, sum_ns=0, min_ns=0, max_ns=0, bytes=moved, exemplar=Exemplar(bytes(16), bits, 0, start_ns))


def parse_or_cut(name: str) -> str:
    """The metric's bare name."""
    return name.partition("{")[0]


def shown(table: PointTable) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Values by family and labels; of histograms the sum in ns."""
    return {
        (family.spec.name, tuple(sorted(sample.labels.items()))): sample.value.sum_ns
        if isinstance(sample.value, Total)
        else sample.value
        for family in families(table.snapshot())
        for sample in family.samples
        if family.spec.name.startswith("spanlite_custom_")
    }


def test_each_kind_is_what_prometheus_calls_it() -> None:
    """Timings are histograms in seconds, whatever their unit; counters end in _total; gauges keep their name."""
    table = PointTable()
    host: dict[str, Any] = {"host": "n1", "namespace": "ml", "pod": "p", "container": "c"}
    table.put(
        [
            point(Kind.TIMING, 'rope.cosine_compute_ms{layer="3"}', 1500, **host),
            point(Kind.COUNTER, "flash_attn.recompute_count", 17, **host),
            point(Kind.GAUGE, 'rope.freq_inv_max{sequence="7"}', -0.5, gpu_uuid="GPU-1", host="n1"),
        ]
    )
    mine = {"hostname": "n1", "namespace": "ml", "pod": "p", "container": "c"}
    assert shown(table) == {
        ("spanlite_custom_rope_cosine_compute_seconds", tuple(sorted({**mine, "layer": "3"}.items()))): 1500,
        ("spanlite_custom_flash_attn_recompute_count_total", tuple(sorted(mine.items()))): 17,
        ("spanlite_custom_rope_freq_inv_max", (("UUID", "GPU-1"), ("sequence", "7"))): -0.5,
    }
    assert "spanlite_kernel_launches_total" not in text(families(table.snapshot())).decode()


def test_series_of_one_label_set_add_up_or_the_newest_counts() -> None:
    """Two workloads of one pod: increments and timings are summed, of gauges the later one is shown."""
    table = PointTable()
    for at, workload in enumerate(("a", "b")):
        table.put([point(k, f"m{int(k)}", 10 + at, start_ns=9 - at, workload=workload) for k in KINDS])
    assert list(shown(table).values()) == [21, 21, 10]


def test_a_gauge_goes_on_after_counting_began_anew() -> None:
    """Its value is the newest one, though what it was before is kept for counters."""
    table = PointTable()
    for epoch, (value, start_ns) in enumerate([(1.0, 5), (2.0, 50)]):
        table.put([replace(point(Kind.GAUGE, "g", value, start_ns=start_ns), epoch=epoch)])
    assert list(shown(table).values()) == [2.0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((Kind.GAUGE, "a"), (Kind.COUNTER, "a")),
        ((Kind.COUNTER, "a"), (Kind.GAUGE, "a")),
        ((Kind.COUNTER, "a"), (Kind.COUNTER, "a_total")),
        ((Kind.GAUGE, "a.b"), (Kind.GAUGE, "a_b")),
        ((Kind.TIMING, "a_ms"), (Kind.TIMING, "a_us")),
        ((Kind.TIMING, "a_ms"), (Kind.GAUGE, "a_seconds")),
        ((Kind.TIMING, "a"), (Kind.COUNTER, "a_seconds_sum")),
        ((Kind.GAUGE, "a_count"), (Kind.GAUGE, "a_count_value")),
    ],
)
def test_the_later_of_two_that_collide_is_refused(first: tuple[Kind, str], second: tuple[Kind, str]) -> None:
    """Names that become one, kinds that share a sample's name: the first is shown, the other counted, once."""
    table = PointTable()
    later = point(*second, 3)
    table.put([point(*first, 2)])
    for _ in range(2):
        table.put([later])
    assert list(shown(table).values()) == [2]
    assert table.snapshot().refused == {"collision": 1}
    assert table.snapshot().offered == {"newest": 1, "older": 0, "restarted": 0, "refused": 2}


@pytest.mark.parametrize(("name", "reason"), [("no series {", "name"), ("", "name"), ('m{a.b="1",a_b="2"}', "labels")])
def test_what_cannot_be_shown_is_counted(name: str, reason: str) -> None:
    """A series without a readable name, or with two labels that become one."""
    table = PointTable()
    table.put([point(Kind.COUNTER, name, 1)])
    assert (shown(table), table.snapshot().refused) == ({}, {reason: 1})


def test_label_sets_and_families_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its cap a family takes no label set, and beyond theirs there is no family; kernels have their own."""
    monkeypatch.setattr("spanlite.exporters.customs.MOST_FAMILIES", 2)
    table = PointTable(series_cap=2)
    table.put([point(Kind.COUNTER, f'c{{n="{n}"}}', 1) for n in range(3)])
    table.put([point(Kind.COUNTER, name, 1) for name in ("d", "e")])
    table.put([cumulative_point(Series("GPU-1", Kind.KERNEL, "gemm", "gemm"), [1000])])
    assert [key[0] for key in shown(table)] == ["spanlite_custom_c_total"] * 2 + ["spanlite_custom_d_total"]
    assert table.snapshot().refused == {"cap": 2}
    assert table.snapshot().capped["kernel"] == 0


def test_reserved_labels_are_led_by_a_word() -> None:
    """What a program calls pod, le or __name__ neither replaces the real ones nor breaks a histogram."""
    table = PointTable()
    table.put([point(Kind.TIMING, 'm{pod="x",le="1",__name__="y",UUID="z"}', 5, pod="real")])
    ((_, labels),) = shown(table)
    assert dict(labels) == {"pod": "real", "user_pod": "x", "user_le": "1", "user___name__": "y", "user_UUID": "z"}


HOSTILE = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(["a", "a.b", "a_b", "a_total", "a_count", "a_sum", "a_ms", "a_seconds", "a_info", "x" * 96])
    | st.text().map(fit_name),
    st.dictionaries(
        st.sampled_from(["le", "pod", "quantile", "job", "x" * 64]) | st.text().map(fit_label),
        st.text().map(fit_value),
        max_size=4,
    ),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(HOSTILE, max_size=12))
def test_no_name_breaks_a_page(hostile: list[tuple[Kind, str, dict[str, str]]]) -> None:
    """All three formats are written, and both texts read back with each sample once and every family once."""
    table = PointTable()
    table.put([point(kind, write_series(name, labels), 5, pod="p", host="h") for kind, name, labels in hostile])
    made = list(families(table.snapshot()))
    assert len({family.spec.name for family in made}) == len(made)
    protobuf(made)
    for page, parse in ((text(made), parse_text), (openmetrics(made), parse_openmetrics)):
        samples = [
            (sample.name, tuple(sorted(sample.labels.items())))
            for metric in parse(page.decode())
            for sample in metric.samples
        ]
        assert len(set(samples)) == len(samples)
        assert all(re.fullmatch("[a-zA-Z_:][a-zA-Z0-9_:]*", name) for name, _ in samples)


@pytest.mark.prometheus
def test_promtool_finds_nothing_to_say() -> None:
    """Prometheus's own linter on one metric of each kind, and on names that end as others must."""
    names = ["one_total", "two_count", "three_sum", "four_info", "five.bucket", "six/Seven-eight"]
    table = PointTable()
    table.put([point(Kind.TIMING, "rope.cosine_compute_ms", 7)])
    for word, kind in zip("xyz", KINDS, strict=True):
        table.put([point(kind, write_series(f"{word}.{n}", {"layer": '"\\\n'}), 7, host="h") for n in names])
    assert len(shown(table)) == 1 + len(KINDS) * len(names)
    written = text(families(table.snapshot()))
    done = subprocess.run(["promtool", "check", "metrics"], input=written, capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr  # 3: it would call something otherwise
    complaints = [line for line in done.stdout.decode().splitlines() + done.stderr.decode().splitlines() if line]
    assert complaints == []


def test_texts_of_label_sets_are_read_back() -> None:
    """The longest name and label set that can be come through."""
    table = PointTable()
    labels = {f"l{n}".ljust(64, "x"): "v" * 200 for n in range(16)}
    name = write_series("n" * 96, labels)
    assert parse_series(name) == ("n" * 96, labels)
    table.put([point(Kind.TIMING, name, 5, host="h" * 300)])
    ((family, shown_labels),) = shown(table)
    assert family == f"spanlite_custom_{'n' * 96}_seconds"
    assert len(shown_labels) == 17

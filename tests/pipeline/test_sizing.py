"""Sizes: exact on cases reckoned by hand, never less for more, and never nothing."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.errors import UsageError
from spanlite.pipeline.sizing.advice import advise
from spanlite.pipeline.sizing.figures import FIGURES, Figure, read_figures
from spanlite.pipeline.sizing.reckon import size
from spanlite.pipeline.sizing.request import Request
from spanlite.pipeline.sizing.sheet import Sheet, number, quantity
from spanlite.pipeline.sizing.skew import hottest_share, max_parallelism, parallelism, power_of_two

# Round figures, so that a person can reckon with them.
ROUND = {
    name: replace(figure, value=value, assumed=False)
    for name, figure in FIGURES.items()
    for value in [
        {
            "agent_spans_per_core_second": 2e6,
            "wire_bytes_per_span": 2.5,
            "trace_bytes_per_span": 0.5,
            "wire_bytes_per_batch": 2000.0,
            "fold_seconds_per_batch": 0.001,
            "metrics_thread_spans_per_core_second": 4e6,
            "metrics_process_spans_per_core_second": 1e6,
            "archive_spans_per_core_second": 1e6,
            "archive_bytes_per_span": 3.5,
            "compact_spans_per_core_second": 2e6,
            "point_records_per_core_second": 10_000.0,
            "point_bytes": 384.0,
            "point_key_bytes": 16.0,
            "point_compressed_share": 0.25,
            "pending_bytes_per_series": 400.0,
            "state_entry_bytes": 84.0,
            "series_per_label_set": 2.0,
            "exporter_bytes_per_series": 3000.0,
            "exporter_point_decodes_per_core_second": 50_000.0,
            "scrape_seconds_per_label_set": 0.0005,
            "scrape_text_bytes_per_label_set": 3000.0,
            "scrape_native_bytes_per_label_set": 1000.0,
            "prometheus_classic_series_per_label_set": 17.0,
            "prometheus_native_series_per_label_set": 4.0,
            "partition_bytes_per_second": 10e6,
            "hottest_core_share": 0.9,
        }.get(name, figure.value)
    ]
}
HUNDRED = Request(gpus=100, kernels_per_second=20_000, rate_spread=0.0, batch_spans=8192)


def values(request: Request, figures: dict[str, Figure] = ROUND) -> dict[str, float]:
    return {line.name: line.value for line in size(request, figures)}


def test_a_hundred_gpus_by_hand() -> None:
    """A hundred GPUs at 20,000 kernels a second: each quantity as reckoned on paper."""
    span_bytes = 3 + 2000 / 8192
    expected = {
        "spans": 2e6,
        "producers": 100,
        "batch": 8192,
        "batches": 2e6 / 8192,
        "span_bytes": span_bytes,
        "ingress": 2e6 * span_bytes,
        "nodes": 13,  # 100 / 8, and half a node is a node
        "node_spans": 160_000,
        "agent_cores": 0.08,
        "node_bytes": 160_000 * span_bytes,
        "series": 50_000,
        "point_records": 5000,  # 500 series a GPU every 10 s
        "record_bytes": 400,
        "points_in": 500_000,  # 5,000 × 400 B, of which a quarter is left
        "fold_cores": 0.5,
        "batch_cores": 0,
        "total_cores": 0.5,
        "metrics_busy": 1.0,
        "metrics_slots": 2,
        "series_state": 500,
        "totals_state": 25e6,
        "partials": 16,  # 240,000 spans in 12 s are 30 batches, but 16 are merged
        "pending_state": 100 * 16 * 500 * 400,
        "metrics_state": 345e6,
        "metrics_checkpoint_rate": 11.5e6,
        "metrics_max_parallelism": 128,
        "archive_busy": 2,
        "flush_spans": 1 << 20,  # in 60 s there would be 1,200,000
        "files": 2e6 * 3600 / (1 << 20),
        "archive_state": 100 * (1 << 20) * span_bytes,
        "archive_rate": 7e6,
        "archive_disk": 7e6 * 30 * 86400,
        "compaction_busy": 1,
        "written": 3 * (2e6 * span_bytes + 500_000),
        "brokers": 3,
        "broker_written": 2e6 * span_bytes + 500_000,
        # Two brokers get copies of everything, two jobs and an exporter read; over three brokers.
        "broker_sent": (2 * (2e6 * span_bytes + 500_000) + 2 * 2e6 * span_bytes + 500_000) / 3,
        "spans_disk": 2e6 * span_bytes * 7 * 86400 * 3,
        "points_active": 1.8e9,  # an hour; less than the newest segments of all partitions
        "points_disk": 3 * (50_000 * 100 + 1.8e9),
        "label_sets": 25_000,
        "reading": 0.1,
        "scrape_s": 12.5,
        "exporters": 3,  # 12.5 s, of which one may take 5
        "exporter_memory": 50e6,
        "scrape_text": 25e6,
        "prometheus_classic": 425_000,
        "prometheus_native": 100_000,
        "exporter_start": (1.8e9 / 100 + 50_000) / 50_000 / 3,
    }
    found = values(HUNDRED)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_the_agents_flush_decides_on_small_batches() -> None:
    """100 kernels a second, sent every second: batches of 100 spans, whose own cost counts in bytes and cores."""
    found = values(replace(HUNDRED, kernels_per_second=100))
    assert (found["batch"], found["batches"], found["span_bytes"]) == (100, 100, 23.0)
    assert found["batch_cores"] == pytest.approx((100 - 10_000 / 8192) * 0.001)
    assert found["pending_rows"] == 100
    assert found["partials"] == 12
    assert values(replace(HUNDRED, kernels_per_second=100, bytes_per_span=3.5))["span_bytes"] == 3.5


def test_more_processes_share_a_gpus_rate_and_series() -> None:
    """Four processes a GPU: four times the producers, a quarter of the rate and of the series each."""
    found = values(replace(HUNDRED, processes_per_gpu=4))
    assert (found["producers"], found["process_spans"], found["pending_rows"]) == (400, 5000, 125)
    assert found["spans"] == 2e6
    assert found["flush_spans"] == 300_000


def test_process_mode_takes_its_own_rate() -> None:
    """The slower mode needs the more cores."""
    assert values(replace(HUNDRED, mode="process"))["fold_cores"] == 2.0


def test_one_gpu_gets_something_of_everything_and_the_advice_to_embed() -> None:
    """A kernel a second on one GPU: nothing is rounded to none, and one process is said to be enough."""
    request = Request(gpus=1, kernels_per_second=1)
    found = values(request)
    for name in ("nodes", "metrics_slots", "archive_slots", "brokers", "exporters", "batch", "flush_spans"):
        assert found[name] >= 1, name
    assert found["partitions"] == 4
    assert found["changed"] == 10  # of 500 series no more than there are kernels in a window
    assert "embedded runner" in advise(request, ROUND, size(request, ROUND))[0]
    big = Request(gpus=1000, kernels_per_second=50_000)
    assert not any("embedded" in sentence for sentence in advise(big, ROUND, size(big, ROUND)))


def test_a_producer_that_fills_more_than_a_core_is_told_of() -> None:
    """No number of subtasks splits a key: the advice says so instead of asking for more of them."""
    request = Request(gpus=4, kernels_per_second=3e6, rate_spread=0.0)
    said = advise(request, ROUND, size(request, ROUND))
    assert any("archive job: the fullest subtask" in sentence and "one key" in sentence for sentence in said)
    assert values(request)["archive_slots"] == 24  # 12 cores at half


requests = st.builds(
    Request,
    gpus=st.integers(1, 20_000),
    kernels_per_second=st.floats(0.01, 1e6),
    processes_per_gpu=st.integers(1, 8),
    series_per_gpu=st.integers(1, 5000),
    headroom=st.floats(0.1, 1.0),
    replication=st.integers(1, 5),
    mode=st.sampled_from(["thread", "process"]),
    rate_spread=st.sampled_from([0.0, 0.5, 1.0]),
)
# Shares and per-GPU quantities may fall as the fleet grows; these are what must be bought.
BOUGHT = (
    "spans", "nodes", "ingress", "point_records", "metrics_busy", "metrics_slots", "metrics_max_parallelism",
    "metrics_state", "archive_busy", "archive_slots", "archive_max_parallelism", "files", "archive_state",
    "archive_disk", "written", "brokers", "partitions", "spans_disk", "points_disk", "exporters", "label_sets",
    "prometheus_classic", "prometheus_native",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(requests, st.integers(1, 20_000))
def test_more_gpus_never_need_less(request: Request, more: int) -> None:
    """Adding GPUs takes nothing away of what must be bought, and nothing is ever negative or no number."""
    small, large = values(request, FIGURES), values(replace(request, gpus=request.gpus + more), FIGURES)
    assert [name for name in BOUGHT if large[name] < small[name] * (1 - 1e-12)] == []
    assert [name for name, value in large.items() if not (math.isfinite(value) and value >= 0)] == []


@settings(max_examples=100, deadline=None)
@given(requests)
def test_nothing_that_is_counted_is_zero_and_no_subtask_is_overloaded(request: Request) -> None:
    """Slots, partitions, brokers are whole and at least one; the average subtask keeps its headroom."""
    found = values(request, FIGURES)
    for name in ("metrics_slots", "archive_slots", "partitions", "brokers", "exporters", "nodes"):
        assert found[name] >= 1, name
        assert found[name] == int(found[name]), name
    for job, keys in (("metrics", request.gpus), ("archive", request.gpus * request.processes_per_gpu)):
        assert found[f"{job}_busy"] / found[f"{job}_slots"] <= request.headroom * (1 + 1e-12)
        assert found[f"{job}_hottest"] <= 0.9 or found[f"{job}_slots"] >= keys
        assert found[f"{job}_max_parallelism"] >= min(found[f"{job}_slots"], 32768)
    assert found["partitions"] >= max(found["metrics_slots"], found["archive_slots"])


@settings(max_examples=60, deadline=None)
@given(requests)
def test_the_numbers_shown_give_the_result_shown(request: Request) -> None:
    """Where a formula is plain arithmetic, its numbers, read as such, give the value, to their four digits."""
    shown = [line for line in size(request, FIGURES) if re.fullmatch(r"[-\d.,e×/+() ]+", line.numbers)]
    assert len(shown) > 30
    for line in shown:
        got = eval(line.numbers.replace(",", "").replace("×", "*"))  # noqa: S307  # digits and operators, as matched
        assert line.value == pytest.approx(math.ceil(got) if line.name == "nodes" else got, rel=5e-3), line


def test_what_rests_on_an_assumption_is_marked() -> None:
    """An assumed figure marks its line and those that use it, and no others; a flag in its place takes the mark off."""
    assumed = {**ROUND, "archive_bytes_per_span": replace(ROUND["archive_bytes_per_span"], assumed=True)}
    assert [line.name for line in size(HUNDRED, assumed) if line.assumed] == ["archive_rate", "archive_disk"]
    given_instead = replace(HUNDRED, archive_bytes_per_span=4.0)
    assert [line for line in size(given_instead, assumed) if line.assumed] == []
    assert values(given_instead, assumed)["archive_rate"] == 8e6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": 0}, "--gpus is 0; give a number above 0"),
        ({"kernels_per_second": float("nan")}, "--kernels-per-second is nan; give"),
        ({"kernels_per_second": float("inf")}, "--kernels-per-second is inf; give"),
        ({"window_s": -1.0}, "--window is -1; give"),
        ({"headroom": 1.5}, "--headroom is 1.5; give"),
        ({"mode": "fork"}, "--mode is 'fork'; give thread or process"),
        ({"rate_spread": 3.0}, "--rate-spread is 3; give"),
    ],
)
def test_what_cannot_be_sized_is_refused_by_its_flag(change: dict[str, float], said: str) -> None:
    """Each error names the flag and what it may be."""
    with pytest.raises(UsageError) as caught:
        size(replace(HUNDRED, **change))  # type: ignore[arg-type]  # one of them is a text
    assert said in str(caught.value)


def _tail(mean: float, k: int) -> float:
    return 1 - math.fsum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(k + 1))


@pytest.mark.parametrize(("keys", "bins"), [(10_000, 16), (10_000, 1024), (100, 4), (100, 128), (7, 7)])
def test_the_fullest_bin_is_the_poisson_quantile(keys: int, bins: int) -> None:
    """The share is that of the least k that all bins stay below nine times in ten, by summing the distribution."""
    k = round(hottest_share(keys, bins) * keys)
    assert bins * _tail(keys / bins, k) <= 0.1 + 1e-9
    assert bins * _tail(keys / bins, k - 1) > 0.1


def test_the_fullest_bin_is_as_full_as_thrown_balls_make_it() -> None:
    """10,000 keys thrown at random over 128 bins, 200 times: about nine in ten are within what is said."""
    random = np.random.default_rng(7)
    said = hottest_share(10_000, 128) * 10_000
    within = sum(np.bincount(random.integers(0, 128, 10_000)).max() <= said for _ in range(200))
    assert 170 <= within <= 198


def test_many_keys_are_as_even_as_the_sum_says() -> None:
    """Where the quantile is expanded instead of summed it is the same, to a key."""
    for keys in (99_999 * 16, 100_001 * 16):
        k = round(hottest_share(keys, 16) * keys)
        assert 16 * _tail(keys / 16, k + 1) <= 0.1 < 16 * _tail(keys / 16, k - 2)


def test_the_share_is_never_outside_what_can_be() -> None:
    """One bin has all; bins beyond the keys help no more than one key each; unequal rates are worse."""
    assert hottest_share(10_000, 1) == 1.0
    assert hottest_share(1, 64) == 1.0
    assert hottest_share(50, 1 << 15) >= 1 / 50
    assert hottest_share(1000, 64, 1.0) > hottest_share(1000, 64, 0.5) > hottest_share(1000, 64)


@pytest.mark.parametrize(
    ("load", "keys", "expected"),
    [
        (0.001, 1, 1),
        (0.6, 1, 2),  # the average decides: no more subtasks help the one key
        (2.0, 1, 4),
        (2.0, 10_000, 4),  # so many keys are even
    ],
)
def test_parallelism_by_hand(load: float, keys: float, expected: int) -> None:
    """At half a core on average, and 0.9 for the fullest."""
    assert parallelism(load, keys, 0.0, mean=0.5, hottest=0.9) == expected


@pytest.mark.parametrize(
    ("subtasks", "groups"), [(1, 128), (8, 128), (9, 256), (64, 1024), (2000, 32768), (9999, 32768)]
)
def test_key_groups(subtasks: int, groups: int) -> None:
    """Sixteen a subtask, a power of two, within Flink's bounds."""
    assert max_parallelism(subtasks) == groups


@pytest.mark.parametrize(("least", "power"), [(0.1, 1), (1, 1), (1.5, 2), (4, 4), (5, 8), (1024, 1024)])
def test_power_of_two(least: float, power: int) -> None:
    """The smallest that is not smaller."""
    assert power_of_two(least) == power


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5e8, "spans/s", "500 M spans/s"),
        (1.47e9, "B/s", "1.47 GB/s"),
        (404, "B", "404 B"),
        (2.67e15, "B", "2.67 PB"),
        (0.2, "cores", "0.2 cores"),
        (46, "", "46"),
        (1716613.77, "files/h", "1,720,000 files/h"),
        (999.6, "B", "1,000 B"),
    ],
)
def test_quantities_carry_their_unit(value: float, unit: str, text: str) -> None:
    """Decimal prefixes for bytes and rates, three digits, thousands apart."""
    assert quantity(value, unit) == text


def test_a_sheet_shows_names_and_numbers() -> None:
    """Words that are values become numbers, all others stay; `whole` rounds up."""
    sheet = Sheet({"boxes": 7, "lorry": 4})
    assert sheet.product("tours", "tours", "", ["boxes"], ["lorry"], whole=True) == 2
    assert (sheet.lines[0].formula, sheet.lines[0].numbers) == ("boxes / lorry", "7 / 4")
    assert number(123456.7) == "123,457"


def test_benchmark_files_replace_figures(tmp_path: Path) -> None:
    """Rows of a benchmark, rows of figure and value, and plain objects; the worst of several; none stays assumed."""
    rows = [{"recording": "a", "M spans/s": 2.3}, {"recording": "b", "M spans/s": 2.1}]
    (tmp_path / "bench_agent.json").write_text(json.dumps({"title": "t", "rows": rows}))
    (tmp_path / "bench_sizes.json").write_text(json.dumps({"rows": [{"figure": "point_bytes", "value": 410.5}]}))
    (tmp_path / "bench_flink.json").write_text(json.dumps({"archive_spans_per_core_second": 9e5}))
    (tmp_path / "bench_decode.json").write_text("[]")
    table = read_figures(tmp_path)
    assert table["agent_spans_per_core_second"].value == pytest.approx(2.1e6)
    assert table["point_bytes"].value == 410.5
    assert table["archive_spans_per_core_second"] == replace(
        FIGURES["archive_spans_per_core_second"], value=9e5, assumed=False
    )
    untouched = FIGURES.keys() - {"agent_spans_per_core_second", "point_bytes", "archive_spans_per_core_second"}
    assert all(table[name] == FIGURES[name] for name in untouched)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ('{"speed": 3}', "none of the figures is in there; give what a benchmark wrote"),
        ('{"point_bytes": 0}', "point_bytes is 0; a figure is above 0"),
        ('{"point_bytes": true}', "none of the figures"),
    ],
)
def test_figures_that_cannot_be_used_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """The error names the file and what to give instead."""
    file = tmp_path / "figures.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_figures(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_figures_file_is_refused(tmp_path: Path) -> None:
    """A name that is not there is an error of the call."""
    with pytest.raises(UsageError, match="No such file"):
        read_figures(tmp_path / "none.json")


def test_each_figure_names_a_script_that_there_is() -> None:
    """Measured figures say which benchmark measures them, and it exists; only assumed ones may name one to come."""
    folder = Path(__file__).parents[2] / "benchmarks"
    scripts = {figure.script for figure in FIGURES.values() if figure.script and not figure.assumed}
    assert [script for script in scripts if not (folder / f"{script}.py").is_file()] == []
    without = {name for name, figure in FIGURES.items() if not figure.script and not figure.assumed}
    assert without == {"point_key_bytes", "file_message_bytes"}  # constants of the code, not measurements

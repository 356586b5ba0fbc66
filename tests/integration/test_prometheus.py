"""A real Prometheus scrapes the endpoint: one by protobuf with native histograms, one by OpenMetrics with classic."""

from __future__ import annotations

import http.client
import json
import math
import shutil
import socket
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from spanlite.contract.batch import Gpu
from spanlite.contract.columns import Kind
from spanlite.contract.histogram import bucket_index
from spanlite.contract.points import Exemplar, Launch, Point, Series
from spanlite.exporters.server import MetricsServer
from spanlite.exporters.table import PointTable

pytestmark = pytest.mark.prometheus
QUANTILES = (0.1, 0.5, 0.9, 0.99)
HOSTILE = ['quote"back\\slash', "line\nbreak", "nul\0", "lone\ud800", "x" * 1_000_000, '"} 1\n# EOF\n', "ünï✓"]
TRACE = bytes(range(16))
_ATTEMPTS, _PAUSE_S = 300, 0.1


def cumulative(series: Series, durations: NDArray[np.int64]) -> Point:
    """A point of these executions."""
    index, count = np.unique(bucket_index(durations), return_counts=True)
    sum_ns, longest = int(durations.sum()), int(durations.max())
    return Point(
        series=series,
        window_start_ns=0,
        window_end_ns=10**10,
        count=len(durations),
        spans=len(durations),
        sum_ns=sum_ns,
        min_ns=int(durations.min()),
        max_ns=longest,
        warp_ns=sum_ns * series.launch.active_warps,
        bytes=0,
        bucket_index=index,
        bucket_count=count.astype(np.int64),
        exemplar=Exemplar(TRACE, 7, longest, 1_700_000_000 * 10**9),
        cumulative=True,
    )


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    port: int
    process: subprocess.Popen[bytes]

    def get(self, path: str, **parameters: str) -> Any:
        """The data of one API answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", f"{path}?{urllib.parse.urlencode(parameters)}")
            return json.loads(connection.getresponse().read())["data"]
        finally:
            connection.close()

    def query(self, promql: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of an instant query."""
        return [(r["metric"], float(r["value"][1])) for r in self.get("/api/v1/query", query=promql)["result"]]


def wait_until_scraped(prometheus: Prometheus) -> None:
    """Waits until a scrape went well; fails with the scrape's error after 30 s."""
    last = "no answer"
    for _ in range(_ATTEMPTS):
        assert prometheus.process.poll() is None, "Prometheus ended by itself"
        try:
            (target,) = prometheus.get("/api/v1/targets")["activeTargets"] or [{"health": "none", "lastError": ""}]
            last = f"{target['health']} {target['lastError']}"
            if target["health"] == "up" and prometheus.query("spanlite_build_info"):
                return
        except (OSError, ValueError, http.client.HTTPException) as error:  # not up yet
            last = str(error)
        threading.Event().wait(_PAUSE_S)
    pytest.fail(f"not scraped: {last}")


@contextmanager
def scraping(port: int, folder: Path, *features: str) -> Iterator[Prometheus]:
    """A Prometheus that scrapes `port` each second, until the block ends; it may not have scraped yet."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        own_port = probe.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "spanlite", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{own_port}",
        "--log.level=error",
        *([f"--enable-feature={','.join(features)}"] if features else []),
    ]
    with subprocess.Popen(command) as server:
        try:
            yield Prometheus(own_port, server)
        finally:
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()


@pytest.fixture(scope="module")
def durations() -> dict[str, NDArray[np.int64]]:
    """Durations of a recorded H200 serving run by kernel id."""
    table = pq.read_table(Path(__file__).parents[1] / "data" / "serve_slice.parquet")
    names = np.array(table["kernel"].to_pylist())
    values = table["duration_ns"].to_numpy().astype(np.int64)
    return {f"k{number:02}": values[names == name] for number, name in enumerate(np.unique(names))}


@pytest.fixture(scope="module")
def endpoint(durations: dict[str, NDArray[np.int64]]) -> Iterator[MetricsServer]:
    """The run, and kernels with hostile names, on loopback."""
    table = PointTable()
    launch = Launch(active_warps=48, max_warps=64, limiter=3)
    table.put(
        cumulative(Series("GPU-1", Kind.KERNEL, kernel, name=f"void {kernel}()", launch=launch), values)
        for kernel, values in durations.items()
    )
    table.put(
        cumulative(Series("GPU-2", Kind.KERNEL, name, name=name, stage=name, pod=name), np.full(number + 1, 1000))
        for number, name in enumerate(HOSTILE)
    )
    table.gpu_info([Gpu("GPU-1", 0, "NVIDIA H200", 9, 0, 132, "0000:01:00.0")], host="node-1")
    with MetricsServer(table, port=0) as server:
        yield server


@pytest.fixture(scope="module")
def both(endpoint: MetricsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Prometheus]]:
    """Two servers, started side by side: each takes some seconds to find its target."""
    features = ("native-histograms", "exemplar-storage")
    with (
        scraping(endpoint.port, tmp_path_factory.mktemp("native"), *features) as native,
        scraping(endpoint.port, tmp_path_factory.mktemp("classic")) as classic,
    ):
        wait_until_scraped(native)
        wait_until_scraped(classic)
        yield native, classic


@pytest.fixture
def native(both: tuple[Prometheus, Prometheus]) -> Prometheus:
    """Prometheus with native histograms and exemplars."""
    return both[0]


@pytest.fixture
def classic(both: tuple[Prometheus, Prometheus]) -> Prometheus:
    """Prometheus as it comes."""
    return both[1]


def true_quantile(values: NDArray[np.int64], q: float) -> float:
    """The execution of rank ceil(q n), in seconds."""
    return float(np.sort(values)[max(math.ceil(q * len(values)), 1) - 1]) / 1e9


def quantiles(prometheus: Prometheus, selector: str, q: float) -> dict[str, float]:
    """histogram_quantile by kernel."""
    found = prometheus.query(f"histogram_quantile({q}, {selector})")
    return {labels["kernel"]: value for labels, value in found}


@pytest.mark.parametrize("q", QUANTILES)
def test_native_quantiles_lie_in_the_bucket_of_the_truth(
    native: Prometheus, durations: dict[str, NDArray[np.int64]], q: float
) -> None:
    """Proves that each kernel's quantile is off by less than one bucket of schema 5, 2.2 %."""
    found = quantiles(native, 'spanlite_kernel_duration_seconds{UUID="GPU-1"}', q)
    assert found.keys() == durations.keys()
    for kernel, values in durations.items():
        assert found[kernel] == pytest.approx(true_quantile(values, q), rel=2 ** (1 / 32) - 1 + 1e-9)


@pytest.mark.parametrize("q", QUANTILES)
def test_classic_quantiles_lie_in_the_bucket_of_the_truth(
    classic: Prometheus, durations: dict[str, NDArray[np.int64]], q: float
) -> None:
    """Proves that each kernel's quantile falls between the classic bounds around the true one."""
    found = quantiles(classic, 'spanlite_kernel_duration_seconds_bucket{UUID="GPU-1"}', q)
    assert found.keys() == durations.keys()
    bounds = np.array([0, *(4.0**k for k in range(-10, 1))])
    for kernel, values in durations.items():
        upper = int(np.searchsorted(bounds, true_quantile(values, q), side="left"))
        assert bounds[upper - 1] <= found[kernel] <= bounds[upper]


def test_counts_and_sums_are_those_of_the_run(
    native: Prometheus, classic: Prometheus, durations: dict[str, NDArray[np.int64]]
) -> None:
    """Proves that both ways carry every execution: exact counts, sums to the last bit of a float."""
    truth = {kernel: (len(values), int(values.sum()) / 10**9) for kernel, values in durations.items()}
    name = 'spanlite_kernel_duration_seconds{}{{UUID="GPU-1"}}'
    for prometheus, count, total in (
        (classic, name.format("_count"), name.format("_sum")),
        (native, f"histogram_count({name.format('')})", f"histogram_sum({name.format('')})"),
    ):
        counts = {labels["kernel"]: value for labels, value in prometheus.query(count)}
        sums = {labels["kernel"]: value for labels, value in prometheus.query(total)}
        assert {kernel: (counts[kernel], sums[kernel]) for kernel in counts} == truth


def test_the_documented_join_names_the_gpu_model(native: Prometheus, classic: Prometheus) -> None:
    """Proves the recipe of docs/metrics.md in both formats."""
    promql = 'sum by (model_name) (spanlite_kernel_launches_total{UUID="GPU-1"} * on(UUID) group_left(model_name) '
    for prometheus in (native, classic):
        assert prometheus.query(f"{promql} spanlite_gpu_info)") == [({"model_name": "NVIDIA H200"}, 20_000)]


def test_the_documented_occupancy_is_weighted_by_time(native: Prometheus, classic: Prometheus) -> None:
    """Proves the second recipe: 48 of 64 warps everywhere is 0.75 however it is weighted."""
    time = 'spanlite_kernel_duration_seconds_sum{UUID="GPU-1"}'
    ((labels, value),) = classic.query(f"sum(spanlite_kernel_theoretical_occupancy_ratio * {time}) / sum({time})")
    assert labels == {}
    assert value == pytest.approx(0.75, rel=1e-12)
    time = 'histogram_sum(spanlite_kernel_duration_seconds{UUID="GPU-1"})'
    ((labels, value),) = native.query(f"sum(spanlite_kernel_theoretical_occupancy_ratio * {time}) / sum({time})")
    assert labels == {}
    assert value == pytest.approx(0.75, rel=1e-12)


def test_hostile_names_reach_prometheus_as_series_of_their_own(native: Prometheus, classic: Prometheus) -> None:
    """Proves that quotes, newlines, NUL, lone surrogates and 1 MB break no scrape in either format."""
    for prometheus in (native, classic):
        found = prometheus.query('spanlite_kernel_launches_total{UUID="GPU-2"}')
        assert sorted(value for _, value in found) == list(range(1, len(HOSTILE) + 1))
        by_value = {value: labels["kernel"] for labels, value in found}
        assert by_value[1] == HOSTILE[0]
        assert by_value[2] == HOSTILE[1]
        assert len(by_value[5]) == 200


def test_exemplars_lead_to_the_trace_of_the_longest_execution(
    native: Prometheus, durations: dict[str, NDArray[np.int64]]
) -> None:
    """Proves that Prometheus keeps the trace id and the duration of a kernel's longest execution."""
    found = native.get(
        "/api/v1/query_exemplars",
        query='spanlite_kernel_duration_seconds{kernel="k00"}',
        start="1699999000",
        end="1700009000",
    )
    (series,) = found
    (exemplar,) = series["exemplars"]
    assert exemplar["labels"] == {"trace_id": TRACE.hex(), "span_id": "0000000000000007"}
    assert float(exemplar["value"]) == int(durations["k00"].max()) / 1e9

"""A real Prometheus scrapes the demo: what it then says of each kernel is judged by the raw bytes of the recording."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cli.recorded import works
from tests.integration.test_prometheus import Prometheus, quantiles, scraping, true_quantile, wait_until_scraped

pytestmark = pytest.mark.prometheus
QUANTILES = (0.5, 0.9, 0.99)
CLASSIC_BOUNDS = np.array([0, *(4.0**k for k in range(-10, 1))])
HISTOGRAM = "spanlite_kernel_duration_seconds"


@dataclass(frozen=True)
class Kept:
    """A demo that waits for Ctrl-C: its address, and the durations of each kernel by the id that it gave it."""

    url: str
    durations: dict[str, NDArray[np.int64]]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].partition("/")[0])


def durations_by_id(summary: list[dict[str, object]]) -> dict[str, NDArray[np.int64]]:
    """Recorded durations under the demo's ids; launches and GPU time together tell every kernel from the others."""
    by_name: dict[str, list[int]] = {}
    for work in works("serve-cupti130500"):
        if work.kind == "kernel":
            by_name.setdefault(work.name, []).append(work.duration_ns)
    truth = {(len(ns), sum(ns) / 1e9): np.array(ns) for ns in by_name.values()}
    assert len(truth) == len(by_name)
    return {str(k["kernel"]): truth[k["count"], k["seconds"]] for k in summary if k["kind"] == "kernel"}  # type: ignore[index]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """`spanlite demo --keep`, interrupted when the tests are through; it must end well."""
    words = ["demo", "--keep", "--speed", "0", "--port", "0", "--json", "--archive", str(tmp_path_factory.mktemp("a"))]
    command = [sys.executable, "-m", "spanlite", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            text = ""
            while not text.endswith("\n}\n") and (line := process.stdout.readline()):
                text += line
            said = json.loads(text)
            yield Kept(said["metrics"], durations_by_id(said["kernels"]))
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def both(demo: Kept, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Prometheus]]:
    """Two servers, started side by side: one with native histograms, one as it comes."""
    with (
        scraping(demo.port, tmp_path_factory.mktemp("native"), "native-histograms") as native,
        scraping(demo.port, tmp_path_factory.mktemp("classic")) as classic,
    ):
        wait_until_scraped(native)
        wait_until_scraped(classic)
        yield native, classic


@pytest.mark.parametrize("q", QUANTILES)
def test_native_quantiles_are_those_of_the_recording(demo: Kept, both: tuple[Prometheus, Prometheus], q: float) -> None:
    """Proves that every kernel's quantile is off by less than a bucket of schema 5, 2.2 %."""
    found = quantiles(both[0], HISTOGRAM, q)
    assert found.keys() == demo.durations.keys()
    for kernel, values in demo.durations.items():
        assert found[kernel] == pytest.approx(true_quantile(values, q), rel=2 ** (1 / 32) - 1 + 1e-9)


@pytest.mark.parametrize("q", QUANTILES)
def test_classic_quantiles_lie_in_the_bucket_of_the_truth(
    demo: Kept, both: tuple[Prometheus, Prometheus], q: float
) -> None:
    """Proves that every kernel's quantile falls between the classic bounds around the true one."""
    found = quantiles(both[1], f"{HISTOGRAM}_bucket", q)
    assert found.keys() == demo.durations.keys()
    for kernel, values in demo.durations.items():
        upper = int(np.searchsorted(CLASSIC_BOUNDS, true_quantile(values, q), side="left"))
        assert CLASSIC_BOUNDS[upper - 1] <= found[kernel] <= CLASSIC_BOUNDS[upper]


def test_launches_and_time_are_those_of_the_recording(demo: Kept, both: tuple[Prometheus, Prometheus]) -> None:
    """Proves 60,480 launches and the GPU time of each kernel, as counter and as native histogram."""
    native, classic = both
    launches = "spanlite_kernel_launches_total"
    for prometheus, count, total in (
        (classic, launches, f"{HISTOGRAM}_sum"),
        (native, f"histogram_count({HISTOGRAM})", f"histogram_sum({HISTOGRAM})"),
    ):
        assert prometheus.query(f"sum({launches})") == [({}, 60_480)]
        counts = {labels["kernel"]: value for labels, value in prometheus.query(count)}
        assert counts == {kernel: len(values) for kernel, values in demo.durations.items()}
        sums = {labels["kernel"]: value for labels, value in prometheus.query(total)}
        for kernel, values in demo.durations.items():
            assert sums[kernel] == pytest.approx(int(values.sum()) / 1e9, rel=1e-12)


def test_what_must_add_up_adds_up(both: tuple[Prometheus, Prometheus]) -> None:
    """Proves the two sums of docs/metrics.md by PromQL."""

    def total(prometheus: Prometheus, name: str) -> float:
        ((_, value),) = prometheus.query(f"sum(spanlite_{name}_total) or vector(0)")
        return value

    for prometheus in both:
        received, sent, dropped = (total(prometheus, f"agent_spans_{word}") for word in ("received", "sent", "dropped"))
        assert received == sent + dropped == 61_266
        parts = ("spans_folded", "spans_ignored", "late_spans")
        assert sum(total(prometheus, f"pipeline_{part}") for part in parts) == 61_266
        assert total(prometheus, "pipeline_spans_received") == 61_266


def test_promtool_finds_nothing_to_say(demo: Kept) -> None:
    """Proves that names, units, types and help of the demo's whole page pass the linter without a word."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    assert demo.url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(demo.url, timeout=10) as answer:  # noqa: S310  # see above
        page = answer.read()
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

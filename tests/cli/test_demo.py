"""`spanlite demo`: a real process that plays the recorded run, judged by the raw bytes of the recording."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.cli.process import spanlite
from tests.cli.recorded import raw, works

NAME = "serve-cupti130500"
LAUNCHES = 60_480
WORKS = works(NAME)


def by_name() -> dict[tuple[str, str], list[int]]:
    """Durations of each kernel, copy and memory set of the recording."""
    found: dict[tuple[str, str], list[int]] = {}
    for work in WORKS:
        found.setdefault((work.kind, work.name), []).append(work.duration_ns)
    return found


@dataclass(frozen=True)
class Demo:
    """A finished demo."""

    archive: Path
    said: str
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo at once, as JSON."""
    archive = tmp_path_factory.mktemp("demo") / "archive"
    done = spanlite("demo", "--speed", "0", "--json", "--port", "0", "--archive", archive)
    assert done.returncode == 0, done.stderr
    return Demo(archive, done.stderr, json.loads(done.stdout))


def test_its_kernels_are_those_of_the_recording(demo: Demo) -> None:
    """Proves launches and GPU time of every kernel, and that no two share an id."""
    kernels = demo.summary["kernels"]
    expected = Counter((kind, len(ns), sum(ns) / 1e9) for (kind, _), ns in by_name().items())
    assert Counter((k["kind"], k["count"], k["seconds"]) for k in kernels) == expected
    assert len({(k["kind"], k["kernel"]) for k in kernels}) == len(kernels)
    assert sum(k["count"] for k in kernels if k["kind"] == "kernel") == LAUNCHES
    assert sum(k["share"] for k in kernels) == pytest.approx(1, rel=1e-12)


def test_its_quantiles_are_within_a_bucket_of_the_truth(demo: Demo) -> None:
    """Proves p50 and p99 to be at most 1.1 % off for every kernel."""
    truth = {(kind, len(ns), sum(ns) / 1e9): np.sort(ns) for (kind, _), ns in by_name().items()}
    for kernel in demo.summary["kernels"]:
        ns = truth[kernel["kind"], kernel["count"], kernel["seconds"]]
        for q, said in ((0.5, kernel["p50_seconds"]), (0.99, kernel["p99_seconds"])):
            exact = ns[int(np.ceil(q * len(ns))) - 1] / 1e9
            assert said == pytest.approx(exact, rel=2 ** (1 / 64) - 1 + 1e-9)


def test_its_stages_are_those_of_the_recording(demo: Demo) -> None:
    """Proves the share of each stage by replaying the recorded ranges."""
    time_ns: Counter[str] = Counter()
    for work in WORKS:
        time_ns[work.stage.partition(":")[0] or "(none)"] += work.duration_ns
    total = sum(time_ns.values())
    assert demo.summary["stages"] == {stage: ns / total for stage, ns in time_ns.items()}
    assert sum(demo.summary["stages"].values()) == pytest.approx(1, rel=1e-12)


def test_its_account_is_complete(demo: Demo) -> None:
    """Proves that every execution and range was received, sent and archived, and none dropped."""
    spans = raw(NAME).spans
    assert demo.summary["spans_received"] == demo.summary["spans_sent"] == spans
    assert demo.summary["spans_dropped"] == {}
    assert demo.summary["stage_unknown"] == sum(work.stage == "unknown" for work in WORKS)
    files = [Path(file) for file in demo.summary["files"]]
    assert files == sorted(demo.archive.rglob("*.parquet"))
    assert demo.summary["archive_bytes"] == sum(file.stat().st_size for file in files)


def test_the_query_it_prints_runs(demo: Demo) -> None:
    """Proves that DuckDB gives ten rows, the first one the stage and kernel with the most GPU time."""
    rows = duckdb.sql(demo.summary["query"]).fetchall()
    time_ns: Counter[tuple[str, str]] = Counter()
    durations: dict[tuple[str, str], list[int]] = {}
    for work in WORKS:
        if work.kind == "kernel":
            time_ns[work.stage, work.name] += work.duration_ns
            durations.setdefault((work.stage, work.name), []).append(work.duration_ns)
    top = time_ns.most_common(10)
    assert [(stage, launches, p50) for stage, _, launches, p50, _ in rows] == [
        (key[0], len(durations[key]), float(np.median(durations[key]))) for key, _ in top
    ]
    assert all(0 < occupancy <= 1 for *_, occupancy in rows)

"""What tests of replays to a service share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from spanlite.cli.main import main

Row = dict[str, Any]


def rows_of(root: Path) -> list[Row]:
    """Every row of an archive, read as any engine reads it."""
    files = [str(path) for path in root.rglob("*.parquet")]
    rows: list[Row] = ds.dataset(files, format="parquet").to_table().to_pylist()
    return rows


def traces_of(rows: list[Row]) -> dict[bytes, list[Row]]:
    """The rows of each trace, traces in the order of their starts."""
    found: dict[bytes, list[Row]] = defaultdict(list)
    for row in rows:
        if row["trace_id"] is not None:
            found[row["trace_id"]].append(row)
    return dict(sorted(found.items(), key=lambda entry: (start_of(entry[1]), entry[0])))


def start_of(rows: list[Row]) -> int:
    """When a trace starts, by its rows."""
    known: list[int] = [row["trace_start_ns"] for row in rows if row["trace_start_ns"]]
    starts: list[int] = [row["start_ns"] for row in rows]
    return min(known or starts)


def duration_of(rows: list[Row]) -> int:
    """How long a trace takes, by its rows."""
    ends: list[int] = [row["start_ns"] + row["duration_ns"] for row in rows]
    return max(max(ends) - start_of(rows), 0)


def roots_of(rows: list[Row]) -> list[Row]:
    """The rows that may be a trace's root: the first of its ranges without a parent, the longest of several."""
    ranges = [row for row in rows if row["kind"] == "range" and row["parent_span_id"] is None]
    if not ranges:
        return []
    first = min((row["start_ns"], -row["duration_ns"]) for row in ranges)
    return [row for row in ranges if (row["start_ns"], -row["duration_ns"]) == first]


@pytest.fixture(scope="session")
def rows(archive: Path) -> list[Row]:
    """Every row of the recorded archive."""
    return rows_of(archive)


@pytest.fixture(scope="session")
def traces(rows: list[Row]) -> dict[bytes, list[Row]]:
    """The rows of each recorded trace, in order."""
    return traces_of(rows)


@pytest.fixture
def sent(archive: Path) -> Callable[..., int]:
    """Runs the command on the recorded archive, in this process: its exit code."""

    def run(url: str, *words: str | Path) -> int:
        pace = [] if {"--qps", "--speed"} & set(map(str, words)) else ["--speed", "1000", "--gap-cap", "1s"]
        return main(["replay", "run", str(archive), "--to", "http", "--url", url, *pace, *map(str, words)])

    return run

"""Which spans were to come, and under which numbers: conditions said once more, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ReplayError
from spanlite.contract.ids import RANGE_BIT
from spanlite.contract.rows import span_rows
from spanlite.replay.compare.taken import expected
from spanlite.replay.compare.told import read_manifest
from spanlite.replay.selection import Selection
from tests.replay.compare.made import told

Row = dict[str, Any]


def _taken(batches: list[Batch], selection: Selection) -> set[str]:
    """Ids on the wire of what is taken."""
    ids = set()
    for one in expected(lambda: batches, told(selection=selection)):
        for piece in one.pieces:
            ids |= {f"{span:016x}" for span in piece.batch.span_ids[piece.taken].tolist()}
    return ids


def _wanted(rows: list[Row], condition: Callable[[Row], bool]) -> set[str]:
    return {row["span_id"] for row in rows if condition(row)}


@pytest.fixture(scope="module")
def rows(recorded: list[Batch]) -> list[Row]:
    """All recorded spans, one by one."""
    return [{**row, "host": one.resource["host.name"]} for one in recorded for row in span_rows(one)]


def test_each_condition_takes_what_it_says(recorded: list[Batch], rows: list[Row]) -> None:
    """Of each condition the spans are those that a plain test of each row finds; all of them together, too."""
    times = sorted(row["start_unix_ns"] for row in rows)
    begin, end = times[len(times) // 4], times[len(times) // 2]
    trace = next(row["trace_id"] for row in rows if row["trace_id"])
    gpu = next(row["place"]["gpu"] for row in rows if row["place"]["gpu"])
    stage = next(row["stage"] for row in rows if row["stage"])
    cases: list[tuple[dict[str, Any], Callable[[Row], bool]]] = [
        ({"from_ns": begin, "to_ns": end}, lambda row: begin <= row["start_unix_ns"] < end),
        ({"traces": (bytes.fromhex(trace),)}, lambda row: row["trace_id"] == trace),
        ({"hosts": ("node-1", "x")}, lambda row: row["host"] == "node-1"),
        ({"gpus": (gpu,)}, lambda row: row["place"]["gpu"] == gpu),
        (
            {"kernels": ("*elementwise*", "vector*")},
            lambda row: any(
                fnmatchcase(row[name], pattern)
                for name in ("kernel", "name")
                for pattern in ("*elementwise*", "vector*")
            ),
        ),
        ({"stages": (stage,)}, lambda row: row["stage"] == stage),
        ({"stages": ("",)}, lambda row: row["stage"] == ""),
        ({"least_ns": 5000}, lambda row: row["duration_ns"] >= 5000),
    ]
    for facts, condition in cases:
        found = _taken(recorded, Selection(**facts))
        assert found == _wanted(rows, condition), facts
        assert 0 < len(found) < len(rows), facts
    some = [cases[at] for at in (0, 2, 4, 7)]
    together = Selection(**{name: value for facts, _ in some for name, value in facts.items()})
    assert _taken(recorded, together) == _wanted(rows, lambda row: all(condition(row) for _, condition in some))


def test_whole_traces_take_what_is_beside_a_match(recorded: list[Batch], rows: list[Row]) -> None:
    """Every span of a trace that has a match comes, and matches outside traces."""
    longest = sorted(row["duration_ns"] for row in rows)[-40]
    matching = {row["trace_id"] for row in rows if row["duration_ns"] >= longest} - {""}
    found = _taken(recorded, Selection(least_ns=longest, whole_traces=True))
    assert found == _wanted(rows, lambda row: row["duration_ns"] >= longest or row["trace_id"] in matching)
    assert len(found) > 40


def test_numbers_go_on_over_what_is_left_out(small: list[Batch]) -> None:
    """Mapped ids: rows of a batch count on from the first that is taken, over pieces; ranges keep theirs."""
    batch = small[0]
    halves = [
        replace(batch, columns=batch.columns.take(slice(0, 40))),
        replace(batch, first_row=batch.first_row + 60, columns=batch.columns.take(slice(60, None))),
    ]
    selection = Selection(least_ns=3000)
    kept = [half.columns.duration_ns >= 3000 for half in halves]
    first = halves[0].first_row + int(np.flatnonzero(kept[0])[0])
    (one,) = expected(lambda: halves, told(selection=selection, remapped=True))
    numbers = np.concatenate([piece.numbers for piece in one.pieces])
    ranges = np.concatenate([half.columns.range_number[mask] for half, mask in zip(halves, kept, strict=True)])
    wanted = [number | RANGE_BIT if number >= 0 else first + at for at, number in enumerate(ranges.tolist())]
    assert numbers.tolist() == wanted
    assert one.sizes == [len(wanted)]
    (plain,) = expected(lambda: halves, told(selection=selection))
    rows = np.concatenate([np.flatnonzero(mask) + half.first_row for half, mask in zip(halves, kept, strict=True)])
    assert len(plain.sizes) == 1 + int((np.diff(rows) != 1).sum())
    cut = plain.first(3)
    assert (cut.spans, sum(len(piece.numbers) for piece in cut.pieces)) == (3, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"offset_ns": 1 << 64},
        {"offset_ns": "much"},
        {"run": None, "settings": {}},
        {"emitted": {"spans": 1, "lost": []}},
        {"period_ns": -1},
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Another version and values that no run writes are errors with the file's name, and no crash."""
    facts: dict[str, Any] = {
        "format": 1,
        "run": "r",
        "seed": 0,
        "ended": "finished",
        "archive": {"where": "traces"},
        "output": "out",
        "settings": {
            "ids": "keep",
            "order": "arrival",
            "loops": 1,
            "selection": asdict(Selection()),
        },
        "selected": {"spans": 1},
        "emitted": {"spans": 1, "lost": {}},
        "offset_ns": 0,
        "period_ns": None,
        "pacing": {"speed": "max"},
    }
    path = tmp_path / "m.json"
    path.write_text(json.dumps(facts))
    assert read_manifest(path).selection == Selection()
    path.write_text(json.dumps({**facts, **changes}))
    with pytest.raises(ReplayError, match=r"m\.json"):
        read_manifest(path)

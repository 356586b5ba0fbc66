"""Selections: the spans that a plain look at every span would take, no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.prepare import Settings
from spanlite.replay.selection import Selection
from tests.replay.archives import edges, replayed, spans, write_archive

Test = Callable[[dict[str, Any]], bool]


def _with_host(batches: list[Batch]) -> list[dict[str, Any]]:
    return [span | {"host": batch.resource["host.name"]} for batch in batches for span in spans([batch])]


@pytest.fixture(scope="module")
def everything(recorded: list[Batch]) -> list[dict[str, Any]]:
    """Every recorded span, and the host that it ran on."""
    return _with_host(recorded)


@pytest.fixture(scope="module")
def said(everything: list[dict[str, Any]]) -> dict[str, str]:
    """All that each span says, by its id."""
    return {span["span_id"]: _said(span) for span in everything}


def _said(span: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in span.items() if name != "host"}, sort_keys=True)


def _cases(seen: list[dict[str, Any]]) -> dict[str, tuple[Selection, Test]]:
    starts = sorted(span["start_unix_ns"] for span in seen)
    middle, traces = starts[len(starts) // 3], sorted({span["trace_id"] for span in seen} - {""})
    uuid = next(span["place"]["gpu"] for span in seen if span["place"]["gpu"])
    stage = Counter(span["stage"] for span in seen if span["stage"]).most_common(1)[0][0]
    some = (bytes.fromhex(traces[0]), bytes.fromhex(traces[-1]))
    return {
        "from": (Selection(from_ns=middle), lambda s: s["start_unix_ns"] >= middle),
        "to": (Selection(to_ns=middle), lambda s: s["start_unix_ns"] < middle),
        "trace": (Selection(traces=some), lambda s: s["trace_id"] in (traces[0], traces[-1])),
        "host": (Selection(hosts=("node-1", "x")), lambda s: s["host"] == "node-1"),
        "gpu": (Selection(gpus=(uuid,)), lambda s: s["place"]["gpu"] == uuid),
        "kernel": (
            Selection(kernels=("*gemm*", "_Z*elementwise*")),
            lambda s: any(
                fnmatchcase(s[name], text) for name in ("kernel", "name") for text in ("*gemm*", "_Z*elementwise*")
            ),
        ),
        "stage": (Selection(stages=(stage,)), lambda s: s["stage"] == stage),
        "no stage": (Selection(stages=("",)), lambda s: s["stage"] == ""),
        "duration": (Selection(least_ns=5000), lambda s: s["duration_ns"] >= 5000),
        "two": (
            Selection(least_ns=3000, stages=(stage,)),
            lambda s: s["duration_ns"] >= 3000 and s["stage"] == stage,
        ),
    }


NAMES = ["from", "to", "trace", "host", "gpu", "kernel", "stage", "no stage", "duration", "two"]


@pytest.mark.parametrize("name", NAMES)
def test_a_condition_takes_what_meets_it(
    archive: Path, everything: list[dict[str, Any]], said: dict[str, str], name: str
) -> None:
    """The spans that come, with all that they say and their ids, are those that meet the condition."""
    selection, test = _cases(everything)[name]
    expected = Counter(span["span_id"] for span in everything if test(span))
    got = spans(replayed(archive, Settings(selection=selection), window_spans=8000))
    assert 0 < expected.total() < len(everything)
    assert Counter(span["span_id"] for span in got) == expected
    assert [span for span in got if _said(span) != said[span["span_id"]]] == []


@pytest.mark.parametrize("name", ["to", "kernel", "duration"])
def test_whole_traces_come_whole(archive: Path, everything: list[dict[str, Any]], name: str) -> None:
    """Every span of a trace with a match comes, and those without a trace that match themselves."""
    selection, test = _cases(everything)[name]
    matched = {span["trace_id"] for span in everything if test(span)} - {""}
    expected = Counter(span["span_id"] for span in everything if span["trace_id"] in matched or test(span))
    got = replayed(archive, Settings(selection=replace(selection, whole_traces=True)))
    assert Counter(span["span_id"] for span in spans(got)) == expected


def test_kept_ids_come_in_runs_and_remapped_ones_in_whole_batches(small_archive: Path, small: list[Batch]) -> None:
    """With gaps between rows, `keep` cuts batches so that ids stay, `remap` does not and keeps every relation."""
    selection = Selection(least_ns=20_000)
    kept = replayed(small_archive, Settings(selection=selection))
    mapped = replayed(small_archive, Settings(selection=selection, ids="remap"))
    assert not edges(kept) - edges(small)
    assert len(mapped) < len(kept)
    assert len({name for name, *_ in edges(mapped)}) == edges(mapped).total() == edges(kept).total()
    names = [(batch.producer, batch.sequence) for batch in kept]
    assert len(set(names)) == len(names)
    assert not {name for name, _ in names} & {batch.producer for batch in small}


def test_nothing_selected_is_an_error(archive: Path) -> None:
    """A selection that no span meets says so, rather than to write an empty file."""
    with pytest.raises(ReplayError, match="no span is selected"):
        replayed(archive, Settings(selection=Selection(hosts=("nobody",))))


def test_row_groups_out_of_the_time_range_are_not_read(small: list[Batch], tmp_path: Path) -> None:
    """A time range at the end reads few row groups: the others are left out by their statistics."""
    from spanlite.cli.replay_run import ArchiveFiles
    from spanlite.replay.plan import make_plan
    from spanlite.replay.read import Reader

    write_archive(tmp_path, small, roll_spans=200)
    last = max(int(batch.columns.start_ns.max()) for batch in small)
    files, selection = ArchiveFiles(str(tmp_path)), Selection(from_ns=last)
    reader = Reader(files, make_plan(files, selection), selection)
    assert sum(len(batch.columns) for _, parts in reader.batches() for batch in parts) >= 1
    assert reader.reading.groups_read == 1 < len(files.sources)


def test_a_sample_takes_whole_traces(archive: Path, everything: list[dict[str, Any]]) -> None:
    """All spans of a trace or none, on both nodes alike; a smaller share's traces are among a larger one's."""
    traces = {span["trace_id"] for span in everything} - {""}
    taken: list[set[str]] = []
    for share in (0.3, 0.7, 1.0):
        got = spans(replayed(archive, Settings(selection=Selection(share=share, share_seed=5))))
        taken.append({span["trace_id"] for span in got} - {""})
        expected = Counter(span["span_id"] for span in everything if span["trace_id"] in taken[-1])
        assert Counter(span["span_id"] for span in got if span["trace_id"]) == expected
    assert taken[0] < taken[1] < taken[2] == traces
    other = replayed(archive, Settings(selection=Selection(share=0.3, share_seed=6)))
    assert {span["trace_id"] for span in spans(other)} - {""} != taken[0]


def test_a_sample_takes_its_share() -> None:
    """Of 20,000 traces of any ids, close to a tenth: within five standard deviations of a fair draw."""
    ids = [number.to_bytes(16, "little") for number in range(20_000)]
    outside = np.zeros(100_000, dtype=np.uint64)
    table = pa.table(
        {
            "trace_id": pa.array(ids, pa.binary(16)),
            "producer": pa.array([bytes(16)] * 20_000, pa.binary(16)),
            "batch_sequence": outside[:20_000],
        }
    )
    assert abs(int(Selection(share=0.1).mask(table).sum()) - 2000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5


def test_spans_outside_traces_are_thinned_batch_by_batch() -> None:
    """They belong to no trace: all of one batch or none, close to the share of the batches."""
    rows = 20_000
    table = pa.table(
        {
            "trace_id": pa.nulls(rows, pa.binary(16)),
            "producer": pa.array([bytes(16)] * rows, pa.binary(16)),
            "batch_sequence": np.arange(rows, dtype=np.uint64) // np.uint64(10),
        }
    )
    taken = Selection(share=0.25).mask(table).reshape(-1, 10)
    assert (taken.all(axis=1) == taken.any(axis=1)).all()
    assert abs(int(taken[:, 0].sum()) - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize("share", [0, -0.1, 1.5])
def test_a_sample_of_nothing_or_more_than_all_is_refused(share: float) -> None:
    """Rather than to replay nothing, or all without a word."""
    with pytest.raises(UsageError, match="a sample of"):
        Selection(share=share)

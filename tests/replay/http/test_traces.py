"""The table of traces: what a plain look at every row says, however rows lie in files and row groups."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.errors import ReplayError
from spanlite.pipeline.archive.schema import SCHEMA
from spanlite.replay.http.traces import ASKED, Traces, read_traces
from spanlite.replay.ports import Source
from spanlite.replay.selection import Selection
from tests.replay.http.conftest import Row, duration_of, roots_of, start_of, traces_of

NAMES = sorted({*ASKED.values(), "trace_id", "trace_start_ns", "start_ns", "duration_ns", "kind", "name"})
NAMES += ["parent_span_id"]
PART = pa.schema([SCHEMA.field(name) for name in NAMES])


class InMemory:
    """Files of an archive, each with row groups of its own length."""

    where = "memory"

    def __init__(self, files: list[list[Row]], group_rows: int) -> None:
        self._data = []
        for rows in files:
            out = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(rows, schema=PART), out, row_group_size=group_rows)
            self._data.append(out.getvalue())
        self.sources = [Source(str(number), len(data)) for number, data in enumerate(self._data)]

    def open(self, source: Source) -> Any:
        return nullcontext(pq.ParquetFile(io.BytesIO(self._data[int(source.name)])))

    def read(self, file: Any, group: int, columns: Sequence[str], *, runs: bool = False) -> Any:  # noqa: ARG002
        return file.read_row_group(group, columns=list(columns))


def info(host: int) -> str:
    """What a batch says."""
    return json.dumps({"resource": {"host.name": f"node-{host}"}, "gpus": [], "clock": [0, 0, 0]})


@st.composite
def spans(draw: st.DrawFn) -> Row:
    """One row; times so close together that many are equal."""
    host = draw(st.integers(0, 1))
    kind = draw(st.sampled_from(["range", "kernel", "kernel", "memcpy"]))
    trace = draw(st.integers(0, 3))
    return {
        "trace_id": None if trace == 0 else bytes([0x80 * (trace % 2)]) + bytes(14) + bytes([trace]),
        "trace_start_ns": draw(st.sampled_from([0, 1_795_958_749_384_069_590 + trace])),
        "start_ns": 1_795_958_749_384_069_593 + draw(st.integers(0, 9)),
        "duration_ns": draw(st.integers(0, 3)),
        "kind": kind,
        "kernel": draw(st.sampled_from(["gemm", "add", "copy"])),
        "name": draw(st.sampled_from(["request", "prefill", ""])),
        "stage": draw(st.sampled_from([None, "decode", "prefill"])),
        "gpu_uuid": None if kind == "range" else draw(st.sampled_from(["GPU-0", "GPU-1"])),
        "parent_span_id": draw(st.sampled_from([None, 7])),
        "host": f"node-{host}",
        "batch_info": info(host),
    }


def stages_of(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """Spans and time of GPU work by stage."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["kind"] != "range" and row["stage"] is not None:
            found[row["stage"]].append(row["duration_ns"])
    return {stage: (len(times), sum(times)) for stage, times in found.items()}


def check(got: Traces, wanted: dict[bytes, list[Row]]) -> None:
    """Every entry is what the rows of its trace say."""
    assert [trace.tobytes() for trace in got.ids] == list(wanted)
    assert got.start_ns.tolist() == [start_of(rows) for rows in wanted.values()]
    assert got.duration_ns.tolist() == [duration_of(rows) for rows in wanted.values()]
    assert got.spans.tolist() == [len(rows) for rows in wanted.values()]
    assert got.kernels is not None
    assert got.gpus is not None
    assert got.stages is not None
    for at, rows in enumerate(wanted.values()):
        roots = roots_of(rows)
        assert got.texts[got.name[at]] in ({root["name"] for root in roots} or {""})
        heads = roots or [row for row in rows if row["start_ns"] == min(row["start_ns"] for row in rows)]
        assert got.texts[got.host[at]] in {row["host"] for row in heads}
        assert got.resources[got.resource[at]]["host.name"] == got.texts[got.host[at]]
        assert got.kernels.count(at) == len({row["kernel"] for row in rows if row["kind"] == "kernel"})
        gpus = {row["gpu_uuid"] for row in rows if row["gpu_uuid"]}
        assert {got.texts[got.gpus.value[place]] for place in got.gpus.place(at)} == gpus
        stages = {
            got.texts[got.stages.value[place]]: (int(got.stages.spans[place]), int(got.stages.duration_ns[place]))
            for place in got.stages.place(at)
        }
        assert stages == stages_of(rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(spans(), max_size=12), min_size=1, max_size=3), st.integers(1, 5))
def test_any_rows_in_any_files_give_what_each_row_says(files: list[list[Row]], group_rows: int) -> None:
    """Starts, lengths, roots, kernels, GPUs and stages, for traces cut by row groups and files, ties and nulls."""
    archive = InMemory(files, group_rows)
    wanted = traces_of([row for rows in files for row in rows])
    if not wanted:
        with pytest.raises(ReplayError, match="no trace"):
            read_traces(archive, Selection(), ASKED.keys())
        return
    check(read_traces(archive, Selection(), ASKED.keys()), wanted)


def test_the_recorded_archive_is_read_as_it_is(archive: Path, traces: dict[bytes, list[Row]]) -> None:
    """The recorded traces, from four buckets and row groups that cut them."""
    assert len(traces) > 20
    check(read_traces(ArchiveFiles(str(archive)), Selection(), ASKED.keys()), traces)


def test_a_trace_is_taken_whole_if_any_span_matches(archive: Path, traces: dict[bytes, list[Row]]) -> None:
    """By kernel, duration, time, host and id: which traces, and all of their spans."""
    middle = sorted(row["start_ns"] for rows in traces.values() for row in rows)[100]
    least = sorted(row["duration_ns"] for rows in traces.values() for row in rows)[-30]
    kernel = next(row["kernel"] for rows in traces.values() for row in rows if row["kind"] == "kernel")
    some = list(traces)[3]
    for selection, test in (
        (Selection(kernels=(kernel,)), lambda row: kernel in (row["kernel"], row["name"])),
        (Selection(least_ns=least), lambda row: row["duration_ns"] >= least),
        (Selection(from_ns=middle), lambda row: row["start_ns"] >= middle),
        (Selection(to_ns=middle), lambda row: row["start_ns"] < middle),
        (Selection(hosts=("node-1",)), lambda row: row["host"] == "node-1"),
        (Selection(traces=(some,)), lambda row: row["trace_id"] == some),
    ):
        wanted = {trace: rows for trace, rows in traces.items() if any(map(test, rows))}
        assert wanted
        check(read_traces(ArchiveFiles(str(archive)), selection, ASKED.keys()), wanted)

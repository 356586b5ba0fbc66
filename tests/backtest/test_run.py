"""An archive through the stages again: the points of the live run to the bit, or those of a brute force."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest

from spanlite.cli.backtest_run import backtest_archive
from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError, ReplayError
from spanlite.contract.points import OTHER, Series
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.backtest.files import write_columns, write_lines
from spanlite.pipeline.backtest.run import Backtest
from spanlite.pipeline.pointset import PointSet
from spanlite.pipeline.windows import WindowPolicy
from spanlite.replay.selection import Selection
from tests.backtest.conftest import SECOND_NS, Live, in_production, told
from tests.cli.expected import BOUNDS
from tests.pipeline.conftest import Span, make_batch
from tests.replay.archives import cut, write_archive

ALL_OPEN = WindowPolicy(width_ns=SECOND_NS, lateness_ns=None)
LAUNCH = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread")
_NUMBER = re.compile(r"\s*[:#=]\s*\d+$")


def points_of(where: Path, policy: WindowPolicy = ALL_OPEN, *, top_k: int = 500, **conditions: Any) -> PointSet:
    """What a backtest makes of an archive."""
    return backtest_archive(str(where), policy, top_k=top_k, selection=Selection(**conditions))[0]


def nodes(batches: list[Batch]) -> list[Batch]:
    """The run as two processes on two nodes had it, in small batches, interleaved; every other one is overtaken."""
    made = []
    for number in range(2):
        host = {"host.name": f"node-{number}"}
        for batch in batches:
            process = replace(
                batch,
                producer=bytes([number]) * 16,
                session=batch.session + number,
                resource={**batch.resource, **host},
                emit_ns=batch.emit_ns + 3_000_001 * number,
            )
            made += [
                replace(part, emit_ns=part.emit_ns + 1_500_000 * (place % 2))
                for place, part in enumerate(cut(process, 6000))
            ]
    return sorted(made, key=lambda batch: batch.emit_ns)


def test_an_archived_run_gives_the_live_points(live: Live) -> None:
    """The backtest of an archive would not be what production had shown, to the bit: sums, buckets, exemplars."""
    assert len(live.points) > 300
    assert told(points_of(live.archive).points()) == told(live.points)


@pytest.mark.parametrize(
    ("width_ns", "lateness_ns", "top_k"),
    [(100_000_000, None, 500), (100_000_000, 50_000_000, 5), (7 * SECOND_NS, 0, 500)],
)
def test_windows_that_close_on_the_way_are_those_of_the_order_of_arrival(
    live: Live, tmp_path: Path, width_ns: int, lateness_ns: int | None, top_k: int
) -> None:
    """Late points of several producers would be told in other pieces than in production."""
    batches = nodes(live.batches)
    write_archive(tmp_path, batches, buckets=4, row_group_rows=9000)
    policy = WindowPolicy(width_ns=width_ns, lateness_ns=lateness_ns)
    found, account = backtest_archive(str(tmp_path), policy, top_k=top_k)
    assert told(found.points()) == told(in_production(batches, policy, top_k=top_k))
    folds = account.folds
    assert account.spans == folds.folded + folds.ranges == sum(len(batch.columns) for batch in batches)
    assert (folds.late > 0) == (lateness_ns is not None)


def test_few_series_fold_the_same_kernels(live: Live) -> None:
    """With K reached, which kernels are `other` would differ from production."""
    found = points_of(live.archive, top_k=3)
    assert told(found.points()) == told(in_production(live.batches, ALL_OPEN, top_k=3))
    kernels = {series.kernel for series in found.registry.series if series.kernel == OTHER}
    assert kernels == {OTHER}


def test_how_an_archive_lies_does_not_show(live: Live, tmp_path: Path) -> None:
    """Two backtests of the same spans would write other bytes: files, buckets, row groups, compaction, a second run."""
    write_archive(tmp_path / "a", live.batches, buckets=8, row_group_rows=3000)
    write_archive(tmp_path / "b", live.batches, roll_spans=10_000)
    compact(tmp_path / "b")
    written = []
    for where in (live.archive, live.archive, tmp_path / "a", tmp_path / "b"):
        found = points_of(where)
        columns, lines = io.BytesIO(), io.StringIO()
        write_columns(columns, found)
        write_lines(lines, found)
        written.append((columns.getvalue(), lines.getvalue()))
    assert len(set(written)) == 1


def test_coarser_windows_are_those_of_a_brute_force(live: Live) -> None:
    """Another width on old data would give figures that the spans do not, counted one by one from the Parquet rows."""
    width_ns = 3 * SECOND_NS
    rows = ds.dataset(live.archive, format="parquet", partitioning="hive").to_table().to_pydict()
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    moved: dict[tuple[Any, ...], int] = defaultdict(int)
    for at, kind in enumerate(rows["kind"]):
        if kind != "range":
            stage = _NUMBER.sub("", rows["stage"][at] or "")
            launch = tuple(rows[name][at] for name in LAUNCH)
            key = (rows["start_ns"][at] // width_ns, kind, rows["name"][at], rows["copy_kind"][at], stage, launch)
            groups[key].append(rows["duration_ns"][at])
            moved[key] += rows["bytes"][at]
    expected = {}
    for key, durations in groups.items():
        index, count = np.unique(np.searchsorted(BOUNDS, np.array(durations), side="left") - 960, return_counts=True)
        sums = (len(durations), sum(durations), min(durations), max(durations), moved[key])
        expected[key] = (*sums, index.tolist(), count.tolist())
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    kinds = ("kernel", "memcpy", "memset")
    for point in points_of(live.archive, replace(ALL_OPEN, width_ns=width_ns)).points():
        series = point.series
        launch = (*series.launch.grid, *series.launch.block, series.launch.registers_per_thread)
        kind = kinds[series.kind - 1]
        key = (point.window_start_ns // width_ns, kind, series.name, series.launch.copy_kind, series.stage, launch)
        sums = (point.count, point.sum_ns, point.min_ns, point.max_ns, point.bytes)
        found[key].append((*sums, point.bucket_index.tolist(), point.bucket_count.tolist()))
    assert {key: values for key, (values,) in found.items()} == expected


def test_a_selection_takes_whole_series_as_they_are(live: Live) -> None:
    """Rows left out between others would move ids of exemplars, or lose the second part of a batch as a duplicate."""
    wanted = "*elementwise*"

    def is_wanted(series: Series) -> bool:
        return "elementwise" in series.kernel or "elementwise" in series.name

    found = points_of(live.archive, kernels=(wanted,))
    assert told(found.points()) == told(point for point in live.points if is_wanted(point.series))


def test_a_batch_with_gaps_too_wide_to_fill_comes_in_parts(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second part would be dropped as a duplicate of the first, or numbers of a damaged file take all memory."""
    whole = points_of(live.archive, kernels=("*distribution*",))
    monkeypatch.setattr("spanlite.replay.assemble.MOST_FILLED", 1)
    assert told(points_of(live.archive, kernels=("*distribution*",)).points()) == told(whole.points())
    assert int(whole.rows.spans.sum()) > 10


def test_a_selection_of_time_takes_whole_windows(live: Live) -> None:
    """Windows beside the edges of --since and --until would be cut, or spans counted twice."""
    starts = sorted({point.window_start_ns for point in live.points})
    found = points_of(live.archive, from_ns=starts[2], to_ns=starts[5])
    assert told(found.points()) == told(p for p in live.points if starts[2] <= p.window_start_ns < starts[5])


def test_progress_ends_with_all_that_is_selected(live: Live) -> None:
    """A bar would stop short of its end, or run beyond it where rows are left out."""
    seen: list[tuple[int, int]] = []
    _, account = backtest_archive(
        str(live.archive),
        ALL_OPEN,
        top_k=500,
        selection=Selection(stages=("decode",)),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (account.spans, account.spans)


def test_what_nobody_can_have_measured_is_left_out_and_counted() -> None:
    """An archive with impossible times would overflow windows, or its spans be missing without a word."""
    run = Backtest(ALL_OPEN, top_k=500)
    run.take(make_batch([Span(0), Span(1, row=1)]))
    run.take(make_batch([Span(2**62 + 1, row=2)], sequence=1))
    found = run.finish()
    assert dict(run.account.rejected) == {"time": 1}
    assert run.account.spans == 3
    assert found.rows.count.tolist() == [2]


def test_nothing_selected_and_nothing_there_are_errors(live: Live, tmp_path: Path) -> None:
    """A slip in a pattern or a path would look like a run without work."""
    with pytest.raises(ReplayError, match="no span is selected"):
        points_of(live.archive, kernels=("none",))
    with pytest.raises(ArchiveError):
        points_of(tmp_path)

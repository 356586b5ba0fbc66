"""A made incident: in a copy of a real archive one kernel takes twice as long for some windows; rules find it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from spanlite.cli.backtest_run import backtest_archive
from spanlite.pipeline.archive.verify import verify
from spanlite.pipeline.backtest.diff import compare
from spanlite.pipeline.detect.alerts import Alerts
from spanlite.pipeline.detect.compare import changes, incidents
from spanlite.pipeline.detect.detectors import detector_of
from spanlite.pipeline.detect.port import detect
from spanlite.pipeline.detect.rules import parse_rule
from spanlite.pipeline.pointset import PointSet
from spanlite.pipeline.windows import WindowPolicy
from tests.backtest.conftest import Live

WIDTH_NS = 250_000_000
KERNEL = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
STAGE = "decode"
WINDOWS = 4
"""For so many windows the kernel is slow."""


class Incident(NamedTuple):
    """Points of the recorded run and of the run with the incident, and the first and the last slow window."""

    before: PointSet
    after: PointSet
    first: int
    last: int


@pytest.fixture(scope="module")
def incident(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Incident:
    """Durations doubled with pyarrow, in the files themselves: nothing of the code under test wrote them."""
    root = tmp_path_factory.mktemp("incident") / "traces"
    shutil.copytree(live.archive, root)
    before = points_of(live.archive)
    window = chosen(before).rows.window
    first = int(np.sort(window)[len(window) // 2])
    for path in root.rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(slower(table, first * WIDTH_NS, (first + WINDOWS) * WIDTH_NS), path)
    assert not list(verify(root).problems)
    return Incident(before, points_of(root), first, first + WINDOWS - 1)


def points_of(where: Path) -> PointSet:
    """What a backtest makes of an archive."""
    return backtest_archive(str(where), WindowPolicy(WIDTH_NS, None), top_k=500)[0].merged()


def slower(table: Any, begin_ns: int, end_ns: int) -> Any:
    """The table with the kernel's durations doubled where it starts in a time."""
    slow = pc.and_(pc.equal(pc.cast(table["kernel"], pa.string()), KERNEL), pc.less(table["start_ns"], end_ns))
    slow = pc.and_(slow, pc.greater_equal(table["start_ns"], begin_ns))
    duration = pc.if_else(slow, pc.multiply(table["duration_ns"], 2), table["duration_ns"])
    return table.set_column(table.schema.get_field_index("duration_ns"), table.schema.field("duration_ns"), duration)


def chosen(points: PointSet) -> PointSet:
    """Those of the kernel in its stage."""
    return points.of_series(lambda series: series.kernel == KERNEL and series.stage == STAGE)


def series_of(points: PointSet) -> list[int]:
    """The kernel's series: it was launched with several grids."""
    found = sorted(set(chosen(points).rows.series.tolist()))
    assert len(found) == 3
    return found


def found_by(text: str, points: PointSet) -> Alerts:
    """The alerts of a rule on the kernel in its stage."""
    return detect(detector_of(parse_rule(text)), chosen(points))


def test_a_threshold_finds_the_windows_of_the_incident(incident: Incident) -> None:
    """Nobody would be told, or of other windows; nor would it be known that the old data had no such alert."""
    for text in ("p50 > 7us for 3", "mean > 6.5us for 4", "p90 > 7us for 2"):
        alerts = found_by(text, incident.after)
        assert sorted(alerts.series.tolist()) == series_of(incident.after), text
        assert (set(alerts.first.tolist()), set(alerts.last.tolist())) == ({incident.first}, {incident.last}), text
        assert len(found_by(text, incident.before)) == 0, text
    assert len(found_by("p50 > 7us for 5", incident.after)) == 0


def test_a_ratio_finds_it_until_it_has_become_the_baseline(incident: Incident) -> None:
    """A median over other windows would go off later, or never end."""
    for baseline in (3, 5):
        alerts = found_by(f"p50 > 1.5x of {baseline} for 2", incident.after)
        slow_before = min(baseline // 2, WINDOWS - 1)  # with more than half of them slow, slow is normal
        assert sorted(alerts.series.tolist()) == series_of(incident.after)
        assert set(alerts.first.tolist()) == {incident.first}
        assert set(alerts.last.tolist()) == {incident.first + slow_before}
        assert set(alerts.told.tolist()) == {incident.first + 1}
        assert alerts.peak / alerts.threshold * 1.5 == pytest.approx(2, rel=0.05)
        assert len(found_by(f"p50 > 1.5x of {baseline} for 2", incident.before)) == 0


def test_the_difference_of_the_points_is_the_incident(incident: Incident) -> None:
    """A diff of two builds would show other points than those that have changed, or leave some out."""
    found = compare(incident.before, incident.after)
    assert len(found.only_a) == len(found.only_b) == 0
    rows = found.both_a[found.changed]
    assert {found.a.registry.series[number].kernel for number in found.a.rows.series[rows].tolist()} == {KERNEL}
    windows = set(found.a.rows.window[rows].tolist())
    assert (min(windows), max(windows)) == (incident.first, incident.last)
    assert not any(found.off[field].any() for field in ("count", "spans", "bytes"))
    assert all(found.off[field].any() for field in ("sum_ns", "min_ns", "max_ns", "warp_ns", "buckets"))


def test_wider_windows_are_told_later(incident: Incident) -> None:
    """What another width costs in time to be told, or hides, would not be seen."""
    wide = incident.after.coarser(2 * WIDTH_NS).merged()
    texts = "p50 > 7us for 2", "p90 > 7us for 2"
    here = incidents([found_by(texts[0], incident.after)], WIDTH_NS)
    there = incidents([found_by(texts[1], wide)], 2 * WIDTH_NS)
    found = changes(here, there)
    assert (len(found.only_a), len(found.only_b), found.both_a.series.tolist()) == (0, 0, series_of(incident.after))
    assert set(here.told_ns.tolist()) == {(incident.first + 2) * WIDTH_NS}
    assert set(there.told_ns.tolist()) == {(incident.first // 2 + 2) * 2 * WIDTH_NS}

"""Timelines: every kernel that is selected, in the order of starts, with what it was launched as."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.contract.columns import KERNEL, Kind
from spanlite.contract.errors import ReplayError
from spanlite.replay.cuda.timeline import Timeline
from spanlite.replay.selection import Selection
from tests.replay.archives import cut, write_archive

LAUNCH = (
    *("registers_per_thread", "static_shared_memory", "dynamic_shared_memory"),
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "active_warps"),
)
Row = tuple[Any, ...]


def of_batches(batches: list[Batch], wanted: str = "") -> list[Row]:
    """Start, duration, stream and launch of each kernel whose name has the text, row by row."""
    rows: list[Row] = []
    for batch in batches:
        columns = batch.columns
        for at in np.flatnonzero(columns.kind == KERNEL).tolist():
            config, place = columns.configs[columns.config[at]], columns.places[columns.place[at]]
            name = columns.strings[config["name"]]
            if wanted not in name:
                continue
            queue = (batch.session, int(place["context_id"]), int(place["stream_id"]), int(place["priority"]))
            launch = tuple(int(config[field]) for field in LAUNCH)
            rows.append((int(columns.start_ns[at]), int(columns.duration_ns[at]), *queue, name, *launch))
    return rows


def of_timeline(timeline: Timeline) -> list[Row]:
    """The same of a timeline, in its order."""
    found: list[Row] = []
    for rows in timeline.rows():
        for start, duration, queue, kernel in zip(
            *(column.tolist() for column in (rows.start_ns, rows.duration_ns, rows.queue, rows.kernel)), strict=True
        ):
            one = timeline.kernels[kernel]
            launch = (timeline.names[one["name"]], *(int(one[field]) for field in LAUNCH))
            found.append((start, duration, *(int(each) for each in timeline.queues[queue]), *launch))
    return found


def timeline_of(root: Path, selection: Selection | None = None) -> Timeline:
    """That of an archive."""
    return Timeline(ArchiveFiles(str(root)), selection or Selection())


def test_kernels_come_by_their_starts_each_once(archive: Path, recorded: list[Batch]) -> None:
    """A kernel that is missing, twice, early, or launched as something else would be no re-enactment."""
    timeline = timeline_of(archive)
    found = of_timeline(timeline)
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    assert Counter(found) == Counter(of_batches(recorded))
    assert len(timeline) == len(found) == int(timeline.counts.sum())


def test_the_account_of_a_timeline(archive: Path, recorded: list[Batch]) -> None:
    """What --dry-run says would be of other kernels."""
    timeline, rows = timeline_of(archive), of_batches(recorded)
    assert timeline.first_ns == min(row[0] for row in rows)
    assert timeline.last_ns == max(row[0] + row[1] for row in rows)
    assert timeline.busy_ns == sum(row[1] for row in rows)
    others = Counter(
        Kind(int(kind)).name.lower()
        for batch in recorded
        for kind in batch.columns.kind
        if kind in (Kind.MEMCPY, Kind.MEMSET)
    )
    assert +timeline.left_out == others
    assert others["memcpy"] > 0
    launched = Counter(row[6:] for row in rows)
    told = {
        (timeline.names[one["name"]], *(int(one[field]) for field in LAUNCH)): int(count)
        for one, count in zip(timeline.kernels, timeline.counts, strict=True)
    }
    assert told == launched


def test_files_that_overlap_are_merged(recorded: list[Batch], tmp_path: Path) -> None:
    """Two archive jobs write files of the same minutes: a timeline would go back in time from one to the other."""
    pieces = [piece for batch in recorded for piece in cut(batch, 200)]
    for half in range(3):
        write_archive(tmp_path / "both", pieces[half::3], row_group_rows=700)
    timeline = timeline_of(tmp_path / "both")
    starts = np.concatenate([rows.start_ns for rows in timeline.rows()])
    assert (np.diff(starts) >= 0).all()
    assert Counter(of_timeline(timeline)) == Counter(of_batches(recorded))


def test_a_selection_takes_kernels(archive: Path, recorded: list[Batch]) -> None:
    """A pattern would run kernels that nobody asked for."""
    found = of_timeline(timeline_of(archive, Selection(kernels=("*elementwise*",))))
    assert 0 < len(found) < len(of_batches(recorded))
    assert Counter(found) == Counter(of_batches(recorded, "elementwise"))


def test_whole_traces_are_taken(archive: Path) -> None:
    """The rest of a trace that has a match would be missing."""
    some = Selection(kernels=("*layer_norm*",))
    few, whole = (len(timeline_of(archive, replace(some, whole_traces=all_))) for all_ in (False, True))
    assert 0 < few < whole < len(timeline_of(archive))


def test_a_timeline_is_of_one_gpu(recorded: list[Batch], tmp_path: Path) -> None:
    """Two GPUs' kernels on one GPU would be twice the load; the error names both, and how to choose."""
    first, second = (
        recorded[0],
        replace(recorded[-1], gpus=tuple(replace(gpu, uuid="GPU-other") for gpu in recorded[-1].gpus)),
    )
    root = write_archive(tmp_path / "two", [first, second])
    with pytest.raises(ReplayError, match=r"kernels of 2 GPUs.*--gpu UUID.*GPU-other"):
        timeline_of(root)
    assert timeline_of(root, Selection(gpus=("GPU-other",))).gpu == "GPU-other"


def test_nothing_selected_is_an_error(archive: Path) -> None:
    """A run of no kernels would look like success."""
    with pytest.raises(ReplayError, match="no kernel is selected"):
        timeline_of(archive, Selection(kernels=("no such kernel",)))

"""A spool seen from outside, with real ones."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.doctor import spool as checks
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.probe import Files, Probe, real_probe
from spanlite.agent.spool.cursor import CursorFile, Position, Saved
from spanlite.agent.spool.files import Files as FileCalls
from spanlite.agent.spool.spool import Spool
from tests.agent.doctor.worlds import Recorded, found, texts
from tests.agent.spool.items import SMALL, drain, fill, segments

LIMIT = 1 << 20


def probe_with(**recorded: Any) -> Probe:
    """This machine's files, a disk and rights as told."""
    return dataclasses.replace(real_probe({}), files=Files(), outside=Recorded(**recorded))


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir() if path.is_file()}


def test_a_running_agent_s_spool_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    """Its lock's holder is named, nothing in the folder changes, and the agent works on."""
    fill(tmp_path, 40)
    running = Spool(tmp_path, AgentCounts(), SMALL)
    before = snapshot(tmp_path)
    asked = Asked(spool=tmp_path, spool_limit=LIMIT)
    levels = found(checks.check, probe_with(), asked)
    assert levels["spool.space"] == Level.OK
    assert levels["spool.waiting"] == Level.NOTE
    said = texts(checks.check, probe_with(), asked)
    assert f"process {os.getpid()} has the spool" in said or "spool.lock_unknown" in said
    assert "files from batch 1 on, acknowledged up to 0" in said
    assert snapshot(tmp_path) == before
    assert len(drain(running)) == 40
    running.close()


def test_a_spool_that_is_sent_has_nothing_that_waits(tmp_path: Path) -> None:
    """The cursor stands behind the last record."""
    fill(tmp_path, 40)
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    drain(spool)
    spool.close()
    assert found(checks.check, probe_with(), Asked(spool=tmp_path, spool_limit=LIMIT)) in (
        {"spool.space": Level.OK},
        {"spool.space": Level.OK, "spool.lock_unknown": Level.NOTE},
    )


def test_only_what_lies_behind_the_cursor_waits(tmp_path: Path) -> None:
    """A file whose last record is acknowledged, and that is still there, does not count; the one behind it does."""
    fill(tmp_path, 40)
    second = int(segments(tmp_path)[1].stem)
    for sequence, first in ((second, second), (second - 1, 1)):
        (tmp_path / "cursor").unlink()
        CursorFile(FileCalls(), tmp_path).write(Saved(Position(sequence, 0)), sync=False)
        told = texts(checks.check, probe_with(), Asked(spool=tmp_path))
        assert f"files from batch {first} on, acknowledged up to {sequence - 1}:" in told


def _full_disk(folder: Path) -> tuple[Probe, Asked]:
    return probe_with(free=100), Asked(spool=folder, spool_limit=LIMIT)


def _half_full(folder: Path) -> tuple[Probe, Asked]:
    fill(folder, 200)
    return probe_with(), Asked(spool=folder, spool_limit=100_000)


def _of_somebody_else(folder: Path) -> tuple[Probe, Asked]:
    return probe_with(closed=[folder]), Asked(spool=folder)


def _not_to_be_made(folder: Path) -> tuple[Probe, Asked]:
    return probe_with(closed=[folder]), Asked(spool=folder / "a/b")


def _to_be_made(folder: Path) -> tuple[Probe, Asked]:
    return probe_with(), Asked(spool=folder / "a/b")


def _a_file(folder: Path) -> tuple[Probe, Asked]:
    (folder / "file").touch()
    return probe_with(), Asked(spool=folder / "file")


def _bad_cursor(folder: Path) -> tuple[Probe, Asked]:
    (folder / "cursor").write_bytes(b"SPLCURSR and no more")
    return probe_with(), Asked(spool=folder)


def _put_aside(folder: Path) -> tuple[Probe, Asked]:
    (folder / "quarantine").mkdir()
    (folder / "quarantine/00000000000000000001.seg.corrupt").touch()
    return probe_with(), Asked(spool=folder)


@pytest.mark.parametrize(
    ("made", "finding", "level"),
    [
        (_full_disk, "spool.space", Level.WARNING),
        (_half_full, "spool.space", Level.WARNING),
        (_of_somebody_else, "spool.unwritable", Level.FAILURE),
        (_not_to_be_made, "spool.unwritable", Level.FAILURE),
        (_to_be_made, "spool.missing", Level.NOTE),
        (_a_file, "spool.no_folder", Level.FAILURE),
        (_bad_cursor, "spool.cursor", Level.WARNING),
        (_put_aside, "spool.quarantine", Level.WARNING),
    ],
)
def test_what_keeps_a_spool_from_its_work_is_told(
    tmp_path: Path, made: Callable[[Path], tuple[Probe, Asked]], finding: str, level: Level
) -> None:
    """Room, rights, damage; the folder stays as it was."""
    probe, asked = made(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert found(checks.check, probe, asked)[finding] == level
    assert sorted(tmp_path.rglob("*")) == before


def test_without_a_folder_nothing_is_said() -> None:
    """Not every node has an agent with a spool that the user knows."""
    assert found(checks.check, probe_with()) == {}

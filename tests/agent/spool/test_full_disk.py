"""Disks that take nothing or only part of it: full, read-only, missing, and writes that fall short."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.spool.files import Files
from spanlite.agent.spool.settings import Fsync, Policy, SpoolSettings
from spanlite.agent.spool.spool import Spool
from spanlite.contract import catalogue
from tests.agent.spool.items import SMALL, drain, item, lost, number_of, segments

_SIZE = 40_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "spanlite-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"mounting a small file system is not permitted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _remount(folder: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)


def _ticks(spool: Spool) -> None:
    """As long as a spool needs to try its disk again."""
    for _ in range(5):
        spool.tick()


def _adds_up(spool: Spool, counts: AgentCounts, taken: int, delivered: int = 0) -> bool:
    recovered = counts.value(catalogue.AGENT_SPANS_RECOVERED)
    return taken + recovered == delivered + counts.value(catalogue.AGENT_SPANS_DROPPED) + spool.spans


def test_a_full_disk_is_borne_in_memory_until_it_has_space(small_disk: Path) -> None:
    """Nothing is lost and no torn record stays; what was kept in memory goes to disk when another file is deleted."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    counts = AgentCounts()
    spool = Spool(small_disk / "spool", counts, SpoolSettings(64 << 20))
    items = [item(number, size=_SIZE) for number in range(80)]
    assert [spool.append(one) for one in items] == [None] * 80
    assert spool.state().degraded
    assert 0 < spool.state().memory_bytes < 80 * _SIZE
    assert counts.by_label(catalogue.AGENT_SPOOL_FAULTS) == {"enospc": 1}
    _ticks(spool)
    assert spool.state().degraded
    ballast.unlink()
    _ticks(spool)
    assert not spool.state().degraded
    assert spool.state().memory_bytes == 0
    assert _adds_up(spool, counts, sum(one.spans for one in items))
    spool.close()
    again = AgentCounts()
    spool = Spool(small_disk / "spool", again, SpoolSettings(64 << 20))
    assert drain(spool) == items
    assert (lost(again), again.by_label(catalogue.AGENT_SPOOL_FAULTS)) == (({}, {}), {})
    spool.close()


@pytest.mark.parametrize("policy", Policy)
def test_memory_is_bounded_when_the_disk_stays_full(small_disk: Path, policy: Policy) -> None:
    """Beyond the bound the oldest or the newest of what is in memory only goes, counted; the disk's part stays."""
    counts = AgentCounts()
    settings = SpoolSettings(64 << 20, policy, memory_bytes=10 * _SIZE)
    spool = Spool(small_disk / "spool", counts, settings)
    items = [item(number, size=_SIZE) for number in range(150)]
    told = [spool.append(one) for one in items]
    assert spool.state().memory_bytes <= 10 * _SIZE
    refused = [one for one, problem in zip(items, told, strict=True) if problem]
    kept = sum(one.spans for one in items) - sum(one.spans for one in refused)
    assert _adds_up(spool, counts, kept)
    came = [number_of(one) for one in drain(spool)]
    on_disk = next(at for at, number in enumerate([*came, -1]) if at != number)
    if policy is Policy.OLDEST:
        assert not refused
        assert came == [*range(on_disk), *range(150 - 9, 150)]
        assert lost(counts)[1] == {"spool_memory": 150 - 9 - on_disk}
    else:
        assert came == list(range(150 - len(refused)))
        assert set(told) == {None, "spool_memory"}
    spool.close()


def test_what_is_only_in_memory_at_the_end_is_counted(small_disk: Path) -> None:
    """A spool that is closed with its disk full says what it could not keep."""
    counts = AgentCounts()
    spool = Spool(small_disk / "spool", counts, SpoolSettings(64 << 20))
    items = [item(number, size=_SIZE) for number in range(120)]
    for one in items:
        spool.append(one)
    spool.close()
    spans, records = lost(counts)
    again = Spool(small_disk / "spool", AgentCounts(), SpoolSettings(64 << 20))
    assert drain(again) == items[: 120 - records["spool_memory"]]
    assert spans == {"spool_memory": sum(one.spans for one in items[120 - records["spool_memory"] :])}
    again.close()


def test_a_read_only_disk_is_read_and_taken_over_when_it_can_be_written(small_disk: Path) -> None:
    """What lies there is sent all the same; new records wait in memory until the file system is writable again."""
    folder = small_disk / "spool"
    spool = Spool(folder, AgentCounts(), SMALL)
    spool.append(item(0))
    spool.close()
    _remount(small_disk, "ro")
    counts = AgentCounts()
    spool = Spool(folder, counts, SMALL)
    assert spool.append(item(1)) is None
    assert spool.state().degraded
    first = spool.fetch(0)
    assert first is not None
    assert first.item == item(0)
    _remount(small_disk, "rw")
    _ticks(spool)
    assert not spool.state().degraded
    spool.close()
    spool = Spool(folder, AgentCounts(), SMALL)
    assert drain(spool) == [item(0), item(1)]
    spool.close()


def test_a_folder_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    """The agent starts in memory where a file is in the way, and moves to disk when it is gone."""
    obstacle = tmp_path / "there"
    obstacle.write_text("")
    counts = AgentCounts()
    spool = Spool(obstacle / "spool", counts, SMALL)
    assert spool.append(item(1)) is None
    assert spool.state().degraded
    assert counts.by_label(catalogue.AGENT_SPOOL_FAULTS) == {"enotdir": 1}
    obstacle.unlink()
    _ticks(spool)
    assert not spool.state().degraded
    assert spool.append(item(2)) is None
    spool.close()
    spool = Spool(obstacle / "spool", AgentCounts(), SMALL)
    assert drain(spool) == [item(1), item(2)]
    spool.close()


class _Short(Files):
    """Takes at most a few bytes at a time, and fails after a number of writes."""

    def __init__(self, most: int, fail_after: int = 1 << 60) -> None:
        self.most = most
        self.left = fail_after

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data[: self.most])


def test_writes_that_fall_short_are_gone_on_with(tmp_path: Path) -> None:
    """A file system that takes 7 bytes at a time holds the same records."""
    spool = Spool(tmp_path, AgentCounts(), SMALL, files=_Short(7))
    items = [item(number) for number in range(30)]
    assert [spool.append(one) for one in items] == [None] * 30
    spool.close()
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    assert drain(spool) == items
    spool.close()


@pytest.mark.parametrize("writes", range(0, 60, 7))
def test_a_write_that_fails_in_the_middle_leaves_whole_records(tmp_path: Path, writes: int) -> None:
    """Wherever the disk gives up, the files end with a whole record, and what failed waits in memory."""
    files = _Short(100, writes)
    counts = AgentCounts()
    spool = Spool(tmp_path, counts, replace(SMALL, fsync=Fsync.NEVER), files=files)
    items = [item(number) for number in range(20)]
    assert [spool.append(one) for one in items] == [None] * 20
    record = 52 + 2 + len(items[0].value)
    assert all((path.stat().st_size - 32) % record == 0 for path in segments(tmp_path))
    assert drain(spool) == items
    assert lost(counts) == ({}, {})
    spool.close()


def test_always_keeps_what_cannot_be_made_durable_in_memory(tmp_path: Path) -> None:
    """With fsync=always a failed fsync is a failed write: the record is not left to chance on disk."""

    class _NoSync(Files):
        def fsync(self, fd: int) -> None:  # noqa: ARG002  # what Files asks for
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    spool = Spool(tmp_path, AgentCounts(), replace(SMALL, fsync=Fsync.ALWAYS), files=_NoSync())
    assert spool.append(item(1)) is None
    assert spool.state().degraded
    assert spool.state().memory_bytes > 0
    assert drain(spool) == [item(1)]
    spool.close()


@pytest.mark.parametrize("fsync", Fsync)
def test_each_policy_syncs_when_it_says(tmp_path: Path, fsync: Fsync) -> None:
    """`always` before append returns, `interval` at the next tick, `never` not at all."""

    class _Counting(Files):
        synced = 0

        def fsync(self, fd: int) -> None:  # noqa: ARG002  # what Files asks for
            self.synced += 1

    files = _Counting()
    spool = Spool(tmp_path, AgentCounts(), replace(SMALL, fsync=fsync), files=files)
    before = files.synced
    spool.append(item(1))
    assert (files.synced > before) == (fsync is Fsync.ALWAYS)
    spool.tick()
    assert (files.synced > before) == (fsync is not Fsync.NEVER)
    spool.close()


@pytest.mark.parametrize("policy", Policy)
def test_a_full_spool_drops_by_its_policy_and_says_so_once(tmp_path: Path, policy: Policy) -> None:
    """`oldest` drops whole files, `newest` what comes; an agent killed right afterwards is not told of it again."""
    counts = AgentCounts()
    settings = SpoolSettings(64 << 10, policy, segment_bytes=16 << 10)
    spool = Spool(tmp_path / "spool", counts, settings)
    items = [item(number, size=2_000) for number in range(60)]
    told = [spool.append(one) for one in items]
    assert sum(path.stat().st_size for path in segments(tmp_path / "spool")) <= 64 << 10
    shutil.copytree(tmp_path / "spool", tmp_path / "killed")
    came = drain(spool)
    spool.close()
    if policy is Policy.OLDEST:
        assert set(told) == {None}
        assert came == items[-len(came) :]
        dropped = items[: -len(came)]
        assert lost(counts) == ({"spool_full": sum(one.spans for one in dropped)}, {"spool_full": len(dropped)})
        assert len(dropped) % ((16_384 - 32) // (52 + 2 + 2_000)) == 0, "whole files"
    else:
        assert came == [one for one, problem in zip(items, told, strict=True) if problem is None] == items[: len(came)]
        assert set(told) == {None, "spool_full"}
        assert lost(counts) == ({}, {}), "the caller counts what is refused"
    again = AgentCounts()
    spool = Spool(tmp_path / "killed", again, settings)
    assert (drain(spool), lost(again)) == (came, ({}, {}))
    spool.close()

"""Items that another process makes: the same ones, errors told here, and no process left when either ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError, ReplayError
from spanlite.replay.apart import ItemsApart, by_turn
from spanlite.replay.paced import Pacing
from spanlite.replay.pacing.late import LatePolicy
from spanlite.replay.pacing.settings import Pace
from spanlite.replay.pacing.waiting import SleepWaiter
from spanlite.replay.ports import Position
from spanlite.replay.running import run_replay
from spanlite.replay.sinks import FileSink
from spanlite.runtime.clock import ManualClock
from tests.replay.archives import write_archive
from tests.replay.test_running import plan, to_file
from tests.stack.process import wait_until


def test_the_items_are_those_of_this_process(small_archive: Path) -> None:
    """All that is known of each, names and ends included, from the beginning and from the middle of a second turn."""
    for replay in (plan(small_archive), plan(small_archive, ids="remap", loops=2)):
        expected = list(replay.ready())
        with ItemsApart(replay, Position(), {}) as items:
            assert list(items) == expected
    middle = expected[len(expected) * 2 // 3]
    names = {ready.item.producer.hex(): ready.item.sequence + 1 for ready in expected[: expected.index(middle)]}
    with ItemsApart(replay, middle.item.position, names) as items:
        turn = by_turn(items)
        assert [*turn(1), *turn(2)] == expected[expected.index(middle) :]


def test_a_paced_run_apart_writes_the_same_file(small_archive: Path, tmp_path: Path) -> None:
    """In turns, by a pace: the bytes and the account of a run that reads for itself."""
    straight = to_file(plan(small_archive, ids="remap", loops=3), tmp_path / "straight")
    clock = ManualClock()
    pacing = Pacing(Pace(loops=3), SleepWaiter(clock), LatePolicy(), apart=True)
    replay = plan(small_archive, ids="remap", loops=3)
    outcome = run_replay(replay, FileSink(tmp_path / "apart", keep=False), clock, pacing=pacing)
    assert outcome.account == straight.account
    assert (tmp_path / "apart").read_bytes() == (tmp_path / "straight").read_bytes()


def test_a_damaged_file_is_told_here(small: list[Batch], tmp_path: Path) -> None:
    """The error is the one that reading in this process raises, after the items before it."""
    write_archive(tmp_path, small, roll_spans=200)
    replay = plan(tmp_path)
    path = sorted(tmp_path.rglob("*.parquet"))[-1]
    path.write_bytes(path.read_bytes()[:-4] + b"nope")
    with pytest.raises(ArchiveError) as expected:
        list(plan(tmp_path).ready())
    with ItemsApart(replay, Position(), {}) as items, pytest.raises(ArchiveError) as error:
        list(items)
    assert path.name in str(error.value)
    assert path.name in str(expected.value)


def test_one_that_is_killed_is_told_of(small_archive: Path) -> None:
    """Its exit code, rather than an archive that seems to end there."""
    apart = ItemsApart(plan(small_archive, ids="remap", loops=0), Position(), {})
    with apart as items:
        next(items)
        (child,) = _children()
        os.kill(child, signal.SIGKILL)
        with pytest.raises(ReplayError, match="-9"):
            list(items)


def test_it_comes_after_the_one_that_paces(small_archive: Path) -> None:
    """Where a core is short, it is the reading that waits: it goes on ahead, and due times do not wait."""
    with ItemsApart(plan(small_archive, ids="remap", loops=0), Position(), {}) as items:
        next(items)
        (child,) = _children()
        assert os.getpriority(os.PRIO_PROCESS, child) == min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19)


def test_leaving_early_ends_it(small_archive: Path) -> None:
    """A replay without end, of which ten items are taken."""
    with ItemsApart(plan(small_archive, ids="remap", loops=0), Position(), {}) as items:
        assert len(list(islice(items, 10))) == 10
        assert len(_children()) == 1
    assert _children() == []


def test_it_ends_when_its_owner_is_killed(small_archive: Path) -> None:
    """Nobody closes the pipe in order: the next item finds it broken."""
    script = f"""
import os, sys, time
from spanlite.replay.apart import ItemsApart
from spanlite.replay.ports import Position
from tests.replay.test_running import plan
if __name__ == "__main__":
    with ItemsApart(plan({str(small_archive)!r}, ids="remap", loops=0), Position(), {{}}) as items:
        next(items)
        print("going", flush=True)
        time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "going\n"
        (child,) = _children(owner.pid)
        owner.kill()
    assert wait_until(lambda: not _runs(child), 20)


def _children(of: int | None = None) -> list[int]:
    """Processes that read for a process, by default for this one; multiprocessing's own helper is none."""
    of = of or os.getpid()
    pids = [pid for task in Path(f"/proc/{of}/task").iterdir() for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False

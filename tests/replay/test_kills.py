"""A replay that is killed at any moment and gone on with: real processes, nothing lost, nothing there twice."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import spanlite
from tests.stack.process import wait_until


def kill_in_the_middle(words: list[str], after_s: float, going: Path | None = None) -> int:
    """Starts the command and kills it after a time, counted from the writing of the file `going`; its exit code."""
    before = _written_ns(going)
    with subprocess.Popen(
        [sys.executable, "-m", "spanlite", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        if going is not None:
            wait_until(lambda: process.poll() is not None or _written_ns(going) != before, 60, every_s=0.002)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said
    return process.returncode


def _written_ns(path: Path | None) -> int:
    return path.stat().st_mtime_ns if path is not None and path.exists() else 0


def killed_and_gone_on_with(archive: Path, folder: Path, kills: int, seed: int) -> int:
    """Kills a run to a file at random moments, then lets it end; how many of the kills met it at work."""
    straight, path, kept = folder / "straight", folder / "pieces", folder / "kept.json"
    words = ["replay", "run", str(archive), "--to", "file", "--ids", "remap", "--loop", "2", "--seed", str(seed)]
    done = spanlite(*words, "-o", straight)
    assert done.returncode == 0, done.stderr
    batches = json.loads((folder / "straight.json").read_text())["emitted"]["batches"]
    resume = [*words, "-o", str(path), "--checkpoint", str(kept), "--checkpoint-every", "1ms", "--resume"]
    slow = [*resume, "--qps", str(max(batches // 4, 1))]  # some four seconds in all
    chance = random.Random(seed)  # noqa: S311  # moments, no secrets
    met = 0
    for number in range(kills):
        going = kept if number % 4 else None  # some before anything is emitted
        code = kill_in_the_middle(slow, chance.uniform(0.0, 2.5 / kills if going else 1.0), going)
        met += code != 0 and kept.exists() and not json.loads(kept.read_text())["complete"]
        assert code == 0 or not path.exists()
    done = spanlite(*resume)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == straight.read_bytes()
    ours, theirs = (json.loads((folder / name).read_text())["emitted"] for name in ("pieces.json", "straight.json"))
    assert ours == theirs
    assert sorted(one.name for one in folder.iterdir()) == [
        "kept.json",
        "pieces",
        "pieces.json",
        "straight",
        "straight.json",
    ]
    return met


def test_killed_five_times(small_archive: Path, tmp_path: Path) -> None:
    """After five kills at random moments the file and the account are those of a run that was left alone."""
    assert killed_and_gone_on_with(small_archive, tmp_path, kills=5, seed=1) >= 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_killed_fifty_times(small_archive: Path, tmp_path: Path, seed: int) -> None:
    """The same with more and other moments."""
    assert killed_and_gone_on_with(small_archive, tmp_path, kills=50, seed=seed) >= 10

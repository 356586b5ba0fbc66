"""`spanlite ingest` where its results cannot go, or where it is killed: all of them are there, or none."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spanlite.pipeline.archive.read import read_batches
from tests.cli.process import file_of, folder_named, refused, spanlite, tree
from tests.cli.recorded import DATA, SLICE

SMALL = "streams-cupti130500"


OUTPUTS = {
    "archive is a file": ("--archive {f}/file", "file: cannot hold an archive"),
    "archive below a file": ("--archive {f}/file/a/b", "cannot hold an archive"),
    "archive in proc": ("--archive /proc/archive", "/proc/archive: cannot hold an archive"),
    "archive with an endless name": ("--archive {f}/a/" + "x" * 300, "File name too long"),
    "points below a file": ("--points {f}/file/p", "cannot write"),
    "points in no folder": ("--points {f}/none/p", "cannot write"),
    "points are a folder": ("--points {f}/folder", "Is a directory"),
    "points in proc": ("--points /proc/points", "cannot write /proc/points"),
    "points on a full device": ("--points /dev/full", "No space left on device"),
    "batches below a file": ("--archive {f}/a --points {f}/p --batches {f}/file/b", "cannot write"),
    "points and batches in one file": ("--points {f}/p --batches {f}/p", "two files"),
    "bad window": ("--points {f}/p --window 10parsecs", "'10parsecs' is no duration"),
    "no window": ("--points {f}/p --window 0s", "'0s' is no duration"),
    "bad lateness": ("--points {f}/p --lateness -1s", "expected one argument"),
    "buckets no power of two": ("--archive {f}/a --buckets 3", "--buckets must be a power"),
    "negative top-k": ("--points {f}/p --top-k=-1", "--top-k must be 0 or more"),
    "top-k no number": ("--points {f}/p --top-k many", "invalid int value: 'many'"),
    "two on standard output": ("--points - --json", "stdout"),
    "nothing to do": ("-q", "nothing to do: name one or more of --archive DIR"),
    "unknown flag": ("--points - --pionts x", "--pionts"),
}


@pytest.mark.parametrize("case", list(OUTPUTS))
def test_what_cannot_be_written_or_meant_is_refused(case: str, tmp_path: Path) -> None:
    """Proves that a good recording with a bad output or flag fails in one line and leaves nothing either."""
    words, said = OUTPUTS[case]
    file_of(tmp_path, "file", b"x")
    folder_named(tmp_path, "folder")
    before = tree(tmp_path)
    refused(spanlite("ingest", DATA / "h200" / f"{SMALL}.bin.xz", *words.format(f=tmp_path).split(), "-q"), said)
    assert tree(tmp_path) == before


def test_an_archive_that_cannot_take_the_files_leaves_no_points(tmp_path: Path) -> None:
    """Proves that a failure at the very end, a file where a day's folder must go, is told and undone."""
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "date=2026-11-29").write_text("not a folder")
    before = tree(tmp_path)
    refused(spanlite("ingest", SLICE, "--archive", archive, "-q"), "archive: cannot hold an archive")
    assert tree(tmp_path) == before


def test_devices_and_pipes_are_written_to_not_replaced(tmp_path: Path) -> None:
    """Proves that --points of a device leaves it a device."""
    fifo = tmp_path / "fifo"
    subprocess.run(["mkfifo", fifo], check=True)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
        done = spanlite("ingest", DATA / "h200" / f"{SMALL}.bin.xz", "--points", fifo, "-q")
        lines = reader.communicate(timeout=30)[0].splitlines()
    assert (done.returncode, len(lines)) == (0, 4)
    assert fifo.is_fifo()
    assert list(tmp_path.iterdir()) == [fifo]


def test_a_killed_ingest_leaves_a_whole_archive_and_the_next_one_sweeps(tmp_path: Path) -> None:
    """Proves that kill -9 shows no reader anything of the unfinished run, and that its staging is swept later."""
    archive, fifo = tmp_path / "archive", tmp_path / "points"
    assert spanlite("ingest", SLICE, "--archive", archive, "-q").returncode == 0
    before = {path for path in archive.rglob("*") if path.is_file()}
    subprocess.run(["mkfifo", fifo], check=True)
    words = ("ingest", DATA / "h200" / f"{SMALL}.bin.xz", "--archive", archive, "--points", fifo, "-q")
    command = [sys.executable, "-m", "spanlite", *map(str, words)]
    with subprocess.Popen(command) as process:  # it waits for a reader of the fifo, its staging is made
        for _ in range(300):
            if list(archive.glob(".staging-*")):
                break
            threading.Event().wait(0.05)
        (left,) = archive.glob(".staging-*")
        staged = left / "date=2026-11-29" / "hour=13" / "bucket=00"
        staged.mkdir(parents=True)
        shutil.copy(next(iter(before)), staged / "unfinished.parquet")
        assert spanlite("ingest", SLICE, "--archive", archive, "-q").returncode == 0
        assert left.exists(), "a run that lives is not swept"
        process.send_signal(signal.SIGKILL)
    assert left.exists()
    assert {path for path in archive.rglob("*") if path.is_file()} - before == {staged / "unfinished.parquet"}
    assert sum(len(batch.columns) for batch in read_batches(archive)) == 20_000
    assert spanlite("archive", "verify", archive).returncode == 0
    assert spanlite("ingest", SLICE, "--archive", archive, "-q").returncode == 0
    assert not left.exists()
    assert {path for path in archive.rglob("*") if path.is_file()} == before

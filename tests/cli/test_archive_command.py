"""`spanlite archive`."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spanlite.cli.commands import archive
from spanlite.contract.batch import Batch
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, make_columns
from spanlite.contract.errors import ArchiveError, UsageError
from spanlite.pipeline.archive.write import write_batches
from spanlite.runtime.clock import ManualClock

HOUR_NS = 3_600_000_000_000


def command(*argv: str, unix_ns: int = 0) -> int:
    """Runs the command as the command line does."""
    parser = argparse.ArgumentParser()
    archive.add_arguments(parser)
    return archive.run(parser.parse_args(argv), ManualClock(unix_ns))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of three spans each, at 1970-01-01 00h."""
    tables = (("", "k"), np.zeros(1, CONFIG), np.zeros(1, PLACE), np.zeros(1, NODE), np.zeros(0, TRACE))
    columns = make_columns(np.arange(3) * 1000, np.full(3, 100), tables=tables)
    for number in range(2):
        write_batches(tmp_path, [Batch(bytes(16), number, 7, 3 * number, 0, columns, {})])
    return tmp_path


def test_ls_lists_files_and_the_total(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line per file with its spans, and the sum."""
    assert command("ls", str(folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "date=1970-01-01/hour=00/bucket=00/" in lines[1]
    assert lines[-1].split()[0] == "6"
    assert lines[-1].endswith("in 2 files")


def test_ls_as_json_gives_paths_for_other_engines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each entry's path exists, and its spans add up."""
    assert command("ls", str(folder), "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert all(Path(entry["path"]).is_file() and not entry["replaced"] for entry in entries)
    assert sum(entry["spans"] for entry in entries) == 6


def test_verify_says_what_it_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound archive: exit 0."""
    assert command("verify", str(folder)) == 0
    assert capsys.readouterr().out.startswith("2 files, 6 spans, ")


def test_verify_exits_1_with_a_line_per_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no Parquet is named, in text and in JSON."""
    bad = next(folder.rglob("*.parquet")).with_name("bad.parquet")
    bad.write_bytes(b"no Parquet")
    assert command("verify", str(folder)) == 1
    assert capsys.readouterr().out.splitlines()[0].startswith(f"{bad}: cannot be read as Parquet")
    assert command("verify", str(folder), "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def test_compact_merges_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files become one; a second run has nothing to do."""
    assert command("compact", str(folder)) == 0
    assert "bucket=00: 2 files, " in capsys.readouterr().out
    assert len(list(folder.rglob("*.parquet"))) == 1
    assert command("compact", str(folder), "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_closed_only_waits_ten_minutes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hour is compacted once it has ended ten minutes ago, not before."""
    assert command("compact", str(folder), "--closed-only", unix_ns=HOUR_NS + 599_000_000_000) == 0
    assert capsys.readouterr().out == "0 partitions compacted\n"
    assert command("compact", str(folder), "--closed-only", unix_ns=HOUR_NS + 600_000_000_000) == 0
    assert capsys.readouterr().out.endswith("1 partitions compacted\n")


def test_flags_of_another_action_are_refused(folder: Path) -> None:
    """A flag that would do nothing is an error, not ignored."""
    with pytest.raises(UsageError, match="--closed-only"):
        command("ls", str(folder), "--closed-only")


def test_no_archive_is_an_error(tmp_path: Path) -> None:
    """For each action, with the folder named."""
    for action in ("ls", "verify", "compact"):
        with pytest.raises(ArchiveError, match="none: no such folder"):
            command(action, str(tmp_path / "none"))


def test_every_belongs_to_compact_and_is_a_duration(folder: Path) -> None:
    """Else it would be ignored, or the schedule be another one than was meant."""
    with pytest.raises(UsageError, match="--every belongs to"):
        command("verify", str(folder), "--every", "10m")
    with pytest.raises(UsageError, match="'often' is no duration"):
        command("compact", str(folder), "--every", "often")


class Ending(ManualClock):
    """A clock whose process gets SIGTERM at some time; `at` runs whatever is due at a time, in seconds."""

    def __init__(self, unix_ns: int, end_s: float, at: dict[int, Callable[[], object]] | None = None) -> None:
        super().__init__(unix_ns)
        self._end_ns = round(end_s * 1e9)
        self._at = dict(at or {})

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(seconds)
        for due in [due for due in self._at if due * 10**9 <= self.monotonic_ns()]:
            self._at.pop(due)()
        if self.monotonic_ns() >= self._end_ns:
            signal.raise_signal(signal.SIGTERM)


def schedule(clock: ManualClock, *argv: str) -> int:
    """Runs a schedule until the clock ends it."""
    parser = argparse.ArgumentParser()
    archive.add_arguments(parser)
    return archive.run(parser.parse_args(["compact", *argv]), clock)


def test_a_schedule_compacts_round_by_round_until_sigterm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds at 0, 10 and 20 minutes; the hour is closed and settled from the second one on; exit 0."""
    before = signal.getsignal(signal.SIGTERM)
    clock = Ending(HOUR_NS + 60 * 10**9, 1500)
    assert schedule(clock, str(folder), "--every", "10m", "--json") == 0
    assert signal.getsignal(signal.SIGTERM) is before
    rounds = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["unix_ns"] - HOUR_NS for entry in rounds] == [60 * 10**9, 660 * 10**9, 1260 * 10**9]
    assert [entry["partitions"] for entry in rounds] == [0, 1, 0]
    assert {key: rounds[1][key] for key in ("files_before", "files_after", "spans", "duplicates")} == {
        "files_before": 2,
        "files_after": 1,
        "spans": 6,
        "duplicates": 0,
    }
    assert len(list(folder.rglob("*.parquet"))) == 1


def test_a_schedule_says_a_line_for_each_round(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people: when, how much, in UTC."""
    assert schedule(Ending(3 * HOUR_NS, 1), str(folder), "--every", "10m") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("1970-01-01T03:00:00Z: 1 partitions, 2 files, ")
    assert line.endswith(
        " -> 1 files, {:,} bytes, 6 spans in 0.0 s".format(next(folder.rglob("*.parquet")).stat().st_size)
    )


def test_a_round_that_fails_is_told_and_tried_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read comes and goes; the first round of all must succeed."""
    bad = next(folder.rglob("*.parquet")).with_name("compact-bad.parquet")
    at: dict[int, Callable[[], object]] = {5: lambda: bad.write_bytes(b"no Parquet"), 15: bad.unlink}
    assert schedule(Ending(3 * HOUR_NS, 25, at), str(folder), "--every", "10s", "--json") == 0
    said = capsys.readouterr()
    assert [json.loads(line)["partitions"] for line in said.out.splitlines()] == [1, 0]
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"spanlite: {bad}: cannot be read as Parquet")
    with pytest.raises(ArchiveError, match="no such folder"):
        schedule(Ending(0, 1), str(folder / "none"), "--every", "10s")


def test_a_real_schedule_ends_cleanly_on_sigterm(folder: Path) -> None:
    """The command as a process: a line, then SIGTERM while it waits for the next round, then exit 0."""
    words = ["archive", "compact", str(folder), "--every", "1h"]
    code = "import sys; from spanlite.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    ) as child:
        assert child.stdout is not None
        assert "1 partitions, 2 files, " in child.stdout.readline()
        child.terminate()
        assert child.stdout.read() == ""
        assert child.wait(30) == 0

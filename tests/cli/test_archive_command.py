"""`spanlite archive`."""

from __future__ import annotations

import argparse
import json
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

"""`spanlite summary`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from spanlite.cli.commands import summary
from spanlite.contract.batch import Batch
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, make_columns
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.write import write_batches

HEAD = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"


def command(*argv: str) -> int:
    """Runs the command as the command line does."""
    parser = argparse.ArgumentParser()
    summary.add_arguments(parser)
    return summary.run(parser.parse_args(argv))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three launches of f<int>(int), of 10, 20 and 60 ns, and one of a C kernel, of 10 ns."""
    strings = ("", "_Z1fIiEvT_", "saxpy", "decode")
    configs = np.zeros(2, CONFIG)
    configs["name"] = configs["kernel"] = [1, 2]
    tables = (strings, configs, np.zeros(1, PLACE), np.zeros(1, NODE), np.zeros(0, TRACE))
    columns = make_columns(
        np.arange(4),
        np.array([10, 20, 60, 10]),
        tables=tables,
        config=np.array([0, 0, 0, 1]),
        stage=np.array([3, 0, 0, 0]),
    )
    write_batches(tmp_path, [Batch(bytes(16), 0, 7, 0, 0, columns, {})])
    return tmp_path


def test_prints_the_csv_of_nsys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures worked out by hand, the deviation that of a sample."""
    assert command(str(folder)) == 0
    assert capsys.readouterr().out == (
        f"{HEAD}Name\n90.0,90,3,30.0,20.0,10,60,26.5,void f<int>(int)\n10.0,10,1,10.0,10.0,10,10,0.0,saxpy\n"
    )


def test_splits_by_stage_and_keeps_mangled_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Launches outside all stages have an empty one."""
    assert command(str(folder), "--by", "stage", "--base", "mangled") == 0
    assert capsys.readouterr().out == (
        f"{HEAD}stage,Name\n"
        "80.0,80,2,40.0,40.0,20,60,28.3,,_Z1fIiEvT_\n"
        "10.0,10,1,10.0,10.0,10,10,0.0,decode,_Z1fIiEvT_\n"
        "10.0,10,1,10.0,10.0,10,10,0.0,,saxpy\n"
    )


def test_json_has_unrounded_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the launch configuration as an object."""
    assert command(str(folder), "--by", "config", "--json") == 0
    lines = json.loads(capsys.readouterr().out)
    assert lines[0]["deviation_ns"] == pytest.approx(700**0.5)
    assert lines[0]["key"]["grid_x"] == "0"


def test_no_archive_is_an_error(tmp_path: Path) -> None:
    """With what is wrong."""
    with pytest.raises(ArchiveError, match="holds no archive files"):
        command(str(tmp_path))

"""`spanlite occupancy`: what it prints, what it returns, what it refuses."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from spanlite.cli.commands import occupancy
from spanlite.contract.errors import RecordingError, UsageError

RECORDED = Path(__file__).parents[1] / "data" / "ncu_occupancy.csv"
LAUNCH = ("--cc", "9.0", "--block", "256", "--registers", "56", "--shared-config", "32768", "--barriers", "1")


def run(*flags: str) -> int:
    parser = argparse.ArgumentParser()
    occupancy.add_arguments(parser)
    return occupancy.run(parser.parse_args(flags))


def test_one_launch_prints_every_limit_and_marks_the_limiter(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are ncu's own for the first launch of the recording."""
    assert run(*LAUNCH) == 0
    assert capsys.readouterr().out.splitlines() == [
        "limit            blocks per SM",
        "warps                        8",
        "blocks                      32",
        "registers                    4  <- limits",
        "shared memory               32",
        "barriers                    32",
        "theoretical occupancy 50.00 %: 4 blocks, 32 of 64 warps per SM",
        "allocated: 56 registers per thread, 1024 bytes of shared memory per block (1024 of them the driver's)",
    ]


def test_one_launch_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A block of three extents; the same figures under stable names."""
    assert run(*LAUNCH[:2], "--block", "32,4,2", *LAUNCH[4:], "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "compute_capability": "9.0",
        "threads_per_block": 256,
        "blocks_by_warps": 8,
        "blocks_by_blocks": 32,
        "blocks_by_registers": 4,
        "blocks_by_shared_memory": 32,
        "blocks_by_barriers": 32,
        "active_blocks": 4,
        "active_warps": 32,
        "max_warps": 64,
        "registers_allocated": 56,
        "shared_memory_allocated": 1024,
        "shared_memory_driver": 1024,
        "limiter": "registers",
        "occupancy_percent": 50.0,
    }


def test_shared_memory_flags_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    """16 + 8192 bytes and the driver's 1024, rounded up to 128, are 9344; ten fit 102400."""
    flags = ("--cc", "9.0", "--block", "64,8", "--registers", "32", "--static-shared", "16", "--dynamic-shared", "8192")
    assert run(*flags, "--shared-config", "102400", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["shared_memory_allocated"], report["blocks_by_shared_memory"]) == (9344, 10)


def test_a_launch_that_cannot_run_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    """2048 threads fit no block."""
    assert run("--cc", "8.0", "--block", "2048", "--registers", "32") == 0
    out = capsys.readouterr().out
    assert "warps                        0  <- limits" in out
    assert "such a launch cannot run on this GPU" in out


def test_the_recording_is_all_equal(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 and one line."""
    assert run("--ncu", str(RECORDED)) == 0
    assert capsys.readouterr().out == "141 launches: 141 equal, 0 different\n"


@pytest.fixture
def altered(tmp_path: Path) -> Path:
    """The recording with two wrong figures in one launch (line 4)."""
    text = RECORDED.read_text(encoding="utf-8")
    assert text.count(",32768,0,32,32,16,32,16,0.24,100,") == 1
    path = tmp_path / "altered.csv"
    path.write_text(text.replace(",32768,0,32,32,16,32,16,0.24,100,", ",32768,0,32,32,15,31,16,0.24,100,"))
    return path


def test_differences_are_listed_and_exit_with_1(altered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row a figure, one launch in the summary; the kernel's name is cut to fit."""
    assert run("--ncu", str(altered)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["line", "4", "4", "141"]
    assert [line.split()[-3:] for line in lines[1:3]] == [
        ["launch__occupancy_limit_registers", "16", "15"],
        ["launch__occupancy_limit_shared_mem", "32", "31"],
    ]
    assert "void at::vectorized_gather_kernel<16, long>(cha…" in lines[1]
    assert lines[3] == "141 launches: 140 equal, 1 different"


def test_differences_as_json(altered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole kernel name and both values."""
    assert run("--ncu", str(altered), "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["launches"], report["equal"], report["different"]) == (141, 140, 1)
    kernel = "void at::vectorized_gather_kernel<16, long>(char *, char *, T2 *, int, long, long, long, long, bool)"
    assert report["differences"][0] == {
        "line": 4,
        "kernel": kernel,
        "field": "launch__occupancy_limit_registers",
        "ours": 16.0,
        "ncu": 15.0,
    }


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give --cc, --block and --registers of a launch, or --ncu"),
        (("--cc", "9.0", "--block", "128"), "give --cc, --block and --registers"),
        (("--ncu", "x.csv", "--registers", "0"), "--ncu takes its launches from the file"),
        (("--cc", "9", "--block", "128", "--registers", "32"), "--cc '9' is not MAJOR.MINOR"),
        (("--cc", "5.2", "--block", "128", "--registers", "32"), r"capability 5\.2; known are 7\.0"),
        (("--cc", "9.0", "--block", "1,2,3,4", "--registers", "32"), "--block '1,2,3,4' is not X"),
        (("--cc", "9.0", "--block", "wide", "--registers", "32"), "--block 'wide' is not X"),
        (("--cc", "9.0", "--block=-32", "--registers", "32"), "--block '-32' is not X"),
    ],
)
def test_a_wrong_call_is_refused(flags: tuple[str, ...], message: str) -> None:
    """The message names the flag and its form."""
    with pytest.raises(UsageError, match=message):
        run(*flags)


def test_a_missing_file_is_a_recording_error(tmp_path: Path) -> None:
    """The error goes to the caller, which prints it."""
    with pytest.raises(RecordingError, match="No such file"):
        run("--ncu", str(tmp_path / "absent.csv"))

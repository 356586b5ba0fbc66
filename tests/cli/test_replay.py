"""`spanlite replay run`: what it says, how it ends, what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spanlite.runtime.clock import SystemClock
from tests.cli.process import refused, spanlite, tree
from tests.cli.recorded import DATA

RECORDING = DATA / "h200" / "streams-cupti130500.bin.xz"


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive and the batches that it was made from."""
    folder = tmp_path_factory.mktemp("ingested")
    done = spanlite("ingest", RECORDING, "--archive", folder / "traces", "--batches", folder / "batches.spans", "-q")
    assert done.returncode == 0, done.stderr
    return folder


def test_what_is_replayed_is_what_was_ingested(ingested: Path, tmp_path: Path) -> None:
    """`cat` of the replayed file, and the lines to stdout, are those of the batches that were archived."""
    out = tmp_path / "again.spans"
    done = spanlite("replay", "run", ingested / "traces", "--to", "file", "-o", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert "lost: none" in done.stderr
    original = spanlite("cat", ingested / "batches.spans").stdout
    assert len(original.splitlines()) > 1000
    assert spanlite("cat", out).stdout == original
    assert spanlite("replay", "run", ingested / "traces", "--to", "stdout", "-q").stdout == original


def test_the_manifest_says_what_was_done(ingested: Path, tmp_path: Path) -> None:
    """Counts, range, digest and settings stand beside the file; a second run writes the same."""
    words: list[str | Path] = [
        "replay",
        "run",
        ingested / "traces",
        "--to",
        "file",
        "-o",
        tmp_path / "a",
        "--ids",
        "remap",
        "--seed",
        "5",
    ]
    shown = json.loads(spanlite(*words, "--json", "-q").stdout)
    assert json.loads((tmp_path / "a.json").read_text()) == shown
    assert shown["seed"] == 5
    assert shown["settings"]["ids"] == "remap"
    assert shown["emitted"]["spans"] == shown["selected"]["spans"]
    assert shown["emitted"]["bytes"] <= (tmp_path / "a").stat().st_size
    assert shown["ended"] == "finished"
    assert json.loads(spanlite(*words, "--json", "-q").stdout) == shown


def test_a_dry_run_writes_nothing_and_says_the_truth(ingested: Path, tmp_path: Path) -> None:
    """Spans, batches and duration of the estimate are those of the run; no file appears."""
    words: list[str | Path] = ["replay", "run", ingested / "traces", "--to", "file", "-o", tmp_path / "out"]
    facts = json.loads(spanlite(*words, "--dry-run", "--json", "--speed", "2").stdout)
    assert tree(tmp_path) == {}
    assert facts["duration_s"] == pytest.approx(facts["recorded_s"] / 2)
    lines = spanlite("cat", ingested / "batches.spans").stdout.splitlines()
    assert facts["spans"] == len(lines)
    assert facts["traces"] == len({json.loads(line)["trace_id"] for line in lines} - {""})
    assert spanlite(*words, "-q").returncode == 0
    assert facts["bytes"] == pytest.approx((tmp_path / "out").stat().st_size, rel=0.1)
    assert "spans" in spanlite(*words, "--dry-run").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "file"], "-o FILE"),
        (["--to", "stdout", "--resume"], "--checkpoint"),
        (["--to", "stdout", "--shift", "sometime"], "--shift"),
        (["--to", "stdout", "--shift", "offset=+2400000h"], "smaller shift"),
        (["--to", "stdout", "--loop", "2"], "--ids remap"),
        (["--to", "stdout", "--speed", "fast"], "speed"),
        (["--to", "stdout", "--trace", "12"], "32 hex digits"),
        (["--to", "stdout", "--mode", "hasty", "--speed", "1"], "precise"),
        (["--to", "stdout", "--json"], "--manifest"),
        (["--to", "stdout", "--run", "a b"], "--run"),
        (["--to", "stdout", "--sample", "ten"], "--sample"),
        (["--to", "stdout", "--sample", "200%"], "a sample of"),
        (["--to", "stdout", "--burst", "5"], "--qps"),
        (["--to", "stdout", "--period", "1ns", "--loop", "2", "--ids", "remap"], "--period"),
        (["--to", "stdout", "--limit-spans", "1"], "--limit-spans"),
        (["--to", "kafka", "--topic", "spanlite.spans"], "--yes-live twice"),
        (["--to", "kafka", "--topic", "cell-7.spans", "--yes-live"], "--yes-live twice"),
        (["--to", "file", "-o", "/nowhere/out"], "/nowhere/out"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(ingested: Path, words: list[str], said: str) -> None:
    """Flags that make no sense end with 2 and say what to do."""
    done = spanlite("replay", "run", ingested / "traces", *words)
    refused(done, said)
    assert done.returncode == 2


def test_ends_and_limits_are_those_of_the_flags(ingested: Path, tmp_path: Path) -> None:
    """A sample, a number of batches, a limit of traces with a burst, a duration: as the dry run foretells."""
    out = tmp_path / "out.spans"
    words: list[str | Path] = ["replay", "run", ingested / "traces", "--to", "file", "-o", out, "-q", "--json"]
    words += ["--sample", "100%", "--limit-batches", "1", "--qps", "5000", "--qps-of", "traces"]
    words += ["--burst", "10", "--duration", "1m", "--mode", "precise"]
    told = json.loads(spanlite(*words, "--dry-run").stdout)
    done = json.loads(spanlite(*words).stdout)
    assert told["batches"] == done["emitted"]["batches"] == 1
    assert 0 < told["spans"] == done["emitted"]["spans"] == len(spanlite("cat", out).stdout.splitlines())
    assert done["settings"]["selection"]["share"] == 1
    assert {name: done["pacing"][name] for name in ("qps", "qps_of", "burst", "duration", "mode", "late_policy")} == {
        "qps": "5000",
        "qps_of": "traces",
        "burst": 10,
        "duration": "1m",
        "mode": "precise",
        "late_policy": "catchup",
    }


def test_nothing_selected_fails_and_leaves_nothing(ingested: Path, tmp_path: Path) -> None:
    """An empty selection is a failure, not an empty file."""
    out = tmp_path / "out"
    refused(spanlite("replay", "run", ingested / "traces", "--to", "file", "-o", out, "--host", "x"), "no span")
    assert tree(tmp_path) == {}


def test_foreign_and_damaged_archives_fail_and_leave_nothing(ingested: Path, tmp_path: Path) -> None:
    """No archive, another table, and cut or overwritten Parquet are told in one line; the old file stays."""
    out = tmp_path / "out"
    out.write_bytes(b"old")
    words: list[str | Path] = ["--to", "file", "-o", out]
    refused(spanlite("replay", "run", tmp_path / "none", *words), "no such folder")
    part = tmp_path / "traces" / "date=2026-11-29" / "hour=13" / "bucket=00"
    part.mkdir(parents=True)
    table = DATA / "serve_slice.parquet"
    whole = next((ingested / "traces").rglob("*.parquet")).read_bytes()
    broken = bytearray(whole)
    broken[len(whole) // 4 : len(whole) // 2] = bytes(len(whole) // 2 - len(whole) // 4)
    for data, said in (
        (table.read_bytes(), "not a file of a spanlite archive"),
        (whole[:-9], "x.parquet"),
        (broken, "x.parquet"),
    ):
        (part / "x.parquet").write_bytes(data)
        done = spanlite("replay", "run", tmp_path / "traces", *words)
        refused(done, said)
        assert done.returncode == 1
    assert out.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "traces"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_with_a_checkpoint(ingested: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Told to end, it exits with 130 and no file; gone on with, the file is that of a run that was not stopped."""
    out, kept, clock = tmp_path / "out", tmp_path / "kept.json", SystemClock()
    words = ["replay", "run", str(ingested / "traces"), "--to", "file", "-o", str(out), "--ids", "remap", "--loop", "4"]
    keep = ["--checkpoint", str(kept), "--checkpoint-every", "1ms"]
    command = [sys.executable, "-m", "spanlite", *words, *keep, "--qps", "0.5"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline_ns = clock.monotonic_ns() + 60 * 10**9
        while not kept.exists() and clock.monotonic_ns() < deadline_ns:
            clock.sleep_s(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "--resume" in said
    assert not out.exists()
    assert json.loads(kept.read_text())["account"]["batches"] >= 1
    assert spanlite(*words, *keep, "--resume").returncode == 0
    again = spanlite(*words, *keep, "--resume")
    assert (again.returncode, again.stderr) == (0, f"{kept}: that replay is complete\n")
    data = out.read_bytes()
    other = spanlite(*words, *keep, "--resume", "--seed", "9")
    refused(other, "of another replay")
    assert spanlite(*words).returncode == 0
    assert out.read_bytes() == data


def test_the_terminal_sees_progress_and_a_pipe_does_not(ingested: Path) -> None:
    """Off a terminal only the closing line is written."""
    done = spanlite("replay", "run", ingested / "traces", "--to", "stdout")
    assert len(done.stderr.splitlines()) == 1
    assert "\r" not in done.stderr

"""`spanlite doctor` as a command: what it prints, its exit codes, what it refuses."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.reasons import WHY
from spanlite.cli.main import main

KEYS = {"id", "part", "level", "found", "why", "fix"}


def test_json_has_the_documented_shape(capsys: pytest.CaptureFixture[str]) -> None:
    """Every finding has all keys; the exit code is that of the worst level."""
    code = main(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"schema", "findings"}
    assert said["schema"] == 1
    assert {frozenset(finding) for finding in said["findings"]} == {frozenset(KEYS)}
    assert {finding["id"] for finding in said["findings"]} <= set(WHY)
    levels = {finding["level"] for finding in said["findings"]}
    assert levels <= {level.name.lower() for level in Level}
    assert code == int("failure" in levels)
    assert [finding for finding in said["findings"] if finding["id"] == "doctor.check_failed"] == []


def test_a_pipe_gets_no_colour_and_the_parts_that_were_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A socket, a spool and a broker that are not there are failures of their own."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    flags = ["--socket", str(tmp_path / "a.sock"), "--spool", str(tmp_path), "--bootstrap", f"127.0.0.1:{port}"]
    assert main(["doctor", *flags, "--pid", str(2**22 + 1), "--metrics", f"http://127.0.0.1:{port}/metrics"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert {"socket", "spool", "kafka", "process", "metrics", "clock"} <= set(lines)
    marked = {line.split()[1] for line in lines if line.startswith("  ✗")}
    assert {"socket.missing", "kafka.unreachable", "process.gone", "metrics.unreachable"} <= marked


def test_the_program_s_output_stays_out_of_the_report(tmp_path: Path) -> None:
    """Its words go to stderr, so that JSON stays JSON; its flags are its own."""
    collector = tmp_path / "libspanlite_collector.so"
    collector.touch()
    command = [sys.executable, "-m", "spanlite", "doctor", "--json", "--collector", str(collector), "--"]
    done = subprocess.run(
        [*command, "sh", "-c", 'echo "$1"', "sh", "--json"], capture_output=True, text=True, check=False
    )
    told = {finding["id"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.stderr == "--json\n"
    assert told["trial.no_cuda"]["level"] == "failure"
    assert "the program ended by itself" in told["trial.ended"]["found"]
    assert told["collector.broken"]["level"] == "failure"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pid", "0"], "--pid 0: name the number of a process"),
        (["--seconds", "0"], "--seconds 0: must be more than 0"),
        (["--metrics", "localhost"], "--metrics localhost: write a URL"),
        (["--spool-limit", "much"], "'much' is no size"),
        (["--bootstrap", "k:1", "--security-file", "/no/such/file"], "/no/such/file: No such file"),
        (["--no-such-flag"], "unrecognized arguments"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    """Exit code 2, and nothing was looked at."""
    assert main(["doctor", *words]) == 2
    caught = capsys.readouterr()
    assert said in caught.err
    assert caught.out == ""

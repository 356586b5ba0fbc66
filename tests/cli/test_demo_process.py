"""`spanlite demo` as a process: terminals, Ctrl-C, what it leaves, and what it serves while it waits."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.process import spanlite, tree
from tests.cli.recorded import DATA, raw, works

NAME = "serve-cupti130500"
LAUNCHES = 60_480
WORKS = works(NAME)


def test_without_a_terminal_it_prints_tables_and_ends(tmp_path: Path) -> None:
    """Proves the plain form: metrics' address on stderr, tables and figures on stdout, the archive in TMPDIR kept."""
    done = spanlite("demo", "--speed", "0", "--port", "0", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("metrics: http://127.0.0.1:")
    assert f"{raw(NAME).spans:,} spans: 0 dropped" in done.stdout
    assert "14,688" in done.stdout
    assert "\x1b" not in done.stdout
    (archive,) = tmp_path.iterdir()
    assert f"archive: {archive}\n" in done.stdout
    query = done.stdout[done.stdout.index("SELECT") :]
    assert len(duckdb.sql(query).fetchall()) == 10


def test_on_a_terminal_the_table_is_drawn_live(tmp_path: Path) -> None:
    """Proves on a pseudo-terminal that the table moves while the run is played, and that the end is the same."""
    leader, follower = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "spanlite",
        "demo",
        "--speed",
        "12",
        "--port",
        "0",
        "--archive",
        str(tmp_path / "a"),
    ]
    environment = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50"}
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone when the process is
            while part := os.read(leader, 1 << 16):
                shown += part
        assert process.wait(timeout=60) == 0
    os.close(leader)
    text = shown.decode()
    assert text.count("Kernels by GPU time") >= 3
    assert "\x1b[?25l" in text, "the cursor is hidden while it draws"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "and shown again"
    assert "14,688" in text
    assert "Traceback" not in text


def test_a_terminal_of_few_characters_will_do(tmp_path: Path) -> None:
    """Proves that what ASCII cannot show is replaced, not a crash at the end of the run."""
    environment = {"PYTHONIOENCODING": "ascii"}
    done = spanlite("demo", "--speed", "0", "--port", "0", "--archive", tmp_path, env=environment)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "14,688" in done.stdout


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """Proves that `demo | true` ends with 0 and without noise, and that the archive is there all the same."""
    with subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE) as gone:
        gone.wait(timeout=60)
        words = ["demo", "--speed", "0", "--port", "0", "--archive", str(tmp_path)]
        command = [sys.executable, "-m", "spanlite", *words]
        done = subprocess.run(command, stdout=gone.stdin, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1, "the address of the metrics"
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@contextlib.contextmanager
def running(*words: str | Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A demo that is still at work; ended, if the test has not."""
    command = [sys.executable, "-m", "spanlite", "demo", "--port", "0", *map(str, words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def get(url: str) -> str:
    """A page of this machine."""
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # see above
        return str(answer.read().decode())


def test_kept_it_serves_metrics_until_interrupted(tmp_path: Path) -> None:
    """Proves that /metrics has every launch while it waits, that Ctrl-C ends it with 0, and that the archive stays."""
    archive = tmp_path / "archive"
    with running("--keep", "--speed", "0", "--json", "--archive", archive) as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("\n}\n"):
            text += process.stdout.readline()
        url = json.loads(text)["metrics"]
        samples = [sample for family in text_string_to_metric_families(get(url)) for sample in family.samples]
        before = tree(archive)
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
        assert (process.returncode, rest) == (0, "")
        assert said == f"serving {url} until Ctrl-C\n"
    assert tree(archive) == before != {}

    def total(name: str) -> float:
        return sum(sample.value for sample in samples if sample.name == name)

    assert total("spanlite_kernel_launches_total") == LAUNCHES
    assert total("spanlite_kernel_duration_seconds_count") == LAUNCHES
    kernels = [work for work in WORKS if work.kind == "kernel"]
    nanoseconds = sum(work.duration_ns for work in kernels)
    assert total("spanlite_kernel_duration_seconds_sum") == pytest.approx(nanoseconds / 1e9, rel=1e-12)
    assert total("spanlite_stage_time_seconds_total") == pytest.approx(nanoseconds / 1e9, rel=1e-12)
    assert total("spanlite_agent_spans_received_total") == total("spanlite_agent_spans_sent_total") == raw(NAME).spans
    assert total("spanlite_gpu_info") == 1


def test_interrupted_on_the_way_it_leaves_nothing(tmp_path: Path) -> None:
    """Proves exit 130, one line, and no archive when Ctrl-C comes while the run is still played."""
    with running("--speed", "0.05", env={"TMPDIR": str(tmp_path)}) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("metrics: ")
        for _ in range(200):
            if list(tmp_path.glob("spanlite-*/agent.sock")):
                break
            threading.Event().wait(0.02)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
        assert (process.returncode, out, said) == (130, "", "spanlite: interrupted\n")
    assert tree(tmp_path) == {}


def test_a_port_that_is_taken_is_said_and_nothing_left(tmp_path: Path) -> None:
    """Proves one line with the way out, and neither archive nor temporary folder."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = spanlite("demo", "--port", port, "--archive", tmp_path / "a", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"port {port}" in line
    assert "--port 0" in line
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "70000"), "port 70000"),
        (("--recording", "none.bin.xz"), "none.bin.xz: there is no such file"),
        (("--archive", "/proc/archive"), "cannot hold an archive"),
        (("--config-less",), "--config-less"),
    ],
)
def test_a_demo_that_cannot_start_leaves_nothing(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """Proves one line and an empty TMPDIR."""
    done = spanlite("demo", "--port", "0", *words, "--json", env={"TMPDIR": str(tmp_path)})
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert tree(tmp_path) == {}


def test_another_recording_can_be_shown(tmp_path: Path) -> None:
    """Proves it with a kernel table, and that one with losses ends with 3."""
    done = spanlite("demo", "--recording", DATA / "serve_slice.parquet", "--json", "--port", "0", "--archive", tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["spans_received"] == 20_000

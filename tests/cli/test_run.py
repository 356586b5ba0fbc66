"""`spanlite run` becomes the program: a real process, and what it finds in its environment."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spanlite.cli.main import main


@pytest.fixture
def collector(tmp_path: Path) -> Path:
    """A file in the collector's place; the programs here load no CUDA."""
    path = tmp_path / "libspanlite_collector.so"
    path.touch()
    return path


def started(*words: str | Path, **variables: str) -> subprocess.Popen[str]:
    """The command as a process."""
    environment = {"PATH": "/usr/bin:/bin", **variables}
    command = [sys.executable, "-m", "spanlite", "run", *map(str, words)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_program_takes_the_process_over(collector: Path, tmp_path: Path) -> None:
    """Its pid is the command's, its exit code and output are its own, and the environment names the collector."""
    socket = tmp_path / "a.sock"
    script = 'echo $$; echo "$CUDA_INJECTION64_PATH $NVTX_INJECTION64_PATH $SPANLITE_SOCKET $KEPT"; exit 7'
    process = started("--collector", collector, "--socket", socket, "--", "sh", "-c", script, KEPT="as it was")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 7
    assert out.splitlines() == [str(process.pid), f"{collector} {collector} {socket} as it was"]
    assert err == ""


def test_signals_reach_the_program(collector: Path) -> None:
    """Nothing stands between whoever stops it and the program."""
    process = started("--collector", collector, "--", "sh", "-c", "echo up; exec sleep 60")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.communicate()


def test_flags_become_the_collector_s_variables(collector: Path) -> None:
    """Stages off, a duty cycle, words with dashes of the program's own; without --socket the collector's default."""
    script = 'echo "$SPANLITE_STAGES|$SPANLITE_DUTY|$SPANLITE_BUDGET|${SPANLITE_SOCKET-unset}|$1"'
    flags = ("--collector", collector, "--no-stages", "--duty", "20/200", "--budget", "0.5")
    out, _ = started(*flags, "--", "sh", "-c", script, "sh", "--duty").communicate(timeout=60)
    assert out == "0|20/200|0.5|unset|--duty\n"


def test_no_children_names_the_program_s_own_process(collector: Path) -> None:
    """The number is that of the process which becomes the program; a nested run without the flag forgets it."""
    script = 'echo "$$ $SPANLITE_PID"'
    process = started("--collector", collector, "--no-children", "--", "sh", "-c", script)
    assert process.communicate(timeout=60)[0] == f"{process.pid} {process.pid}\n"
    again = started("--collector", collector, "--", "sh", "-c", 'echo "${SPANLITE_PID-unset}"', SPANLITE_PID="1")
    assert again.communicate(timeout=60)[0] == "unset\n"


def test_another_tool_for_ranges_goes_first(collector: Path) -> None:
    """The tool that NVTX would have loaded is handed on, not replaced."""
    script = 'echo "$NVTX_INJECTION64_PATH $SPANLITE_NVTX_NEXT"'
    words = ("--collector", collector, "--", "sh", "-c", script)
    out, _ = started(*words, NVTX_INJECTION64_PATH="/opt/tool.so").communicate(timeout=60)
    assert out == f"{collector} /opt/tool.so\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no program is named; write it behind --"),
        (["--duty", "200/20", "--", "true"], "--duty 200/20: write milliseconds as ON/PERIOD with 0 < ON <= PERIOD"),
        (["--duty", "often", "--", "true"], "--duty often: write milliseconds as ON/PERIOD"),
        (["--", "no-such-program"], "no-such-program: cannot be started (No such file or directory)"),
        (["--collector", "/no/such.so", "--", "true"], "/no/such.so: there is no such file"),
    ],
)
def test_what_cannot_be_run_is_told(
    collector: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """One line that names the fix, and nothing is started."""
    named = [] if "--collector" in words else ["--collector", str(collector)]
    assert main(["run", *named, *words]) == 2
    assert said in capsys.readouterr().err


def test_another_profiler_is_not_pushed_out(
    collector: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA loads one library: who asked first keeps it, and is named."""
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")
    assert main(["run", "--collector", str(collector), "--", "true"]) == 2
    said = capsys.readouterr().err
    assert "CUDA_INJECTION64_PATH names /opt/nsys/libToolsInjection64.so already" in said
    assert "run it without the other" in said

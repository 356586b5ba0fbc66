"""Reading /proc: a recorded tree, the files that may not be read, and numbers that were given out again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spanlite.agent.identity import procfs
from spanlite.agent.identity.procfs import ProcessFacts, read_process

STAT = "4711 (python) serve (x)) S 1 4711 4711 0 -1 4194560 5 0 0 0 1 2 0 0 20 0 9 0 {start} 1048576 512 184\n"
"""Field 22 is the start; the command holds what would mislead a split by spaces or by the first parenthesis."""


def make_process(root: Path, pid: int = 4711, *, start: int = 98765, cgroup: str = "0::/\n") -> Path:
    """A process as /proc shows it."""
    folder = root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(STAT.format(start=start))
    (folder / "cgroup").write_text(cgroup)
    (folder / "comm").write_text("python\n")
    (folder / "status").write_text("Name:\tpython\nNStgid:\t4711\t12\nNSpid:\t4711\t31\t7\nThreads:\t9\n")
    (folder / "environ").write_bytes(b"POD_NAME=web-0\0POD_NAME=second\0broken\0EMPTY=\0A=b=c\0")
    (folder / "exe").symlink_to("/usr/bin/python3.11 (deleted)")
    return folder


def test_a_recorded_process_is_read_whole(tmp_path: Path) -> None:
    """Each fact, from the fields and lines that proc(5) gives them."""
    make_process(tmp_path, cgroup="0::/a\n")
    assert read_process(4711, tmp_path) == ProcessFacts(
        start_ticks=98765,
        cgroup="0::/a\n",
        executable="python3.11",
        vpid=7,
        environ={"POD_NAME": "web-0", "EMPTY": "", "A": "b=c"},
    )


def test_what_may_not_be_read_is_left_out(tmp_path: Path) -> None:
    """Without exe, environ and NSpid: the command's name, no environment, no inner number."""
    folder = make_process(tmp_path)
    for name in ("exe", "environ", "status", "cgroup"):
        (folder / name).unlink()
    assert read_process(4711, tmp_path) == ProcessFacts(98765, "", "python", 0, None)


def test_a_process_that_is_gone_has_no_facts(tmp_path: Path) -> None:
    """No folder, an empty stat (a zombie being reaped), and one that is cut."""
    assert read_process(4711, tmp_path) is None
    for text in ("", "4711 (python) S 1 2"):
        (make_process(tmp_path / str(len(text))) / "stat").write_text(text)
        assert read_process(4711, tmp_path / str(len(text))) is None


def test_a_pid_given_out_again_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start differs before and after: whose files were read in between is not certain."""
    folder = make_process(tmp_path)
    read = procfs._environ

    def read_late(path: Path) -> dict[str, str] | None:
        found = read(path)
        (folder / "stat").write_text(STAT.format(start=98999))
        return found

    monkeypatch.setattr(procfs, "_environ", read_late)
    assert read_process(4711, tmp_path) is None


def test_a_huge_environment_is_cut(tmp_path: Path) -> None:
    """A process cannot make the agent read without end."""
    folder = make_process(tmp_path)
    (folder / "environ").write_bytes(b"A=1\0" + b"X" * (4 << 20) + b"\0B=2\0")
    facts = read_process(4711, tmp_path)
    assert facts is not None
    assert facts.environ == {"A": "1"}


def test_a_real_process_is_read_as_it_is() -> None:
    """The kernel of this machine: a child's program, environment and start, and nothing after its end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"POD_NAME": "p"}) as child:
        facts = read_process(child.pid)
        assert facts is not None
        assert facts.executable == Path(sys.executable).resolve().name
        assert facts.environ is not None
        assert facts.environ["POD_NAME"] == "p"
        assert facts.vpid == child.pid
        assert facts.start_ticks >= (read_process(os.getpid()) or facts).start_ticks
        child.communicate(b"\n")
    assert read_process(child.pid) is None

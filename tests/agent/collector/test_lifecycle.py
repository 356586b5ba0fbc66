"""Forks and ends of the traced process: its exit status, its output and its children are its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from spanlite.agent.frames import Frame
from tests.agent.collector.building import Built
from tests.agent.collector.program import Program, until
from tests.agent.collector.tap import Tap
from tests.agent.records import SIZES, kernel


def _started(program: Program, tap: Tap, folder: Path) -> str:
    """A program with a context, a connection and one kernel delivered; the file with that kernel."""
    path = folder / "records"
    path.write_bytes(kernel(1, 2, 3, name=0))
    program.start().ask("context")
    program.ask(f"fire {path}")
    program.ask("flush")
    until(lambda: bool(tap.connections and tap.connections[0].of(Frame.BUFFER)), "delivery")
    return str(path)


def test_the_child_of_a_fork_is_inert(built: Built, tap: Tap, tmp_path: Path) -> None:
    """No thread, no socket, no call of CUPTI and no message from it, though it fires, stamps and runs exit handlers."""
    with Program(built, tap.path) as program:
        path = _started(program, tap, tmp_path)
        program.ask(f"nvtx {built.collector}")
        before = program.number("get calls"), len(tap.connections[0].of(Frame.BUFFER))
        state, tasks, sockets, _, _ = program.ask(f"fork {path}").split()
        assert (state, tasks, sockets) == ("forked", "1", "0")
        assert program.ask("get violations") == "0"
        program.ask(f"fire {path}")
        program.ask("flush")
        until(lambda: len(tap.connections[0].of(Frame.BUFFER)) > before[1], "the parent to go on")
        assert program.ask("state") == "active"
        program.ended_well()
    assert len(tap.connections) == 1


def test_a_program_that_the_child_executes_inherits_no_socket(built: Built, tap: Tap, tmp_path: Path) -> None:
    """An agent that waits for the end of a connection would wait for the last grandchild."""
    with Program(built, tap.path) as program:
        _started(program, tap, tmp_path)
        assert program.ask("execute") == "0"
        program.ended_well()


def test_a_fork_before_cuda_leaves_the_child_free(built: Built, tap: Tap) -> None:
    """A launcher that never touches the GPU forks workers: they start collecting by themselves."""
    with Program(built, tap.path) as program:
        program.ask(f"preload {built.cupti}")
        program.ask(f"nvtx {built.collector}")
        assert program.ask("fork").split()[0] == "idle"
        program.ended_well()


@pytest.mark.parametrize("agent", ["reads", "hangs", "is absent"])
def test_the_exit_status_is_the_programs(built: Built, place: Path, tmp_path: Path, agent: str) -> None:
    """exit(7) with buffers that CUPTI holds and some that are queued: 7, nothing written, whatever the agent does."""
    path = tmp_path / "records"
    path.write_bytes(kernel(1, 2, 3, name=0) * 5000)
    tap = None if agent == "is absent" else Tap(place)
    if tap and agent == "hangs":
        tap.reading.clear()
    with Program(built, place, SPANLITE_FLUSH_MS="0") as program:
        program.start().ask("context")
        program.ask("hold 3")
        program.ask(f"fire {path}")
        assert program.end("exit 7") == (7, "")
    if tap:
        if agent == "reads":
            until(lambda: tap.connections[0].over, "the end of the connection")
            assert len(tap.connections[0].bytes) == 5000 * SIZES[10]
            assert tap.connections[0].kinds[-1] == Frame.BYE
        tap.stop()


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("_exit 3", 3),
        ("abort", -signal.SIGABRT),
        (f"raise {int(signal.SIGTERM)}", -signal.SIGTERM),
        (f"raise {int(signal.SIGSEGV)}", -signal.SIGSEGV),
    ],
)
def test_sudden_ends_are_as_sudden_as_before(built: Built, tap: Tap, tmp_path: Path, end: str, status: int) -> None:
    """Signals and _exit run nothing of ours: same status, nothing written, the agent sees the end of the stream."""
    with Program(built, tap.path) as program:
        _started(program, tap, tmp_path)
        assert program.end(end) == (status, "")
    until(lambda: tap.connections[0].over, "the end of the connection")


def test_a_flush_that_never_returns_does_not_keep_the_program(built: Built, tap: Tap, tmp_path: Path) -> None:
    """CUPTI hangs in a dying driver: the process ends all the same."""
    with Program(built, tap.path) as program:
        _started(program, tap, tmp_path)
        program.ask("set flush_ms 3600000")
        assert program.end("exit 0") == (0, "")


def test_signals_are_left_to_the_program(built: Built, tap: Tap, tmp_path: Path) -> None:
    """The collector's thread takes none: all that a handler could be called for are blocked in it."""
    with Program(built, tap.path) as program:
        _started(program, tap, tmp_path)
        tasks = Path(f"/proc/{program.child.pid}/task")
        (ours,) = [task for task in tasks.iterdir() if (task / "comm").read_text() == "spanlite\n"]
        (line,) = [line for line in (ours / "status").read_text().splitlines() if line.startswith("SigBlk:")]
        blocked = int(line.split()[1], 16)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM):
            assert blocked >> (number - 1) & 1, number
        program.ended_well()

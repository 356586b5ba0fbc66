"""What keeps the collector from collecting, or makes it pause: a state, told where it can be told, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spanlite.agent.frames import Frame
from tests.agent.collector.building import HERE, Built, library
from tests.agent.collector.kernels import delivered, ended_quietly, kernels, put
from tests.agent.collector.program import Program, until
from tests.agent.collector.tap import Tap


def test_the_kill_switch_loads_nothing(built: Built, tap: Tap) -> None:
    """SPANLITE_DISABLE=1: libcuda gets its answer, no libcupti is mapped, no thread, no socket, no stamps."""
    with Program(built, tap.path, SPANLITE_DISABLE="1", SPANLITE_CUPTI=str(built.cupti)) as program:
        assert program.ask(f"init {built.collector}") == "1"
        assert program.ask(f"nvtx {built.collector}") == "0"
        assert program.ask("push a") == "-2"
        assert program.ask("state") == "disabled"
        assert (program.number("maps libcupti"), program.number("tasks"), program.number("sockets")) == (0, 1, 0)
        program.ended_well()


def test_a_process_that_was_not_asked_for_is_left_alone(native_built: Built, tap: Tap) -> None:
    """SPANLITE_PID (`spanlite run --no-children`): the process with that number is traced, its children are not."""
    with Program(native_built, tap.path, SPANLITE_PID="1", SPANLITE_CUPTI=str(native_built.cupti)) as program:
        assert program.ask(f"init {native_built.collector}") == "1"
        assert program.ask(f"nvtx {native_built.collector}") == "0"
        assert (program.ask("state"), program.ask("maps libcupti")) == ("disabled", "0")
        program.ended_well()
    lines = [f"preload {native_built.cupti}", f"init {native_built.collector}", "state"]
    words = ["sh", "-c", 'SPANLITE_PID=$$ exec "$0"', *native_built.driver]
    environment = {"PATH": os.defpath, "SPANLITE_SOCKET": str(tap.path)}
    done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["ok", "1", "waiting"]


def test_without_libcupti_the_program_runs_on(built: Built, tap: Tap) -> None:
    """A path that names no library: the state says so, and that is all."""
    with Program(built, tap.path, SPANLITE_CUPTI="/nonexistent/libcupti.so") as program:
        assert program.ask(f"init {built.collector}") == "1"
        assert program.ask("state") == "no_cupti"
        program.ended_well()


def test_a_libcupti_that_lacks_a_function_is_left_alone(built: Built, tap: Tap, tmp_path: Path) -> None:
    """An old library without one of the functions: inert, nothing is subscribed."""
    old = library(HERE / "mock_cupti.c", tmp_path / "libcupti.so.13", "-DMOCK_WITHOUT_DROPPED")
    with Program(built, tap.path, SPANLITE_CUPTI=str(old)) as program:
        assert program.ask(f"init {built.collector}") == "1"
        assert program.ask("state") == "no_cupti"
        assert program.ask("get calls") == "0"
        program.ended_well()


@pytest.mark.parametrize("version", [17, 25, 29, 129999, 130600, 140000])
def test_a_version_whose_records_are_unknown_is_left_alone(built: Built, tap: Tap, version: int) -> None:
    """The agent could not read them: inert before anything is subscribed."""
    with Program(built, tap.path) as program:
        program.start(f"set version {version}")
        assert program.ask("state") == "unknown_cupti_version"
        assert program.ask("get calls") == "0"
        program.ended_well()


@pytest.mark.parametrize("key", ["subscribe_result", "enable_result"])
def test_a_refusal_of_cupti_is_a_state(built: Built, tap: Tap, key: str) -> None:
    """Result 15 (not initialized, a libcupti newer than the driver): the number is told, the subscription returned."""
    with Program(built, tap.path) as program:
        program.start(f"set {key} 15")
        assert program.ask("state") == "cupti_error_15"
        program.ask("context")
        assert program.number("tasks") == 1
        ended_quietly(program)


def test_another_subscriber_is_left_in_peace_and_told_of(built: Built, tap: Tap) -> None:
    """Result 39: no callbacks are registered, which would take the other's buffers; the agent hears of it."""
    with Program(built, tap.path) as program:
        program.start("set subscribe_result 39")
        assert program.ask("state") == "subscriber_conflict"
        assert program.ask("get registered") == "0"
        until(lambda: bool(tap.connections and tap.connections[0].of(Frame.HELLO)), "HELLO")
        assert tap.connections[0].hello["resource.spanlite.collector.state"] == "subscriber_conflict"
        ended_quietly(program)


@pytest.mark.slow
def test_cupti_is_asked_for_again_when_the_other_may_have_gone(built: Built, tap: Tap, tmp_path: Path) -> None:
    """A debugger detaches: ten seconds later at the latest spans arrive, without a restart of the program."""
    with Program(built, tap.path) as program:
        program.start("set subscribe_result 39").ask("context")
        assert program.ask("state") == "subscriber_conflict"
        program.ask("set subscribe_result 0")
        until(lambda: program.ask("state") in {"waiting", "active"}, "another try")
        program.ask(f"fire {put(tmp_path, kernels(3))}")
        program.ask("flush")
        until(lambda: delivered(tap) == 3, "delivery")
        assert program.ask("state") == "active"
        ended_quietly(program)


def test_pausing_gives_cupti_away_and_resuming_takes_it_back(built: Built, tap: Tap, tmp_path: Path) -> None:
    """While paused nothing is subscribed or enabled, so another tool could; afterwards spans arrive as before."""
    path = put(tmp_path, kernels(3))
    with Program(built, tap.path) as program:
        program.start().ask("context")
        until(lambda: bool(tap.connections and tap.connections[0].of(Frame.HELLO)), "HELLO")
        program.ask(f"fire {path}")
        program.ask("pause")
        assert program.ask("state") == "paused"
        until(lambda: delivered(tap) == 3, "what was there before")
        assert program.ask(f"fire {path}") == "0"
        until(lambda: any(b"state=paused" in one for one in tap.connections[0].of(Frame.STATS)), "the state told")
        program.ask("resume")
        assert program.ask("state") == "active"
        program.ask(f"fire {path}")
        program.ask("flush")
        until(lambda: delivered(tap) == 6, "what came after")
        ended_quietly(program)


def test_a_duty_cycle_switches_kinds_and_nothing_else(native_built: Built, tap: Tap) -> None:
    """Kinds go on and off again and again, of one and the same subscription."""
    with Program(native_built, tap.path, SPANLITE_DUTY="2/6") as program:
        program.start().ask("context")
        until(lambda: program.number("get disables") >= 9 and program.number("get enables") >= 12, "three periods")
        assert (program.ask("get subscribed"), program.ask("get registered")) == ("1", "1")
        ended_quietly(program)


def test_gpus_that_are_not_known_yet_are_named_by_a_second_hello(built: Built, tap: Tap, tmp_path: Path) -> None:
    """While libcuda initialises it tells nothing: records then wait for no GPU, but a later HELLO names them."""
    with Program(built, tap.path) as program:
        program.start("cuda 3").ask("context")
        until(lambda: bool(tap.connections and tap.connections[0].frames), "the first HELLO")
        assert not [key for key in tap.connections[0].hello if key.startswith("gpu.")]
        program.ask("cuda 0")
        program.ask(f"fire {put(tmp_path, kernels(3))}")
        program.ask("flush")
        until(lambda: len(tap.connections) == 2 and bool(tap.connections[1].frames), "the second HELLO")
        ended_quietly(program)
    assert tap.connections[1].hello["gpu.0.uuid"].startswith("GPU-")
    assert delivered(tap) == 3

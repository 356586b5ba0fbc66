"""Another client of CUPTI in the same process: it gets CUPTI when it wants it, and we come back when it is done."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from spanlite.runtime.clock import SystemClock
from tests.agent.collector.building import HERE, Built, library
from tests.agent.collector.program import Program, until
from tests.agent.collector.tap import Tap
from tests.agent.records import SIZES, kernel


def _client(native_built: Built, folder: Path, binding: str) -> Path:
    """The other client; its table entries are bound at first use, or before and then sealed."""
    return library(HERE / "client.c", folder / "libclient.so", f"-Wl,-z,{binding},-z,relro", str(native_built.cupti))


def _records(folder: Path) -> str:
    now = SystemClock().unix_ns()
    path = folder / "records"
    path.write_bytes(b"".join(kernel(now + at, now + at + 5, at + 1, name=0) for at in range(10)))
    return str(path)


def _has_come(tap: Tap, length: int) -> bool:
    return sum(len(one.bytes) for one in tap.connections) == length


def _has_hello(tap: Tap) -> bool:
    return bool(tap.connections and tap.connections[0].frames)


@pytest.mark.parametrize("binding", ["lazy", "now"])
@pytest.mark.parametrize("subscribes", [1, 0])
@pytest.mark.parametrize("early", [True, False])
def test_another_client_works_as_if_it_were_alone(
    native_built: Built, tap: Tap, tmp_path: Path, *, binding: str, subscribes: int, early: bool
) -> None:
    """Its subscription succeeds, all its records are its own, ours before and after are ours, none goes astray."""
    client, path = _client(native_built, tmp_path, binding), _records(tmp_path)
    size = 10 * SIZES[10]
    with Program(native_built, tap.path) as program:
        program.start(*([f"client {client}"] if early else [])).ask("context")
        if not early:
            program.ask(f"client {client}")
        until(lambda: program.ask("watched") == "1", "a look at what is loaded")
        program.ask(f"fire {path}")
        assert program.ask(f"begin {subscribes}") == "0"
        assert program.ask("state") == "paused"
        assert int(program.ask("get clock_off_s")) > 10**9  # its own clock, which stays
        assert program.number(f"fire {path} 2") == 2 * size
        assert program.ask(f"finish {subscribes}") == "0"
        assert program.number("got") == 2 * size
        until(lambda: program.ask("state") == "active", "our return")
        assert program.ask("get clock_off_s") in {"0", "1"}
        program.ask(f"fire {path} 3")
        program.ask("flush")
        until(partial(_has_come, tap, 4 * size), "delivery")
        assert program.number("got") == 2 * size
        assert program.ask("get violations") == "0"
        program.ended_well()
    assert tap.dropped() == {}


def test_a_client_that_stays_subscribed_is_worked_beside(native_built: Built, tap: Tap, tmp_path: Path) -> None:
    """As torch.profiler does: its kinds are off, its subscription stays. We collect again, and give way again."""
    client, path = _client(native_built, tmp_path, "now"), _records(tmp_path)
    size = 10 * SIZES[10]
    with Program(native_built, tap.path) as program:
        program.start(f"client {client}").ask("context")
        for round_ in (1, 2):
            assert program.ask("begin 1" if round_ == 1 else "begin 0") == "0"
            program.ask(f"fire {path}")
            assert program.ask("finish 0") == "0"
            assert program.number("got") == round_ * size
            until(lambda: program.ask("state") == "active", "our return")
            program.ask(f"fire {path}")
            until(partial(_has_come, tap, round_ * size), "delivery")
        assert program.number("got") == 2 * size
        assert program.ask("get violations") == "0"
        program.ended_well()


def test_a_pause_of_the_program_outlasts_another_client(native_built: Built, place: Path, tmp_path: Path) -> None:
    """Who paused resumes: the other client's end alone does not bring us back, as the next agent hears."""
    client = _client(native_built, tmp_path, "now")
    with Program(native_built, place, SPANLITE_RESUME_MS="1") as program:
        program.start(f"client {client}").ask("context")
        program.ask("pause")
        assert [program.ask("begin 1"), program.ask("finish 1")] == ["0", "0"]
        for _ in range(2):  # the sender has gone round at least once since
            tap = Tap(place)
            until(partial(_has_hello, tap), "HELLO")
            tap.stop()
        assert tap.connections[0].hello["resource.spanlite.collector.state"] == "paused"
        assert program.ask("state") == "paused"
        program.ask("resume")
        assert program.ask("state") == "active"
        program.ended_well()


def test_a_client_that_is_not_looked_for_takes_our_records_and_nothing_breaks(
    native_built: Built, tap: Tap, tmp_path: Path
) -> None:
    """SPANLITE_GIVE_WAY=0, a client without a subscription: CUPTI gives it the callbacks; the program runs on."""
    client, path = _client(native_built, tmp_path, "now"), _records(tmp_path)
    with Program(native_built, tap.path, SPANLITE_GIVE_WAY="0", SPANLITE_FLUSH_MS="0") as program:
        program.start(f"client {client}").ask("context")
        assert program.ask("begin 1") == "39"
        assert program.ask("begin 0") == "0"
        program.ask(f"fire {path}")
        program.ask("flush")
        assert program.number("got") == 10 * SIZES[10]
        assert program.ask("state") == "active"
        program.ended_well()

"""What a step of a traced program takes while its agent is well, hangs, or is restarted again and again.

    python benchmarks/bench_collector_faults.py [--json FILE]

A program that launches through the tests' imitation of CUPTI: a step is 50 launches and 2 ms of sleep, the sleep not
counted. Every case runs in each of several rounds, every other round in reverse order. The collector's buffers are its
defaults. Without spanlite the imitation drops each record at once: the other cases hold what copying it costs, too.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import Figure, json_path, show  # noqa: E402 - run as a script, its folder is the path
from tests.agent.collector.building import Built, build  # noqa: E402
from tests.faults.agents import until  # noqa: E402
from tests.faults.collectors import ForkedAgent, Launcher, Nursery  # noqa: E402

_ROUNDS = 4
_STEPS, _LAUNCHES, _PAUSE_US = 400, 50, 2000
_DEFAULTS = {"SPANLITE_BUFFER_KIB": "8192", "SPANLITE_POOL_KIB": "65536", "SPANLITE_FLUSH_MS": "1000"}
_CASES = ("without spanlite", "no agent", "agent", "agent that hangs", "agent restarted")


@contextmanager
def _agent(case: str, nursery: Nursery, folder: Path, socket: Path) -> Iterator[Callable[[], None]]:
    """An agent; what is given is called when the program has connected to it."""
    if case in ("without spanlite", "no agent"):
        yield lambda: None
        return
    agent = ForkedAgent(nursery, folder, socket)
    over = threading.Event()
    restarting = threading.Thread(target=_restart, args=(nursery, folder, socket, over))

    def begin() -> None:
        until(lambda: agent.received() > 0, "the connection")
        if case == "agent that hangs":
            nursery.signal(signal.SIGSTOP)
        elif case == "agent restarted":
            restarting.start()

    yield begin
    over.set()
    if restarting.ident is not None:
        restarting.join()
    nursery.clear()


def _restart(nursery: Nursery, folder: Path, socket: Path, over: threading.Event) -> None:
    while not over.wait(0.2):
        nursery.clear()
        ForkedAgent(nursery, folder, socket)


def _run(case: str, built: Built, nursery: Nursery, folder: Path) -> NDArray[np.int64]:
    """Times of steps, ns."""
    folder.mkdir()
    socket, times = folder / "a.sock", folder / "steps"
    with (
        _agent(case, nursery, folder, socket) as begin,
        Launcher(built, folder / "program", socket, _DEFAULTS, traced=case != "without spanlite") as program,
    ):
        program.ask("launch 200 2000")
        begin()
        program.ask(f"steps {_STEPS} {_LAUNCHES} {_PAUSE_US} {times}")
        program.ended_well()
    return np.frombuffer(times.read_bytes(), dtype=np.int64)


def _row(case: str, rounds: list[NDArray[np.int64]]) -> dict[str, Figure]:
    p50, p99 = (np.percentile(np.stack(rounds), share, axis=1) / 1e3 for share in (50, 99))
    return {
        "case": case,
        "p50 µs": float(np.median(p50)),
        "p50 min–max": f"{p50.min():,.0f}–{p50.max():,.0f}",
        "p99 µs": float(np.median(p99)),
        "p99 min–max": f"{p99.min():,.0f}–{p99.max():,.0f}",
    }


def main() -> None:
    """Prints the table."""
    path = json_path(str(__doc__))
    found: dict[str, list[NDArray[np.int64]]] = {case: [] for case in _CASES}
    with tempfile.TemporaryDirectory() as name:
        built, nursery = build(Path(name)), Nursery()
        for turn in range(_ROUNDS):
            for at, case in enumerate(_CASES if turn % 2 == 0 else reversed(_CASES)):
                found[case].append(_run(case, built, nursery, Path(name) / f"{turn}{at}"))
        nursery.end()
    title = f"a step of {_LAUNCHES} launches, medians of {_ROUNDS} rounds of {_STEPS} steps, {os.cpu_count()} cores"
    show(title, [_row(case, rounds) for case, rounds in found.items()], path)


if __name__ == "__main__":
    main()

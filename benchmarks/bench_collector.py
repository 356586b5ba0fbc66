"""What the collector costs the traced process: a buffer callback, a record in it, a stamp, its memory.

    python benchmarks/bench_collector.py [--json FILE]

Builds the collector and the tests' imitation of CUPTI with gcc. CUPTI's own cost is left out: there is no GPU. Times
are processor time of the calling thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import Figure, json_path, show  # noqa: E402 - run as a script, its folder is the path
from spanlite.agent.frames import STAMP, Frame  # noqa: E402
from tests.agent.collector.building import Built, build  # noqa: E402
from tests.agent.collector.program import Program, until  # noqa: E402
from tests.agent.collector.recorded import Fired, fired  # noqa: E402
from tests.agent.collector.tap import Tap  # noqa: E402

_TIMES = 10
_RUNS = 5
_PAIRS = 20_000
"""Pushes and pops at a time: all of their stamps fit the ring."""


def _started(program: Program, what: Fired, folder: Path) -> Program:
    names, _ = what.put(folder)
    program.start(names)
    program.ask(f"nvtx {program.built.collector}")
    program.ask("context")
    return program


def _callback(program: Program, what: Fired, folder: Path) -> tuple[float, float]:
    """(µs a buffer, ns a span) of bufferCompleted: the walk over the records and the hand-over; the best run."""
    best = (float("inf"), float("inf"))
    for _ in range(_RUNS):
        program.ask("set callback_ns 0")
        program.ask("set callbacks 0")
        program.ask(f"fire {folder / 'records'} {_TIMES}")
        ns, buffers = program.number("get callback_ns"), program.number("get callbacks")
        spans = buffers * int(program.ask("get buffer_bytes")) / len(what.records) * what.spans
        best = min(best, (ns / buffers / 1e3, ns / spans))
    return best


def _stamp_ns(program: Program, tap: Tap) -> float:
    """A stamp with its name, correlation id and time, into an empty ring; the best run."""
    best = float("inf")
    for run in range(1, _RUNS + 1):
        best = min(best, program.number(f"bench {_PAIRS}") / _PAIRS / 2)
        until(partial(_have_come, tap, run * 2 * _PAIRS), "an empty ring")
    return best


def _have_come(tap: Tap, count: int) -> bool:
    came = sum(len(one) for connection in tap.connections for one in connection.of(Frame.RANGES))
    return came == count * STAMP.itemsize


def _measure(built: Built, folder: Path) -> list[dict[str, Figure]]:
    what = fired("serve-cupti130500", built.arena)
    tap = Tap(folder / "agent.sock")
    rows: list[dict[str, Figure]] = []
    try:
        for kib in (1024, 8192):
            with Program(built, tap.path, SPANLITE_BUFFER_KIB=str(kib), SPANLITE_FLUSH_MS="0") as program:
                buffer_us, span_ns = _callback(_started(program, what, folder), what, folder)
                program.ended_well()
            rows.append({"what": f"bufferCompleted, {kib:,} KiB", "figure": buffer_us, "unit": "µs"})
            rows.append({"what": "… a span in it", "figure": span_ns, "unit": "ns"})
        with Program(built, tap.path) as program:
            _started(program, what, folder)
            rows.append({"what": "a stamp", "figure": _stamp_ns(program, tap), "unit": "ns"})
            program.ended_well()
        with Program(built, tap.path) as program:
            before = _started(program, what, folder).number("rss")
            program.ask(f"fire {folder / 'records'} 20")
            rows.append({"what": "memory, all buffers used", "figure": program.number("rss") - before, "unit": "KiB"})
            program.ended_well()
    finally:
        tap.stop()
    rows.append({"what": "the library, stripped", "figure": _stripped(built), "unit": "KiB"})
    return rows


def _stripped(built: Built) -> int:
    target = built.folder / "stripped.so"
    subprocess.run(["strip", "-o", target, built.collector], check=True)
    return target.stat().st_size >> 10


def main() -> None:
    """Prints the table."""
    path = json_path(str(__doc__))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = _measure(build(folder), folder)
    show(f"the collector in the traced process, {os.cpu_count()} cores", rows, path)


if __name__ == "__main__":
    main()

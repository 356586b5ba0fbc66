"""The collector under the compiler's sanitizers: threads, a hanging agent, forks and the end, without a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.collector.building import build
from tests.agent.collector.program import Program, until
from tests.agent.collector.recorded import fired
from tests.agent.collector.tap import Tap


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_no_race_and_no_bad_access(workshop: Path, place: Path, tmp_path: Path, sanitizer: str) -> None:
    """Eight threads complete buffers and stamps go by, the agent hangs, goes and comes back; nothing is reported."""
    built = build(workshop, sanitizer)
    what = fired("streams-cupti130500", built.arena)
    names, records = what.put(tmp_path)
    tap = Tap(place)
    small = {"SPANLITE_BUFFER_KIB": "64", "SPANLITE_POOL_KIB": "1024", "SPANLITE_HUNG_MS": "100"}
    with Program(built, place, **small) as program:
        program.start(names)
        program.ask(f"nvtx {built.collector}")
        program.ask("context")
        program.ask(f"threads 8 {tmp_path / 'records'} 3")
        program.ask("bench 20000")
        tap.reading.clear()
        program.ask(f"threads 8 {tmp_path / 'records'} 3")
        program.ask("fork")
        until(lambda: len(tap.connections) > 1, "another connection")
        tap.stop()
        for step in ("pause", "resume", "hold 40", records, "release", "flush"):
            program.ask(step)
        tap = Tap(place)
        until(lambda: bool(tap.connections and tap.connections[0].frames), "HELLO to the new agent")
        program.ask(records)
        assert program.end("exit 0") == (0, "")
    tap.stop()

"""The library under the compiler's sanitizers: whole runs and stopped ones, without a report."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spanlite.replay.cuda.ptx import ECHO, busy_text
from tests.replay.cuda.building import build

KERNELS = 70_000
"""More than there is room for at a time."""


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_no_race_and_no_bad_access(workshop: Path, tmp_path: Path, sanitizer: str) -> None:
    """The player's thread launches and reads while kernels are fed, told of, stopped; nothing is reported or leaked."""
    built = build(workshop, sanitizer)
    busy, echo = tmp_path / "busy.ptx", tmp_path / "echo.ptx"
    busy.write_text(busy_text("axpy", 32))
    echo.write_text(ECHO)
    for kernels, stop in ((4000, 1 << 40), (KERNELS, 3000)):
        words: list[str | Path] = [built.driver, built.cuda, busy, echo, str(kernels), str(stop)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=120, env={"MOCK_OFFSET": "-7"}
        )
        assert (done.returncode, done.stderr) == (0, "")
        launched, started, told = map(int, done.stdout.split())
        assert launched == started == told
        assert min(stop, kernels) <= launched <= kernels

"""Builds the counters library and the imitations of libcupti and libcuda, and runs scenarios with them.

A scenario runs in a process of its own: libraries of those names, once loaded, would be found by other tests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spanlite.runtime import settings

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SOURCES = ROOT / "agent" / "native" / "counters"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


@dataclass(frozen=True)
class Built:
    """Where the library lies, and beside it the imitations."""

    folder: Path
    sanitizer: str = ""

    @property
    def library(self) -> Path:
        return self.folder / self.sanitizer / "libspanlite_counters.so"

    @property
    def cupti(self) -> Path:
        return self.folder / "libcupti.so.13"

    def environment(self, **more: str) -> dict[str, str]:
        """What a process needs to find them."""
        return {**settings.inherited(), "LD_LIBRARY_PATH": str(self.folder), **more}

    def scenario(self, name: str, *, module: str = "scenarios", **more: str) -> dict[str, Any]:
        """What a function of scenarios.py, or of another module, returns in a process of its own."""
        words = [sys.executable, "-m", f"tests.agent.counters.{module}", name, str(self.library), str(self.cupti)]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=self.environment(**more)
        )
        assert done.returncode == 0, done.stderr
        assert "VIOLATION" not in done.stderr, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said


@cache
def build(folder: Path, sanitizer: str = "") -> Built:
    """Builds everything into a folder; skips the test where there is no compiler, or none with that sanitizer."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("needs gcc and make")
    made = ["make", "-C", str(SOURCES), "CC=gcc", f"BUILD={folder}", f"SANITIZE={sanitizer}"]
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    if sanitizer and "cannot find" in done.stderr:
        pytest.skip(f"needs gcc's {sanitizer} sanitizer")
    assert done.returncode == 0, done.stderr
    for source, target in (("mock_pm.c", "libcupti.so.13"), ("mock_driver.c", "libcuda.so.1")):
        words = ["gcc", *_FLAGS, str(HERE / source), f"-Wl,-soname,{target}", "-o", str(folder / target)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return Built(folder, sanitizer)

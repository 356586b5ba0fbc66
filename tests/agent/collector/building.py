"""Builds the collector, the imitations of libcupti and libcuda, and the program that plays a traced process.

Two programs: in C, traced by the native collector, and in Python, traced by the twin.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "agent" / "native"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Built:
    """What was built, and how.

    Attributes:
        sanitizer: thread, address or nothing; of the collector and the driver.
        twin: the program is the one in Python.
    """

    folder: Path
    sanitizer: str = ""
    twin: bool = False

    @property
    def collector(self) -> Path:
        return self.folder / "libspanlite_collector.so"

    @property
    def cupti(self) -> Path:
        return self.folder / "libcupti.so.13"

    @property
    def cuda(self) -> Path:
        return self.folder / "libcuda.so.1"

    @property
    def driver(self) -> list[str | Path]:
        """The words that start the program."""
        return [sys.executable, HERE / "driver.py"] if self.twin else [self.folder / "driver"]

    @property
    def executable(self) -> str:
        """The program's name, as it tells it."""
        return Path(sys.executable).resolve().name if self.twin else "driver"

    @property
    def arena(self) -> int:
        """An address at which nothing else lies; each sanitizer leaves other ranges to programs."""
        return 0x40_0000_0000 if self.sanitizer == "thread" else 0x2000_0000_0000


@cache
def build(folder: Path, sanitizer: str = "") -> Built:
    """Builds everything into a folder; skips the test where there is no compiler, or none with that sanitizer."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("needs gcc and make")
    sanitize = [f"-fsanitize={sanitizer}"] if sanitizer else []
    make = ["make", "-C", str(SOURCES), "CC=gcc", f"BUILD={folder}", f"SANITIZE={sanitizer}"]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    if sanitizer and "cannot find" in done.stderr:
        pytest.skip(f"needs gcc's {sanitizer} sanitizer")
    assert done.returncode == 0, done.stderr
    built = Built(folder / sanitizer, sanitizer)
    library(HERE / "mock_cupti.c", built.cupti)
    library(HERE / "mock_cuda.c", built.cuda)
    _gcc(*sanitize, HERE / "driver.c", "-o", *built.driver, "-ldl", "-lpthread")
    return built


def library(source: Path, target: Path, *flags: str) -> Path:
    """A shared library whose own name is that of its file."""
    _gcc(source, "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-o", target, "-ldl", "-lpthread", *flags)
    return target


def _gcc(*arguments: str | Path) -> None:
    done = subprocess.run(["gcc", *_FLAGS, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

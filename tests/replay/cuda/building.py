"""Builds what re-enacts kernels, the imitation of libcuda, and the program for the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "replay" / "native"
_FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wshadow", f"-I{SOURCES}", "-pthread")


@dataclass(frozen=True)
class Built:
    """Where what was built lies."""

    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / "libspanlite_enact.so"

    @property
    def cuda(self) -> Path:
        return self.folder / "libcuda.so.1"

    @property
    def old_cuda(self) -> Path:
        """That of a driver which lacks a function."""
        return self.folder / "libcuda.so.old"

    @property
    def driver(self) -> Path:
        return self.folder / "driver"


@cache
def build(folder: Path, sanitizer: str = "") -> Built:
    """Builds everything into a folder; skips the test where there is no compiler, or none with that sanitizer."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("needs gcc and make")
    make = ["make", "-C", str(SOURCES), "CC=gcc", f"BUILD={folder}", f"SANITIZE={sanitizer}"]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    if sanitizer and "cannot find" in done.stderr:
        pytest.skip(f"needs gcc's {sanitizer} sanitizer")
    assert done.returncode == 0, done.stderr
    built = Built(folder / sanitizer)
    flags = [f"-fsanitize={sanitizer}"] if sanitizer else []
    mock: list[str | Path] = [
        *flags,
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        HERE / "mock_cuda.c",
        HERE / "mock_stream.c",
        "-o",
    ]
    _gcc(*mock, built.cuda)
    if sanitizer:
        _gcc(*flags, HERE / "driver.c", built.library, "-o", built.driver)
    else:
        _gcc("-DOLD_DRIVER", *mock, built.old_cuda)
    return built


def _gcc(*arguments: str | Path) -> None:
    done = subprocess.run(["gcc", *_FLAGS, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

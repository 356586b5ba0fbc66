"""What is loaded, and what is said where it cannot be."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

import pytest

from spanlite.native.library import BUILT, SOURCE, load


def compiled(folder: Path, source: str) -> Path:
    """A shared library."""
    path = folder / "_kernels.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(path)], input=source, text=True, check=True)
    return path


def test_the_built_library_loads(caplog: pytest.LogCaptureFixture) -> None:
    """Every function that is declared is in it."""
    assert load(BUILT) is not None
    assert caplog.messages == []


def test_the_source_compiles_without_a_warning(tmp_path: Path) -> None:
    """Strict flags, as a file of its own."""
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
    subprocess.run(["cc", *flags, "-c", str(SOURCE), "-o", str(tmp_path / "kernels.o")], check=True)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "cannot be used (.*undefined symbol: spanlite_revision"),
        ("long long spanlite_revision(void) { return 0; }", "is of another version"),
        (None, "cannot be used (.*file too short"),
    ],
)
def test_what_does_not_fit_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str | None, said: str
) -> None:
    """Another library, one of another version, half a file: a warning that names it, and numpy goes on."""
    path = tmp_path / "_kernels.so"
    if source is None:
        path.write_bytes(b"\x7fELF")
    else:
        compiled(tmp_path, source)
    with caplog.at_level(logging.WARNING):
        assert load(path) is None
    (message,) = caplog.messages
    assert message.startswith(str(path))
    assert "numpy takes its place" in message
    assert said.partition("(.*")[0] in message
    assert said.rpartition("(.*")[2] in message


def test_a_missing_library_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where there was no compiler."""
    with caplog.at_level(logging.WARNING):
        assert load(tmp_path / "_kernels.so") is None
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path / '_kernels.so'} is not built, numpy takes its place")
    assert message.endswith("install a C compiler and spanlite again")

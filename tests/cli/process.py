"""The command in a process of its own, and what lies in a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


def spanlite(*words: str | Path, text: bool = True, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Runs the command in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "spanlite", *map(str, words)],
        capture_output=True,
        text=text,
        timeout=60,
        check=False,
        **options,
    )


def tree(folder: Path) -> dict[str, int | None]:
    """Everything below a folder: sizes of files, None for folders."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.stat().st_size for path in folder.rglob("*")}


def refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """A failure of one line, not a traceback, that says all of these."""
    assert done.returncode in (1, 2), done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("spanlite: ")
    assert "Traceback" not in lines[0]
    assert [text for text in said if text not in lines[0]] == [], lines[0]


def file_of(folder: Path, name: str, data: bytes) -> Path:
    """A file of these bytes in the folder."""
    path = folder / name
    path.write_bytes(data)
    return path


def folder_named(folder: Path, name: str) -> Path:
    """An empty folder in the folder."""
    path = folder / name
    path.mkdir()
    return path

"""Files that are there whole or not at all, and progress for people."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from spanlite.contract.errors import ArchiveError, UsageError
from spanlite.contract.points import Point, point_json


@contextlib.contextmanager
def whole_file(path: Path, *, binary: bool = False) -> Iterator[Any]:
    """A file to write to that gets its name only when all went well; `-` is standard output.

    Raises:
        UsageError: the folder is not there or not writable.
    """
    if str(path) == "-":
        yield sys.stdout.buffer if binary else sys.stdout
        return
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb" if binary else "w", encoding=None if binary else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}; choose another file") from error
    finally:
        part.unlink(missing_ok=True)


def write_points(stream: Any, points: Iterable[Point]) -> None:
    """One JSON line a point."""
    for point in points:
        stream.write(json.dumps(point_json(point)) + "\n")


@contextlib.contextmanager
def staged_archive(root: Path) -> Iterator[Path]:
    """A folder inside the archive whose files move to their places only when all went well.

    Its name starts with a dot, so no reader of the archive sees it.

    Raises:
        ArchiveError: the archive is not writable.
    """
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    staging = root / f".staging-{os.getpid()}"
    try:
        staging.mkdir(parents=True)
    except OSError as error:
        raise ArchiveError(
            f"{root}: cannot write ({error}); choose another folder or correct the permissions"
        ) from error
    published = False
    try:
        yield staging
        for file in sorted(staging.rglob("*.parquet")):
            target = root / file.relative_to(staging)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
        published = True
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        for folder in made if not published else ():
            with contextlib.suppress(OSError):  # somebody else has put something there
                folder.rmdir()


def progress_bar(label: str, *, quiet: bool) -> Callable[[int, int], None]:
    """A function to call with (done, all); draws on stderr, and only on a terminal."""
    if quiet or not sys.stderr.isatty():
        return lambda _done, _all: None
    width = 30

    def draw(done: int, total: int) -> None:
        share = done / total if total else 1.0
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r{label[:40]:40} [{'#' * round(share * width):{width}}] {share:4.0%}{end}")
        sys.stderr.flush()

    return draw

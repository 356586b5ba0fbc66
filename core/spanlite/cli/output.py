"""Files that are there whole or not at all, and progress for people."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from spanlite.contract.errors import ArchiveError, UsageError
from spanlite.contract.points import Point, point_json
from spanlite.pipeline.archive.local import sync_folder

_STAGING = ".staging-"


@contextlib.contextmanager
def whole_file(path: Path, *, binary: bool = False) -> Iterator[Any]:
    """A file to write to that gets its name only when all went well; `-` is standard output.

    What is no regular file (a pipe, a device) cannot be replaced and is written to as it is.

    Raises:
        UsageError: the folder is not there or not writable, or the name is that of a folder.
    """
    if str(path) == "-":
        yield sys.stdout.buffer if binary else sys.stdout
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        direct = path.exists() and not path.is_file()
        with (path if direct else part).open("wb" if binary else "w", encoding=None if binary else "utf-8") as stream:
            yield stream
            stream.flush()
            if not direct:
                os.fsync(stream.fileno())
        if not direct:
            part.replace(path)
    except BrokenPipeError:  # of standard output, which another file shares the run with
        raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another file") from error
    finally:
        with contextlib.suppress(OSError):  # it was never made, or has its name
            part.unlink()


def write_points(stream: Any, points: Iterable[Point]) -> None:
    """One JSON line a point."""
    for point in points:
        stream.write(json.dumps(point_json(point)) + "\n")


@contextlib.contextmanager
def staged_archive(root: Path) -> Iterator[Path]:
    """A folder inside the archive whose files move to their places only when all went well.

    Its name starts with a dot, so no reader of the archive sees it. What a killed run has left there is swept.

    Raises:
        ArchiveError: the archive is not writable.
    """
    with contextlib.ExitStack() as stack:
        try:
            for folder in reversed(_missing(root)):
                folder.mkdir(exist_ok=True)
                stack.callback(_remove_if_empty, folder)
            staging = _claim_staging(root, stack)
        except OSError as error:
            raise _unwritable(root, error) from error
        yield staging
        try:
            _publish(staging, root)
        except OSError as error:
            raise _unwritable(root, error) from error


def _missing(root: Path) -> list[Path]:
    """The folders to make, deepest first."""
    return [folder for folder in (root, *root.parents) if not folder.exists()]


def _claim_staging(root: Path, stack: contextlib.ExitStack) -> Path:
    """A staging folder, locked while its process lives; those whose process is gone are removed.

    The archive's own lock lies around it, so that nobody sweeps a folder that is made but not locked yet.
    """
    with _locked(root):
        for left in root.glob(f"{_STAGING}*"):
            with contextlib.suppress(OSError), _locked(left, wait=False):
                shutil.rmtree(left, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=root))
        stack.callback(shutil.rmtree, staging, ignore_errors=True)
        stack.enter_context(_locked(staging))
    return staging


@contextlib.contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:  # in use, or a file system without locks
            if not wait:
                raise
        yield
    finally:
        os.close(handle)


def _publish(staging: Path, root: Path) -> None:
    """Moves the files; all folders are made before the first one moves, so that most trouble comes in time."""
    files = sorted(staging.rglob("*.parquet"))
    targets = [root / file.relative_to(staging) for file in files]
    folders = {target.parent for target in targets}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for file, target in zip(files, targets, strict=True):
        file.replace(target)
    for folder in folders:
        sync_folder(folder)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it holds the archive, or what somebody else has put there
        folder.rmdir()


def _unwritable(root: Path, error: OSError) -> ArchiveError:
    return ArchiveError(
        f"{root}: cannot hold an archive ({error.strerror}); choose another folder or correct the permissions"
    )


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

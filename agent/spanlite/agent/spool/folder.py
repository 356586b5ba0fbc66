"""The spool's folder: its lock, what lies in it, and the quarantine for files that cannot be read."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from spanlite.agent.spool.files import Files
from spanlite.agent.spool.segment import SUFFIX
from spanlite.contract.errors import UsageError

log = logging.getLogger(__name__)

LOCK = "lock"
QUARANTINE = "quarantine"
PROBE = "probe.tmp"
MOST_QUARANTINED_FILES = 16
MOST_QUARANTINED_BYTES = 64 << 20
_NAME = re.compile(r"[0-9]{20}" + re.escape(SUFFIX))


class Folder:
    """A folder that this process alone works in, until it is closed."""

    def __init__(self, path: Path, files: Files) -> None:
        """Makes the folder if need be, and takes its lock.

        Raises:
            UsageError: another process has it.
            OSError: it can be neither made nor locked.
        """
        self.path = path
        self._files = files
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock_fd = self._lock()

    def _lock(self) -> int:
        path = self.path / LOCK
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            writable = True
        except OSError:  # a file system that was made read-only still has the file of an earlier run
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            writable = False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise UsageError(
                f"{self.path}: the spool is in use by process {said or 'unknown'}; "
                "stop that agent, or give this one a --spool of its own"
            ) from None
        if writable:
            with suppress(OSError):  # the pid is for people; the lock holds without it
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def close(self) -> None:
        """Gives the lock back."""
        os.close(self._lock_fd)

    def segments(self) -> list[Path]:
        """Files that are named like segments, in the order of their sequences; anything else is left alone."""
        found: list[Path] = []
        for entry in sorted(self.path.iterdir()):
            regular = stat.S_ISREG(entry.lstat().st_mode)
            if _NAME.fullmatch(entry.name) and regular:
                found.append(entry)
            elif entry.name not in (LOCK, QUARANTINE, PROBE, "cursor", "cursor.tmp"):
                log.warning("spool: %s is none of the spool's files and left alone", entry)
        return found

    def quarantine(self, path: Path, reason: str) -> bool:
        """Moves a file aside under its name and the reason; False where that cannot be done."""
        try:
            target = self._free_name(path.name, reason)
            self._files.replace(path, target)
            self._prune()
        except OSError as error:
            log.warning("spool: %s cannot be put into quarantine (%s): %s", path, reason, error)
            return False
        log.warning("spool: %s cannot be read (%s); it is kept as %s", path, reason, target)
        return True

    def keep(self, data: bytes, name: str, reason: str) -> bool:
        """Keeps bytes that are about to be cut off a file; False where that cannot be done."""
        try:
            target = self._free_name(name, reason)
            fd = self._files.create(target)
            try:
                self._files.write_all(fd, data)
            finally:
                os.close(fd)
            self._prune()
        except OSError as error:
            log.warning("spool: %d bytes cut off %s cannot be kept: %s", len(data), name, error)
            return False
        return True

    def _free_name(self, name: str, reason: str) -> Path:
        folder = self.path / QUARANTINE
        folder.mkdir(mode=0o700, exist_ok=True)
        target = folder / f"{name}.{reason}"
        number = 1
        while os.path.lexists(target):
            target = folder / f"{name}.{reason}.{number}"
            number += 1
        return target

    def quarantined(self) -> list[Path]:
        """What lies in quarantine, oldest first."""
        folder = self.path / QUARANTINE
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(folder.iterdir(), key=lambda path: path.lstat().st_mtime_ns)
        return []

    def _prune(self) -> None:
        """Removes the oldest until number and bytes are within their bounds."""
        kept = self.quarantined()
        size = sum(path.lstat().st_size for path in kept)
        for path in kept:
            if len(kept) <= MOST_QUARANTINED_FILES and size <= MOST_QUARANTINED_BYTES:
                break
            size -= path.lstat().st_size
            path.unlink()
            kept = kept[1:]

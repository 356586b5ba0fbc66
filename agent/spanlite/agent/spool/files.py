"""What the spool asks of the file system, in one place: tests put faulty ones here."""

from __future__ import annotations

import os
from pathlib import Path


class Files:
    """Raw calls that do all or raise OSError."""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """One write(2), which may take less than it was given."""
        return os.write(fd, data)

    def write_all(self, fd: int, data: bytes) -> None:
        """Writes all of it. A full disk makes a write short first and only then an error, so it asks again."""
        view = memoryview(data)
        while view:
            written = self.write(fd, view)
            if written == 0:
                raise OSError("a write took nothing")
            view = view[written:]

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def create(self, path: Path) -> int:
        """A new file to write to."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def read_at(self, fd: int, size: int, at: int) -> bytes:
        """Up to `size` bytes at an offset; less only at the file's end."""
        parts: list[bytes] = []
        while size > 0 and (part := os.pread(fd, size, at)):
            parts.append(part)
            size -= len(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync_folder(self, folder: Path) -> None:
        """Makes names in a folder durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

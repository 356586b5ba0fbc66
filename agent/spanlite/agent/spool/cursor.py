"""How far the spool is acknowledged, in a small file of its own that is replaced as a whole.

    magic      8 bytes  "SPLCURSR"
    version    u16      1
    lost       u16      number of entries behind
    sequence   u64      the first that is not acknowledged
    spans      u64      of all records before it
    entries    3 × u64  first, end, spans of records behind it that were lost and counted: they are not counted again
    crc        u32      CRC-32 of all before

All integers are little-endian.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from zlib import crc32

from spanlite.agent.spool.files import Files

NAME = "cursor"
_MAGIC = b"SPLCURSR"
_VERSION = 1
_BODY = struct.Struct("<8sHHQQ")
_LOST = struct.Struct("<QQQ")
_CRC = struct.Struct("<I")
_MOST_LOST = 1000
"""Entries that are kept; of more, the later ones may be counted again."""
_MOST_BYTES = _BODY.size + _MOST_LOST * _LOST.size + _CRC.size


class Position(NamedTuple):
    """The first sequence that is not acknowledged, and the spans of all before it."""

    sequence: int
    spans: int


START = Position(1, 0)
"""Of a spool that has never held anything."""


class Lost(NamedTuple):
    """Records [first, end) that are lost, and their spans."""

    first: int
    end: int
    spans: int


class Saved(NamedTuple):
    """What the file says."""

    position: Position
    lost: tuple[Lost, ...] = ()


class CursorFile:
    """Writes positions that only rise; any thread may write."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._lock = Lock()
        self.written = Saved(Position(0, 0))
        """What stands in the file."""

    def read(self) -> Saved | None:
        """What it says; None where there is no file.

        Raises:
            ValueError: it is damaged, or of another version.
            OSError: it cannot be read.
        """
        path = self._folder / NAME
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            data = self._files.read_at(fd, _MOST_BYTES + 1, 0)
        finally:
            os.close(fd)
        body = data[: -_CRC.size]
        if not _BODY.size <= len(body) <= _MOST_BYTES or data[-_CRC.size :] != _CRC.pack(crc32(body)):
            raise ValueError(f"{path} is damaged")
        magic, version, count, sequence, spans = _BODY.unpack_from(body)
        if magic != _MAGIC or version != _VERSION or len(body) != _BODY.size + count * _LOST.size:
            raise ValueError(f"{path} is of version {version}, or another program's; this agent writes {_VERSION}")
        lost = tuple(Lost(*entry) for entry in _LOST.iter_unpack(body[_BODY.size :]))
        self.written = Saved(Position(sequence, spans), lost)
        return self.written

    def write(self, saved: Saved, *, sync: bool) -> None:
        """Replaces the file, unless it says as much already.

        Raises:
            OSError: the old one stands.
        """
        with self._lock:
            if saved.position < self.written.position or saved == self.written:
                return
            lost = saved.lost[:_MOST_LOST]
            body = _BODY.pack(_MAGIC, _VERSION, len(lost), *saved.position)
            body += b"".join(_LOST.pack(*entry) for entry in lost)
            fresh = self._folder / f"{NAME}.tmp"
            fresh.unlink(missing_ok=True)
            fd = self._files.create(fresh)
            try:
                self._files.write_all(fd, body + _CRC.pack(crc32(body)))
                if sync:
                    self._files.fsync(fd)
            finally:
                os.close(fd)
            self._files.replace(fresh, self._folder / NAME)
            if sync:
                self._files.sync_folder(self._folder)
            self.written = saved

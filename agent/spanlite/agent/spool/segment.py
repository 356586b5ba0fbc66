"""One file of the spool: what is known of it, appending to it, and reading from it in order."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spanlite.agent.outlet import Item
from spanlite.agent.spool.files import Files
from spanlite.agent.spool.records import (
    RECORD_BYTES,
    SEGMENT_BYTES,
    RecordHead,
    find_records,
    pack_record,
    pack_segment,
    read_body,
    read_head,
)

SUFFIX = ".seg"
_MARK_EVERY = 256 << 10


class Mark(NamedTuple):
    """Where a record stands; one every 256 KiB or so, so that a file need not be read from its start."""

    sequence: int
    at: int
    timestamp_ms: int


@dataclass(slots=True)
class Segment:
    """What is known of a file.

    Attributes:
        first, end: sequences of its first record and after its last one.
        spans_before, spans_end: spans of all records before it, and up to its end, since the spool began.
        size: bytes it takes on disk.
    """

    path: Path
    first: int
    spans_before: int
    end: int
    spans_end: int
    size: int
    marks: list[Mark] = field(default_factory=list)

    def note(self, head: RecordHead, at: int) -> None:
        """Takes in that a record stands at an offset, behind all others."""
        if not self.marks or at - self.marks[-1].at >= _MARK_EVERY:
            self.marks.append(Mark(head.sequence, at, head.timestamp_ms))
        self.end = head.sequence + 1
        self.spans_end = head.spans_end

    def mark_before(self, sequence: int) -> Mark | None:
        """The last mark at or before a sequence."""
        found = bisect_right(self.marks, sequence, key=lambda mark: mark.sequence)
        return self.marks[found - 1] if found else None


def segment_path(folder: Path, first: int) -> Path:
    """Names sort like sequences."""
    return folder / f"{first:020d}{SUFFIX}"


class Writer:
    """Appends to a new segment. After an error the file ends with its last whole record, if it can be cut at all."""

    def __init__(self, files: Files, folder: Path, first: int, spans_before: int) -> None:
        """Raises: OSError: there is no file then."""
        self._files = files
        path = segment_path(folder, first)
        self.fd = files.create(path)
        try:
            files.write_all(self.fd, pack_segment(first, spans_before))
        except OSError:
            os.close(self.fd)
            with suppress(OSError):  # a header without records is swept at the next start
                path.unlink()
            raise
        self.segment = Segment(path, first, spans_before, first, spans_before, SEGMENT_BYTES)

    def append(self, item: Item, *, sync: bool) -> None:
        """Adds one record as the next sequence; with `sync` it is on the disk when this returns.

        Raises:
            OSError: it is not in the file.
        """
        segment = self.segment
        record = pack_record(item, segment.end, segment.spans_end)
        try:
            self._files.write_all(self.fd, record)
            if sync:
                self._files.fsync(self.fd)
        except OSError:
            with suppress(OSError):  # recovery cuts what is left
                self._files.truncate(self.fd, segment.size)
            raise
        head = read_head(record)
        assert head is not None  # noqa: S101  # packed just above
        segment.note(head, segment.size)
        segment.size += len(record)


class Gap(NamedTuple):
    """Records that cannot be read: all before `end`, whose spans_before is `spans_end`."""

    end: int
    spans_end: int


class Reader:
    """Reads records by sequence, quickly where they follow each other."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._fd = -1
        self._path: Path | None = None
        self._at = 0
        self._sequence = 0

    def close(self) -> None:
        """Lets go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, None

    def read(self, segment: Segment, sequence: int) -> Item | Gap:
        """A record of a segment, or how far it is damaged from there.

        Raises:
            OSError: the file cannot be read.
        """
        self._seek(segment, sequence)
        while True:
            head = read_head(self._files.read_at(self._fd, RECORD_BYTES, self._at))
            if head is None or head.sequence != self._sequence:
                resumed = self._resume(segment)
                if resumed is None:
                    return Gap(segment.end, segment.spans_end)
                if resumed.sequence > sequence:
                    return Gap(resumed.sequence, resumed.spans_before)
                continue
            at, self._at = self._at, self._at + head.size
            self._sequence += 1
            if head.sequence == sequence:
                item = read_body(head, self._files.read_at(self._fd, head.length, at + RECORD_BYTES))
                if item is None:
                    if read_head(self._files.read_at(self._fd, RECORD_BYTES, self._at)) is None:
                        self._at = at + RECORD_BYTES  # bytes may be missing: the next record is looked for
                    return Gap(sequence + 1, head.spans_end)
                return item

    def _seek(self, segment: Segment, sequence: int) -> None:
        if self._path != segment.path:
            self.close()
            self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            self._path = segment.path
        elif self._sequence <= sequence:
            return
        mark = segment.mark_before(sequence)
        self._at, self._sequence = (mark.at, mark.sequence) if mark else (SEGMENT_BYTES, segment.first)

    def _resume(self, segment: Segment) -> RecordHead | None:
        """Goes to the next header that checks; None at the end of the segment."""
        rest = self._files.read_at(self._fd, max(segment.size - self._at, 0), self._at)
        for placed in find_records(rest, 0, sequence=self._sequence, spans=0):
            if placed.head.sequence >= segment.end:
                break
            self._at += placed.at
            self._sequence = placed.head.sequence
            return placed.head
        return None

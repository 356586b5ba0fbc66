"""Opening a spool that another run left: what is still there, what is lost, and what is put aside.

Recovery never fails over what a file holds. Each record has its sequence and the spans before it, so what lies between
two readable places is known exactly, in records and in spans, whatever became of the bytes; only what was lost behind
the last readable record can be counted no better than "at least one record".
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spanlite.agent.spool.cursor import START, CursorFile, Lost, Position, Saved
from spanlite.agent.spool.files import Files
from spanlite.agent.spool.folder import Folder
from spanlite.agent.spool.records import (
    RECORD_BYTES,
    SEGMENT_BYTES,
    VERSION,
    Placed,
    SegmentHead,
    find_records,
    read_segment,
)
from spanlite.agent.spool.segment import Segment

log = logging.getLogger(__name__)

MOST_SEGMENT_BYTES = 64 << 20
"""A larger file is none of ours: it is put aside unread."""


class Loss(NamedTuple):
    """Records [first, end) that cannot be read."""

    first: int
    end: int
    spans: int
    reason: str


@dataclass(slots=True)
class Recovered:
    """What an opened spool starts from.

    Attributes:
        segments: files with records, by sequence.
        position: the first sequence that is not acknowledged, and the spans before it.
        end: the next sequence to give, and the spans before it.
        known: what is missing from position to end, and was counted by an earlier run.
        losses: all that is missing from position to end.
        unknown: reason → records lost of which nothing else is known, at least.
        faults: kind → how often it was found.
    """

    segments: list[Segment] = field(default_factory=list)
    position: Position = START
    end: Position = START
    known: tuple[Lost, ...] = ()
    losses: list[Loss] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


def recover(folder: Folder, files: Files, cursor: CursorFile) -> Recovered:
    """Reads everything once, cuts torn tails, puts aside what cannot be read.

    Raises:
        OSError: the folder cannot be listed.
    """
    found = Recovered()
    saved: Saved | None = None
    try:
        saved = cursor.read()
    except (OSError, ValueError) as error:
        found.faults["cursor"] += 1
        log.warning("spool: %s; everything that is on disk is sent again", error)
    paths = folder.segments()
    found.known = saved.lost if saved else ()
    walk = _Walk(folder, files, found, saved.position if saved else None)
    for number, path in enumerate(paths, 1):
        walk.take(path, last=number == len(paths))
    walk.finish()
    return found


class _Walk:
    """Goes through the files in order; `at` is what must come next."""

    def __init__(self, folder: Folder, files: Files, found: Recovered, cursor: Position | None) -> None:
        self._folder = folder
        self._files = files
        self._found = found
        self._cursor = cursor
        self._start = cursor
        self._at = cursor
        self._why = "spool_missing"
        self._unread: list[str] = []
        self._end = 0

    def take(self, path: Path, *, last: bool) -> None:
        """One file."""
        try:
            data = self._read(path)
        except OSError as error:
            log.warning("spool: %s cannot be read: %s", path, error)
            self._set_aside(path, "unreadable")
            return
        head = read_segment(data)
        first = int(path.name.partition(".")[0])
        if not data:
            self._found.faults["empty_file"] += 1
            self._remove(path)
        elif len(data) > MOST_SEGMENT_BYTES:
            self._set_aside(path, "oversized")
        elif head is not None and head.version != VERSION:
            self._set_aside(path, "version")
        elif head is not None and head.first != first:
            self._set_aside(path, "misnamed")
        elif first < self._end:
            self._set_aside(path, "overlapping")
        else:
            self._records(path, data, head, last=last)

    def _read(self, path: Path) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return self._files.read_at(fd, MOST_SEGMENT_BYTES + 1, 0)
        finally:
            os.close(fd)

    def _records(self, path: Path, data: bytes, head: SegmentHead | None, *, last: bool) -> None:
        first = int(path.name.partition(".")[0])
        spans = head.spans_before if head else 0
        placed = list(find_records(data, SEGMENT_BYTES if head else 0, sequence=first, spans=spans))
        whole = [one for one in placed if one.whole]
        if head:
            self._reach(Position(first, spans))
        else:
            self._found.faults["segment_header"] += 1
        self._why = "spool_corrupt"
        end = whole[-1].end if whole else SEGMENT_BYTES
        rest = data[end:]
        torn = last and _torn(rest, end, placed)
        if self._at is None and placed:
            self._found.unknown["spool_corrupt"] += placed[0].head.sequence - first
        for one in placed:
            self._place(one, torn=torn and one is placed[-1])
        if rest:
            self._found.faults["torn_tail" if torn else "damage"] += 1
            if last and (not placed or placed[-1].whole):
                self._found.unknown["spool_torn" if torn else "spool_corrupt"] += 1
        if whole:
            self._found.segments.append(self._segment(path, whole, size=len(data)))
            self._end = whole[-1].head.sequence + 1
            if rest:
                self._cut(path, rest, torn=torn)
        elif torn or not rest:
            self._remove(path)
        else:
            self._folder.quarantine(path, "corrupt")
        if not rest:
            self._why = "spool_missing"

    def _place(self, one: Placed, *, torn: bool) -> None:
        head = one.head
        if self._at is not None and self._at.sequence < head.sequence:
            self._found.faults["damage"] += 1
        self._reach(Position(head.sequence, head.spans_before))
        if not one.whole:
            self._found.faults["damage"] += not torn
            self._reach(Position(head.sequence + 1, head.spans_end), "spool_torn" if torn else "spool_corrupt")
        elif self._at is not None and self._at.sequence <= head.sequence:
            self._at = Position(head.sequence + 1, head.spans_end)

    def _reach(self, position: Position, why: str | None = None) -> None:
        """All before a position is lost as far as it was not met and is not acknowledged."""
        if self._at is None:
            self._start = self._at = position
        lost = position.sequence - self._at.sequence
        if lost > 0:
            spans = max(position.spans - self._at.spans, 0)
            self._found.losses.append(Loss(self._at.sequence, position.sequence, spans, why or self._why))
            self._at = position
            self._unread.clear()

    def _segment(self, path: Path, whole: list[Placed], *, size: int) -> Segment:
        first = whole[0].head
        segment = Segment(path, first.sequence, first.spans_before, first.sequence, first.spans_before, size)
        for one in whole:
            segment.note(one.head, one.at)
        return segment

    def _cut(self, path: Path, rest: bytes, *, torn: bool) -> None:
        segment = self._found.segments[-1]
        if not torn:
            self._folder.keep(rest, path.name, "corrupt")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                self._files.truncate(fd, segment.size - len(rest))
            finally:
                os.close(fd)
        except OSError as error:
            log.warning("spool: %s cannot be cut to its last whole record: %s", path, error)
        else:
            segment.size -= len(rest)

    def _set_aside(self, path: Path, reason: str) -> None:
        self._found.faults[f"{reason}_file"] += 1
        self._why = f"spool_{reason}"
        self._unread.append(self._why)
        self._folder.quarantine(path, reason)

    def _remove(self, path: Path) -> None:
        with suppress(OSError):  # a read-only file system: the next start tries again
            path.unlink()

    def finish(self) -> None:
        """Draws the line: where to go on, and what is acknowledged as a whole."""
        found = self._found
        found.unknown.update(self._unread)
        found.position = self._start or START
        found.end = max(found.position, self._at or found.position)
        for one in found.known:  # what was cut off the end keeps its numbers, as long as what was before it is there
            if one.first == found.end.sequence:
                found.end = Position(one.end, found.end.spans + one.spans)
        found.known = tuple(one for one in found.known if one.end <= found.end.sequence)
        for segment in [one for one in found.segments if one.end <= found.position.sequence]:
            self._remove(segment.path)
            found.segments.remove(segment)


def _torn(rest: bytes, at: int, placed: list[Placed]) -> bool:
    """Whether the bytes from `at`, behind the last whole record, are what a write leaves that was cut short: a part of
    one record, or the zeros of a file that grew before its content came."""
    if placed and not placed[-1].whole:
        return placed[-1].at == at and placed[-1].end > at + len(rest)
    return len(rest) < RECORD_BYTES or not any(rest)

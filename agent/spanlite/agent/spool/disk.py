"""The spool's files while it runs: appending, reading, deleting, making durable."""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Lock

from spanlite.agent.outlet import Item
from spanlite.agent.spool.cursor import CursorFile, Position, Saved
from spanlite.agent.spool.files import Files
from spanlite.agent.spool.folder import PROBE, Folder
from spanlite.agent.spool.records import SEGMENT_BYTES, record_size
from spanlite.agent.spool.recovery import Recovered, recover
from spanlite.agent.spool.segment import Gap, Reader, Segment, Writer
from spanlite.agent.spool.settings import Fsync, SpoolSettings

log = logging.getLogger(__name__)

_PROBE_BYTES = 64 << 10


class Disk:
    """Segments of one folder. Its owner lets one thread in at a time; `sync` alone may run beside the others."""

    def __init__(self, path: Path, files: Files, settings: SpoolSettings) -> None:
        """Locks the folder and reads what is there (`recovered`).

        Raises:
            UsageError: another process works in it.
            OSError: it cannot be used at all.
        """
        self._files = files
        self._fsync = settings.fsync
        self._segment_bytes = settings.file_bytes
        self._folder = Folder(path, files)
        try:
            self._cursor = CursorFile(files, path)
            self.recovered: Recovered = recover(self._folder, files, self._cursor)
        except OSError:
            self._folder.close()
            raise
        self.segments = self.recovered.segments
        self.faults: Counter[str] = Counter()
        self._reader = Reader(files)
        self._writer: Writer | None = None
        self._unsynced: list[int] = []
        self._names_changed = False
        self._synced = (-1, 0)
        self._sync_lock = Lock()

    @property
    def bytes(self) -> int:
        """Of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def quarantined(self) -> int:
        """Files in quarantine."""
        return len(self._folder.quarantined())

    def needed(self, item: Item) -> int:
        """Bytes that appending an item takes."""
        size = record_size(item)
        return size if self._has_room(size) else size + SEGMENT_BYTES

    def _has_room(self, size: int) -> bool:
        return self._writer is not None and self._writer.segment.size + size <= self._segment_bytes

    def append(self, item: Item, position: Position) -> None:
        """Writes an item as the record at a position.

        Raises:
            OSError: it is not on disk; the next one goes to a new file.
        """
        writer = self._writer
        if writer is None or not self._has_room(record_size(item)) or writer.segment.end != position.sequence:
            self._roll()
            writer = self._open(position)
        try:
            writer.append(item, sync=self._fsync is Fsync.ALWAYS)
        except OSError:
            self._roll()
            raise

    def _open(self, position: Position) -> Writer:
        try:
            writer = Writer(self._files, self._folder.path, *position)
        except FileExistsError as error:  # one that could be neither read nor moved when the spool was opened
            if error.filename is None or not self._folder.quarantine(Path(error.filename), "stale"):
                raise
            writer = Writer(self._files, self._folder.path, *position)
        if self._fsync is Fsync.ALWAYS:
            self._files.sync_folder(self._folder.path)
        self._writer = writer
        self.segments.append(writer.segment)
        self._names_changed = True
        return writer

    def _roll(self) -> None:
        """Ends the file that is written to."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._fsync is Fsync.INTERVAL:
            self._unsynced.append(writer.fd)
        else:
            os.close(writer.fd)
        if writer.segment.end == writer.segment.first:
            self._delete(writer.segment)

    def read(self, sequence: int) -> Item | Gap:
        """The record of a sequence, or how far nothing can be read from there.

        Raises:
            OSError: its file cannot be read.
        """
        for segment in self.segments:
            if sequence < segment.first:
                return Gap(segment.first, segment.spans_before)
            if sequence < segment.end:
                return self._reader.read(segment, sequence)
        raise LookupError(f"sequence {sequence} is in no file")

    def segment_of(self, sequence: int) -> Segment | None:
        """The file that holds a sequence."""
        return next((one for one in self.segments if one.first <= sequence < one.end), None)

    def oldest_ms(self, sequence: int) -> int | None:
        """Time of the data at a sequence, of an earlier record of its last 256 KiB to be exact."""
        segment = self.segment_of(sequence)
        mark = segment.mark_before(sequence) if segment else None
        return mark.timestamp_ms if mark else None

    def save(self, saved: Saved) -> None:
        """Makes a position durable, from which on records come again after a crash."""
        try:
            self._cursor.write(saved, sync=self._fsync is not Fsync.NEVER)
        except OSError as error:
            self.faults["cursor_write"] += 1
            log.debug("spool: the cursor cannot be written: %s", error)

    def sweep(self) -> None:
        """Deletes the files before the cursor that is on disk."""
        for segment in [one for one in self.segments if one.end <= self._cursor.written.position.sequence]:
            if self._writer is None or segment is not self._writer.segment:
                self._delete(segment)

    def delete(self, segment: Segment) -> None:
        """Deletes a file, acknowledged or not; its owner saves the cursor first."""
        if self._writer is not None and segment is self._writer.segment:
            self._roll()
        if segment in self.segments:  # one without records went with its writer
            self._delete(segment)

    def _delete(self, segment: Segment) -> None:
        self._reader.close()
        try:
            segment.path.unlink(missing_ok=True)
        except OSError as error:
            self.faults["delete"] += 1
            log.debug("spool: %s cannot be deleted: %s", segment.path, error)
        self.segments.remove(segment)
        self._names_changed = True

    def probe(self) -> None:
        """Writes and deletes a small file.

        Raises:
            OSError: the disk takes nothing.
        """
        path = self._folder.path / PROBE
        path.unlink(missing_ok=True)
        fd = self._files.create(path)
        try:
            self._files.write_all(fd, bytes(_PROBE_BYTES))
        finally:
            os.close(fd)
            path.unlink()

    def descriptors(self) -> list[int]:
        """Hands over what `sync` must make durable: descriptors that are the caller's from now on."""
        taken, self._unsynced = self._unsynced, []
        writer = self._writer
        if writer is not None and self._fsync is Fsync.INTERVAL:
            written = (writer.segment.first, writer.segment.size)
            if written != self._synced:
                taken.append(os.dup(writer.fd))
                self._synced = written
        return taken

    def sync(self, descriptors: list[int]) -> None:
        """Makes files durable and closes them; may take long and needs no lock."""
        with self._sync_lock:
            for fd in descriptors:
                self._sync(fd)
            if self._names_changed and self._fsync is not Fsync.NEVER:
                self._names_changed = False
                with suppress(OSError):  # counted when the files themselves fail
                    self._files.sync_folder(self._folder.path)

    def _sync(self, fd: int) -> None:
        try:
            self._files.fsync(fd)
        except OSError as error:
            self.faults["fsync"] += 1
            log.warning("spool: records may not survive a loss of power: %s", error)
        finally:
            os.close(fd)

    def close(self, saved: Saved | None = None) -> None:
        """Makes everything durable, deletes what is acknowledged, and gives the folder back."""
        self._reader.close()
        self._roll()
        if saved is not None:
            self.save(saved)
        self.sweep()
        self.sync(self.descriptors())
        self._folder.close()

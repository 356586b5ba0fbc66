"""The spool: a bounded queue on disk that survives outages and restarts, and accounts for every span it took.

What the disk will not take stays in memory, within a bound, until it does: all of that is newer than what is on disk.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from pathlib import Path
from threading import Event, Lock, Thread

from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item
from spanlite.agent.spool.cursor import START, Position
from spanlite.agent.spool.disk import Disk
from spanlite.agent.spool.files import Files
from spanlite.agent.spool.ledger import Ledger
from spanlite.agent.spool.memory import Entry, Held, Overflow, cost
from spanlite.agent.spool.records import fits
from spanlite.agent.spool.segment import Gap
from spanlite.agent.spool.settings import LEAST_LIMIT_BYTES, Policy, SpoolSettings
from spanlite.agent.spool.state import Fetched, State
from spanlite.contract.errors import UsageError

log = logging.getLogger(__name__)

_RETRY_EVERY_TICKS = 5


class Spool:
    """A queue of items by sequence; any thread may call."""

    def __init__(
        self, path: Path, counts: AgentCounts, settings: SpoolSettings | None = None, *, files: Files | None = None
    ) -> None:
        """Opens a folder, reads all of it, and counts the spans that it still holds as recovered.

        Raises: UsageError: another process works in it, or the limit is below 64 KiB.
        """
        self.settings = settings or SpoolSettings()
        if self.settings.limit_bytes < LEAST_LIMIT_BYTES:
            raise UsageError(f"a spool of {self.settings.limit_bytes} bytes is too small; allow 64KiB or more")
        self._path = path
        self._files = files or Files()
        self._lock = Lock()
        self._ledger = Ledger(counts)
        self._recent = Held()
        self._pinned = Overflow(self._ledger, self.settings)
        self._disk: Disk | None = None
        self._degraded = False
        self._ticks = 0
        self._closed = False
        self._stop = Event()
        self._thread: Thread | None = None
        self._open()

    def _open(self) -> None:
        """Takes the folder over; where that fails everything stays in memory, and later ticks try again."""
        try:
            disk = Disk(self._path, self._files, self.settings)
        except OSError as error:
            self._set_degraded(error)
            return
        if self._ledger.end == START:
            self._ledger.recover(disk.recovered)
            disk.save(self._ledger.saved)  # what is lost in front is told of once
        elif disk.recovered.end != Position(
            1, 0
        ):  # records in it have the numbers that ours have: not before a restart
            disk.close()
            return
        self._disk = disk

    def start(self) -> None:
        """Begins to make records durable in the background."""
        self._thread = Thread(target=self._run, name="spanlite-spool", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self.settings.sync_s):
            self.tick()

    @property
    def end(self) -> int:
        """The sequence that the next item gets."""
        return self._ledger.end.sequence

    @property
    def spans(self) -> int:
        """Spans that wait."""
        with self._lock:
            return self._ledger.spans

    def state(self) -> State:
        """All that can be shown."""
        with self._lock:
            return State.of(self._ledger, self._disk, self._pinned, degraded=self._degraded)

    def append(self, item: Item) -> str | None:
        """Takes an item; the reason where it cannot, which the caller counts. Waits for no more than a write.

        Older items may be dropped for it, and are counted here.
        """
        with self._lock:
            if self._closed:
                return "closed"
            if not fits(item, self.settings.file_bytes):
                return "too_large"
            entry = Entry(item, self._ledger.end.spans)
            if not self._degraded and self._disk is not None:
                problem = self._make_room(self._disk, self._disk.needed(item))
                if problem is not None:
                    return problem
                try:
                    self._disk.append(item, self._ledger.end)
                except OSError as error:
                    self._set_degraded(error)
                else:
                    self._recent.put(self.end, entry)
                    self._recent.shrink(self.settings.recent_bytes)
                    self._ledger.enter(item)
                    return None
            problem = self._pinned.make_room(cost(item))
            if problem is None:
                self._pinned.put(self.end, entry)
                self._ledger.enter(item)
            return problem

    def _make_room(self, disk: Disk, needed: int) -> str | None:
        limit = self.settings.limit_bytes
        if disk.bytes + needed > limit:
            disk.save(self._ledger.saved)
            disk.sweep()
        while disk.bytes + needed > limit:
            if self.settings.policy is Policy.NEWEST:
                return "spool_full"
            oldest = disk.segments[0]
            self._ledger.lose_before(Position(oldest.end, oldest.spans_end), "spool_full")
            disk.save(self._ledger.saved)
            disk.delete(oldest)
        return None

    def fetch(self, sequence: int) -> Fetched | None:
        """The first waiting record at or after a sequence; None when there is none yet.

        Records are fetched in order, some of them again. One that turns out to be unreadable is dropped and counted.
        """
        with self._lock:
            while not self._closed and (found := self._ledger.live_from(sequence)) is not None:
                sequence = found
                read: Item | Gap | None = self._pinned.get(sequence) or self._recent.get(sequence)
                reason = ""
                if read is None:
                    read, reason = self._read(sequence)
                if isinstance(read, Item):
                    self._ledger.give(sequence, read.spans)
                    return Fetched(sequence, read)
                self._ledger.fault(Counter(damage=1))
                self._ledger.lose_gap(sequence, Position(read.end, read.spans_end), reason)
            return None

    def _read(self, sequence: int) -> tuple[Item | Gap, str]:
        disk = self._disk
        segment = disk.segment_of(sequence) if disk else None
        if disk is None or (segment is None and not any(sequence < one.first for one in disk.segments)):
            raise LookupError(f"record {sequence} of the spool is neither in a file nor in memory")
        try:
            return disk.read(sequence), "spool_corrupt" if segment else "spool_missing"
        except OSError as error:
            if segment is None:
                raise
            log.warning("spool: %s cannot be read: %s", segment.path, error)
            return Gap(segment.end, segment.spans_end), "spool_unreadable"

    def ack(self, sequence: int) -> int | None:
        """A fetched record is done with: its spans, or None when it was dropped meanwhile."""
        with self._lock:
            self._recent.remove(sequence)
            self._pinned.remove(sequence)
            return self._ledger.ack(sequence)

    def tick(self) -> None:
        """Makes durable what was written and acknowledged, deletes files, and tries a disk that failed again."""
        with self._lock:
            self._ticks += 1
            if self._degraded and self._ticks % _RETRY_EVERY_TICKS == 0 and not self._closed:
                self._retry()
            disk, saved = self._disk, self._ledger.saved
            if disk is None or self._closed:
                return
            descriptors = disk.descriptors()
        disk.sync(descriptors)
        disk.save(saved)
        with self._lock:
            if not self._closed:
                disk.sweep()
                self._take_faults(disk)

    def _take_faults(self, disk: Disk) -> None:
        faults, disk.faults = disk.faults, Counter()
        self._ledger.fault(faults)

    def _set_degraded(self, error: OSError) -> None:
        if not self._degraded:
            self._ledger.fault(Counter([errno.errorcode.get(error.errno or 0, "EIO").lower()]))
            log.error("spool: %s takes no records (%s); they stay in memory until it does", self._path, error)
        self._degraded = True

    def _retry(self) -> None:
        try:
            if self._disk is None:
                self._open()
        except UsageError as error:
            log.warning("%s", error)
        self._degraded = self._disk is None or not self._restore(self._disk)
        if not self._degraded:
            log.warning("spool: %s takes records again", self._path)

    def _restore(self, disk: Disk) -> bool:
        """Writes what is only in memory; whether the disk takes records."""
        try:
            disk.probe()
            while oldest := self._pinned.first():
                sequence, entry = oldest
                if self._make_room(disk, disk.needed(entry.item)) is not None:
                    return False
                disk.append(entry.item, Position(sequence, entry.spans_before))
                self._pinned.remove(sequence)
        except OSError:  # said when it failed first
            return False
        return True

    def close(self) -> None:
        """Brings to disk what can be brought there; the rest is dropped and counted. Waits for the disk alone."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._disk is not None and self._pinned.first():
                self._restore(self._disk)
            while self._pinned:
                self._pinned.give_up_oldest()
            if self._disk is not None:
                self._disk.close(self._ledger.saved)
                self._take_faults(self._disk)

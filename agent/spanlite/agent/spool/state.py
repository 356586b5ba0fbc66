"""What a spool gives out: a record that waits, and its own state at one moment."""

from __future__ import annotations

from typing import NamedTuple

from spanlite.agent.outlet import Item
from spanlite.agent.spool.disk import Disk
from spanlite.agent.spool.ledger import Ledger
from spanlite.agent.spool.memory import Overflow


class Fetched(NamedTuple):
    """A record that waits."""

    sequence: int
    item: Item


class State(NamedTuple):
    """What waits, where, and whether all is well.

    Attributes:
        bytes: of the files.
        memory_bytes: of what is in memory only.
        spans, records: that wait.
        degraded: whether the disk takes nothing.
        quarantined: files that were put aside.
        oldest_ms: time of the data, of a record up to 256 KiB before the oldest one that waits; None when none does.
    """

    bytes: int
    memory_bytes: int
    spans: int
    records: int
    degraded: bool
    quarantined: int
    oldest_ms: int | None

    @classmethod
    def of(cls, ledger: Ledger, disk: Disk | None, pinned: Overflow, *, degraded: bool) -> State:
        """Reads it off a spool's parts, whose lock is held."""
        waits = ledger.live_from(0)
        oldest_ms = disk.oldest_ms(waits) if disk and waits is not None else None
        first = pinned.first()
        if oldest_ms is None and first is not None:
            oldest_ms = first[1].item.timestamp_ms
        return cls(
            bytes=disk.bytes if disk else 0,
            memory_bytes=pinned.bytes,
            spans=ledger.spans,
            records=ledger.records,
            degraded=degraded,
            quarantined=disk.quarantined if disk else 0,
            oldest_ms=oldest_ms,
        )

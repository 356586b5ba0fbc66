"""How a spool behaves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LEAST_LIMIT_BYTES = 64 << 10


class Policy(Enum):
    """What goes when the spool is full."""

    OLDEST = "oldest"
    NEWEST = "newest"


class Fsync(Enum):
    """When what was written is made to survive a loss of power; a killed process loses nothing in any case."""

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Bounds and policies.

    Attributes:
        limit_bytes: of all segments together, at least 64 KiB.
        segment_bytes: of one file at most; never more than a quarter of the limit, since `oldest` drops whole files.
        memory_bytes: of records that the disk would not take.
        recent_bytes: of the newest records, kept so that they need not be read back.
        sync_s: between two turns of the background thread.
    """

    limit_bytes: int = 1 << 30
    policy: Policy = Policy.OLDEST
    fsync: Fsync = Fsync.INTERVAL
    segment_bytes: int = 16 << 20
    memory_bytes: int = 32 << 20
    recent_bytes: int = 8 << 20
    sync_s: float = 0.2

    @property
    def file_bytes(self) -> int:
        """The bound of one file that holds."""
        return min(self.segment_bytes, self.limit_bytes // 4)

"""Items for the spool's tests, and what is left of a spool's folder."""

from __future__ import annotations

from pathlib import Path

from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item
from spanlite.agent.spool.settings import SpoolSettings
from spanlite.agent.spool.spool import Spool
from spanlite.contract import catalogue

SMALL = SpoolSettings(limit_bytes=1 << 20, segment_bytes=4096, recent_bytes=0)
"""Many files from little data, and everything is read back from disk."""


def item(number: int, *, size: int = 300, spans: int | None = None) -> Item:
    """An item that can be told from all others; its spans are a number of its own, so that a wrong sum shows."""
    value = number.to_bytes(8, "big") * (size // 8)
    return Item("t", b"k", value, 1_000 + number, 3 + number % 7 if spans is None else spans)


def number_of(one: Item) -> int:
    """The number that `item` was given."""
    return int.from_bytes(one.value[:8], "big")


def drain(spool: Spool) -> list[Item]:
    """Fetches and acknowledges everything."""
    found: list[Item] = []
    at = 0
    while fetched := spool.fetch(at):
        found.append(fetched.item)
        spool.ack(fetched.sequence)
        at = fetched.sequence + 1
    return found


def fill(folder: Path, count: int, settings: SpoolSettings = SMALL) -> list[Item]:
    """A closed spool with items 0 … count - 1."""
    spool = Spool(folder, AgentCounts(), settings)
    items = [item(number) for number in range(count)]
    assert [spool.append(one) for one in items] == [None] * count
    spool.close()
    return items


def segments(folder: Path) -> list[Path]:
    """The files with records, oldest first."""
    return sorted(folder.glob("*.seg"))


def lost(counts: AgentCounts) -> tuple[dict[str, int], dict[str, int]]:
    """Spans dropped and records lost, by reason, without the zeros."""
    spans = counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    records = counts.by_label(catalogue.AGENT_SPOOL_RECORDS_LOST)
    return {k: v for k, v in spans.items() if v}, {k: v for k, v in records.items() if v}

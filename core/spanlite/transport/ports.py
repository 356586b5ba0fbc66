"""What a part of spanlite may expect of a transport: values in, values out, each value opaque bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = Sequence[tuple[str, bytes]]
"""Names and values that travel beside a value, in order; a name may come again."""


@dataclass(frozen=True, slots=True)
class Record:
    """One value of a topic with its coordinates, fit for a dead-letter note.

    Offsets rise within a partition; those of two partitions say nothing about each other.
    """

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    partition: int = 0
    headers: Headers = ()


class Producer(Protocol):
    """Sends values.

    `send` never blocks for long and never drops silently: `on_delivery` is called exactly once for every value, with
    None when it is stored for good or with the reason when it is not. It may be called on another thread, and must
    neither block nor call the producer. Values of one key keep their order.
    """

    def send(
        self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: Callable[[str | None], None]
    ) -> None: ...

    def flush(self, timeout_s: float) -> int:
        """Waits for deliveries; returns how many are still open."""
        ...


class HeaderProducer(Producer, Protocol):
    """A producer whose values may have headers beside them; they are stored and come back with the value."""

    def send(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        timestamp_ms: int,
        on_delivery: Callable[[str | None], None],
        *,
        headers: Headers = (),
    ) -> None: ...


class Consumer(Protocol):
    """Reads values of one topic, each at least once, in order of their offsets within each partition."""

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Up to `most` records; an empty list when none came in time."""
        ...

    def commit(self) -> None:
        """All records that `poll` has returned need not come again."""
        ...

"""The transport inside one process: bounded, ordered, and as strict as a broker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from spanlite.transport.ports import Headers, Record


class MemoryBroker:
    """Topics as queues. A full topic makes `send` wait for a reader: nothing is dropped inside one process."""

    def __init__(self, *, most_bytes: int = 64 << 20) -> None:
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._topics: dict[str, deque[Record]] = {}
        self._next_offset: dict[str, int] = {}
        self._held_bytes = 0
        self._closed = False

    def close(self) -> None:
        """No more values: readers drain what is there, and then get empty lists at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def put(self, topic: str, key: bytes, value: bytes, timestamp_ms: int, headers: Headers = ()) -> str | None:
        """Stores a value; the reason when it could not be."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._held_bytes < self._most_bytes)
            if self._closed:
                return "closed"
            offset = self._next_offset.get(topic, 0)
            self._next_offset[topic] = offset + 1
            record = Record(topic, offset, timestamp_ms, key, value, headers=tuple(headers))
            self._topics.setdefault(topic, deque()).append(record)
            self._held_bytes += len(value)
            self._changed.notify_all()
        return None

    def take(self, topic: str, most: int, timeout_s: float) -> list[Record]:
        """Up to `most` values in order; waits for the first one."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._topics.get(topic)), timeout_s)
            queue = self._topics.setdefault(topic, deque())
            taken = [queue.popleft() for _ in range(min(most, len(queue)))]
            self._held_bytes -= sum(len(record.value) for record in taken)
            self._changed.notify_all()
        return taken

    @property
    def closed(self) -> bool:
        return self._closed


class MemoryProducer:
    """Producer over a MemoryBroker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def send(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        timestamp_ms: int,
        on_delivery: Callable[[str | None], None],
        *,
        headers: Headers = (),
    ) -> None:
        on_delivery(self._broker.put(topic, key, value, timestamp_ms, headers))

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # every send is delivered before it returns
        return 0


class MemoryConsumer:
    """Consumer over a MemoryBroker; one reader a topic."""

    def __init__(self, broker: MemoryBroker, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        return self._broker.take(self._topic, most, timeout_s)

    def commit(self) -> None:
        """Nothing to keep: a value leaves the queue when it is read."""

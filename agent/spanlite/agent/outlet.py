"""Where the server's batches go: straight to a producer, or by way of the spool (sender.Sender)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

from spanlite.agent.counts import AgentCounts
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.transport.ports import Producer


@dataclass(frozen=True, slots=True)
class Item:
    """One encoded batch on its way.

    Attributes:
        timestamp_ms: of the data, Unix time.
        spans: how many the value holds, so that its loss can be told in spans without decoding it.
    """

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int
    spans: int


def item_of(batch: Batch, topic: str) -> Item:
    """A batch as it goes out: encoded, under the key of its host and GPUs."""
    key = f"{batch.resource.get('host.name', '')}/{','.join(gpu.uuid for gpu in batch.gpus)}".encode()
    timestamp_ms = int(batch.end_ns.max()) // 1_000_000 if len(batch.columns) else 0
    return Item(topic, key, encode_batch(batch), timestamp_ms, len(batch.columns))


class Outlet(ABC):
    """Takes batches. Each one's spans are counted once, as sent or as dropped for a reason, when that is certain."""

    def __init__(self, counts: AgentCounts) -> None:
        self.counts = counts

    @abstractmethod
    def put(self, item: Item) -> None:
        """Takes a batch; may wait only as long as the outlet says."""

    def count(self, item_spans: int, item_bytes: int, problem: str | None) -> None:
        """Enters what became of a batch: delivered where there is no problem, else dropped for it."""
        if problem is None:
            self.counts.add(catalogue.AGENT_SPANS_SENT, item_spans)
            self.counts.add(catalogue.AGENT_BATCH_BYTES, item_bytes)
        else:
            self.counts.add(catalogue.AGENT_SPANS_DROPPED, item_spans, problem)
        self.counts.add(catalogue.AGENT_BATCHES_SENT, 1, "delivered" if problem is None else problem)


class Direct(Outlet):
    """Straight to a producer: what it does not deliver is dropped. `put` waits as long as the producer's `send`."""

    def __init__(self, producer: Producer, counts: AgentCounts) -> None:
        super().__init__(counts)
        self._producer = producer

    def put(self, item: Item) -> None:
        told = partial(self.count, item.spans, len(item.value))
        self._producer.send(item.topic, item.key, item.value, item.timestamp_ms, told)

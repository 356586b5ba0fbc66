"""The account of what was acknowledged: in order, without gaps, whoever tells of it and when."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spanlite.contract.codec import decode_batch
from spanlite.contract.errors import TransportError
from spanlite.replay.checkpoint import Account
from spanlite.replay.deliveries import LATE, Deliveries, Ready
from spanlite.replay.moments import Moment
from spanlite.replay.ports import Acknowledge, Item
from tests.replay.archives import prepared


class Asked:
    """A sink that acknowledges when the test says so."""

    def __init__(self) -> None:
        self.open: list[tuple[bytes, Acknowledge]] = []

    def begin(self) -> None: ...

    def resume(self, state: Mapping[str, int]) -> None: ...

    def send(
        self,
        item: Item,  # noqa: ARG002  # as sinks do
        payload: bytes,
        on_delivery: Acknowledge,
        moment: Moment | None = None,  # noqa: ARG002  # likewise
    ) -> None:
        self.open.append((payload, on_delivery))

    def sync(self) -> Mapping[str, int]:
        return {}

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # likewise
        return len(self.open)

    def close(self, *, complete: bool) -> None: ...

    def tell(self, at: int, reason: str | None = None) -> None:
        """Acknowledges one of the open values."""
        self.open.pop(at)[1](reason)


@pytest.fixture(scope="module")
def items(small_archive: Path) -> list[Ready]:
    """Some items."""
    return prepared(small_archive)[:12]


def _expected(items: list[Ready]) -> str:
    digest = bytes(32)
    for ready in items:
        own = hashlib.blake2b(ready.payload, digest_size=32).digest()
        digest = hashlib.blake2b(digest + own, digest_size=32).digest()
    return digest.hex()


def test_the_account_grows_without_gaps(items: list[Ready]) -> None:
    """Told in any order, it counts the first ones that are all told of, and ends with the same digest."""
    sink = Asked()
    deliveries = Deliveries(sink, Account(), most=100)
    for ready in items:
        deliveries.send(ready)
    sink.tell(1)
    assert deliveries.settle().batches == 0
    sink.tell(0)
    assert deliveries.settle().next == items[1].following
    order = random.Random(5)  # noqa: S311  # any order will do
    while sink.open:
        sink.tell(order.randrange(len(sink.open)))
    account, batches = deliveries.settle(), [decode_batch(one.payload) for one in items]
    assert (account.batches, account.spans) == (len(items), sum(len(batch.columns) for batch in batches))
    assert account.bytes == sum(len(one.payload) for one in items)
    assert account.digest == _expected(items)
    assert account.first_ns == min(int(batch.columns.start_ns.min()) for batch in batches)
    assert account.last_ns == max(int(batch.end_ns.max()) for batch in batches)


def test_an_account_goes_on_where_another_ended(items: list[Ready]) -> None:
    """Two halves, the second from the first one's account, give the digest and the sums of the whole."""
    account = Account()
    for half in (items[:5], items[5:]):
        sink = Asked()
        deliveries = Deliveries(sink, account, most=100)
        for ready in half:
            deliveries.send(ready)
        while sink.open:
            sink.tell(0)
        account = deliveries.settle()
    assert account.digest == _expected(items)
    assert account.batches == len(items)


def test_no_more_are_in_flight_than_allowed(items: list[Ready]) -> None:
    """Another item waits until one of those in flight is told of."""
    told: list[int] = []

    class Prompt(Asked):
        def send(self, item: Item, payload: bytes, on_delivery: Acknowledge, moment: Moment | None = None) -> None:
            super().send(item, payload, on_delivery, moment)
            told.append(len(self.open))
            if len(self.open) == 3:
                self.tell(0)

    deliveries = Deliveries(Prompt(), Account(), most=3)
    for ready in items:
        deliveries.send(ready)
    assert max(told) == 3


def test_what_one_value_alone_suffers_is_counted(items: list[Ready]) -> None:
    """A value that is too large, or left out for being late, is lost by reason; the rest goes on."""
    sink = Asked()
    deliveries = Deliveries(sink, Account(), most=100)
    for ready in items[:3]:
        deliveries.send(ready)
    deliveries.give_up(items[3], LATE)
    for reason in (None, "too_large", None):
        sink.tell(0, reason)
    account = deliveries.settle()
    sizes = [len(decode_batch(one.payload).columns) for one in items]
    assert account.lost == {"too_large": sizes[1], "late": sizes[3]}
    assert account.spans == sizes[0] + sizes[2]
    assert account.next == items[3].following


@pytest.mark.parametrize("reason", ["rejected", "neighbour"])
def test_what_may_have_suffered_from_others_is_sent_once_more(items: list[Ready], reason: str) -> None:
    """Such a value is handed on again, alone; stored then, it is no loss."""
    sink = Asked()
    deliveries = Deliveries(sink, Account(), most=100)
    deliveries.send(items[0])
    sink.tell(0, reason)
    assert deliveries.settle().batches == 0
    assert [payload for payload, _ in sink.open] == [items[0].payload]
    sink.tell(0)
    assert deliveries.settle().batches == 1
    assert not deliveries.account.lost


def test_what_the_next_ones_would_suffer_too_ends_it(items: list[Ready]) -> None:
    """A broker that is away ends the replay behind what was stored, and says what to do."""
    sink = Asked()
    deliveries = Deliveries(sink, Account(), most=100)
    for ready in items[:3]:
        deliveries.send(ready)
    sink.tell(0)
    sink.tell(0, "timeout")
    sink.tell(0)
    with pytest.raises(TransportError, match=r"timeout.*--resume"):
        deliveries.settle()
    assert deliveries.account.next == items[0].following


def test_names_that_were_counted_are_in_the_account(items: list[Ready]) -> None:
    """Whoever goes on gives the next sequence of each producer."""
    sink = Asked()
    deliveries = Deliveries(sink, Account(), most=100)
    deliveries.send(replace(items[0], counted=True))
    deliveries.send(replace(items[1], counted=False))
    sink.tell(0)
    sink.tell(0)
    batch = decode_batch(items[0].payload)
    assert deliveries.settle().names == {batch.producer.hex(): batch.sequence + 1}

"""The sender: order, retries, limits, stopping, and that every span is accounted for, with producers that misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from spanlite.agent.backoff import Backoff
from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item
from spanlite.agent.sender import MOST_UNCLEAR, Sender
from spanlite.agent.spool.settings import SpoolSettings
from spanlite.agent.spool.spool import Spool
from spanlite.contract import catalogue
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from spanlite.transport.ports import Producer
from tests.agent.spool.items import SMALL, item, number_of

_WAIT_S = 30.0
Told = Callable[[str | None], None]


class _Manual:
    """A producer that answers when the test says so."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.open: list[tuple[Item, Told]] = []
        self.seen: list[int] = []

    def send(self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: Told) -> None:
        with self.changed:
            self.open.append((Item(topic, key, value, timestamp_ms, 0), on_delivery))
            self.seen.append(int.from_bytes(value[:8], "big"))
            self.changed.notify_all()

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # what Producer asks for
        return len(self.open)

    def take(self, count: int) -> list[Told]:
        """The next values that were handed over."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.open) >= count, _WAIT_S)
            taken, self.open = self.open[:count], self.open[count:]
        return [told for _, told in taken]


class _Scripted:
    """Answers at once, each value as a function of its number and how often it came says."""

    def __init__(self, answer: Callable[[int, int], str | None]) -> None:
        self.answer = answer
        self.times: dict[int, int] = {}
        self.stored: list[int] = []

    def send(self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: Told) -> None:  # noqa: ARG002
        number = int.from_bytes(value[:8], "big")
        self.times[number] = self.times.get(number, 0) + 1
        problem = self.answer(number, self.times[number])
        if problem is None:
            self.stored.append(number)
        on_delivery(problem)

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # what Producer asks for
        return 0


Make = Callable[..., Sender]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes started senders over one folder; those that the test did not stop are stopped."""
    made: list[Sender] = []

    def start(producer: Producer, settings: SpoolSettings = SMALL, **limits: int) -> Sender:
        counts = AgentCounts()
        spool = Spool(tmp_path / "spool", counts, settings)
        backoff = Backoff(0.001, 0.002, Random(1))  # noqa: S311  # repeatable, not secret
        sender = Sender(spool, producer, SystemClock(), counts, backoff=backoff, **limits)
        made.append(sender)
        sender.start()
        return sender

    yield start
    for sender in made:
        sender.stop(0)


def _offer(sender: Sender, numbers: range) -> int:
    """Puts items as the server does; their spans."""
    items = [item(number) for number in numbers]
    for one in items:
        sender.counts.add(catalogue.AGENT_SPANS_RECEIVED, one.spans)
        sender.put(one)
    return sum(one.spans for one in items)


def _adds_up(sender: Sender) -> bool:
    value = sender.counts.value
    arrived = value(catalogue.AGENT_SPANS_RECEIVED) + value(catalogue.AGENT_SPANS_RECOVERED)
    gone = value(catalogue.AGENT_SPANS_SENT) + value(catalogue.AGENT_SPANS_DROPPED)
    return arrived == gone + sender.spool.spans


def test_what_is_put_arrives_in_order(make: Make) -> None:
    """Topic, key, value and time, with a transport that is well; nothing is left and all is counted as sent."""
    broker = MemoryBroker()
    sender = make(MemoryProducer(broker))
    spans = _offer(sender, range(100))
    assert sender.flush(_WAIT_S) == 0
    records = MemoryConsumer(broker, "t").poll(1000, 0)
    assert [(one.key, one.value, one.timestamp_ms) for one in records] == [
        (one.key, one.value, one.timestamp_ms) for one in map(item, range(100))
    ]
    counts = sender.counts
    assert counts.value(catalogue.AGENT_SPANS_SENT) == spans
    assert counts.by_label(catalogue.AGENT_BATCHES_SENT) == {"delivered": 100}
    assert counts.value(catalogue.AGENT_BATCH_BYTES) == sum(len(one.value) for one in records)


def test_put_returns_though_nobody_answers(make: Make) -> None:
    """With a producer that never reports, ten thousand batches are taken; the disk has them, the memory does not."""
    producer = _Manual()
    sender = make(producer, SpoolSettings(64 << 20, recent_bytes=100_000))
    spans = _offer(sender, range(10_000))
    assert sender.spool.spans == spans
    assert sender.spool._recent.bytes <= 100_000
    assert len(producer.take(1000)) == 1000
    assert producer.open == []


def test_no_more_is_in_flight_than_allowed(make: Make) -> None:
    """By number and by bytes; a report makes room for the next."""
    producer = _Manual()
    sender = make(producer, most_batches=5)
    _offer(sender, range(20))
    told = producer.take(5)
    assert producer.open == []
    told[0](None)
    assert len(producer.take(1)) == 1
    assert producer.open == []


@pytest.mark.parametrize("reason", ["timeout", "fatal", "auth", "unknown_topic", "closed", "full", "neighbour"])
def test_a_failure_that_may_pass_is_tried_again(make: Make, reason: str) -> None:
    """Every value fails three times and is then stored: once each, in order, nothing dropped, failures counted."""
    producer = _Scripted(lambda _, times: reason if times <= 3 else None)
    sender = make(producer)
    spans = _offer(sender, range(30))
    assert sender.flush(_WAIT_S) == 0
    assert producer.stored == list(range(30))
    assert sender.counts.value(catalogue.AGENT_SPANS_SENT) == spans
    assert sender.counts.value(catalogue.AGENT_SPANS_DROPPED) == 0
    assert sender.counts.by_label(catalogue.AGENT_SEND_FAILURES)[reason] >= 90


@pytest.mark.parametrize("reason", ["too_large", "rejected"])
def test_a_failure_that_stays_drops_that_batch_alone(make: Make, reason: str) -> None:
    """It is tried once and counted by its reason; those around it arrive."""
    producer = _Scripted(lambda number, _: reason if number % 10 == 3 else None)
    sender = make(producer)
    _offer(sender, range(30))
    assert sender.flush(_WAIT_S) == 0
    assert producer.stored == [number for number in range(30) if number % 10 != 3]
    assert [producer.times[number] for number in (3, 13, 23)] == [1, 1, 1]
    lost = sum(item(number).spans for number in (3, 13, 23))
    assert sender.counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {reason: lost}
    assert _adds_up(sender)


def test_a_batch_that_fails_for_ever_for_no_known_reason_does_not_block(make: Make) -> None:
    """After a number of tries it is dropped, and what waits behind it goes on."""
    producer = _Scripted(lambda number, _: "other" if number == 3 else None)
    sender = make(producer)
    _offer(sender, range(10))
    assert sender.flush(_WAIT_S) == 0
    assert sorted(producer.stored) == [0, 1, 2, *range(4, 10)]
    assert producer.times[3] == MOST_UNCLEAR
    assert sender.counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"other": item(3).spans}


def test_after_a_failure_all_reports_are_awaited_and_the_first_goes_alone(make: Make) -> None:
    """Of five, the second and the fourth fail: they come again in order, one at first, before anything new."""
    producer = _Manual()
    sender = make(producer, most_batches=5)
    _offer(sender, range(8))
    first = producer.take(5)
    for at, problem in ((1, "timeout"), (0, None), (3, "timeout"), (2, None)):
        first[at](problem)
    assert producer.open == [], "one is still out: nothing may overtake it"
    first[4](None)
    producer.take(1)[0](None)
    for told in producer.take(2):
        told(None)
    for told in producer.take(2):
        told(None)
    assert sender.flush(_WAIT_S) == 0
    assert producer.seen == [0, 1, 2, 3, 4, 1, 3, 5, 6, 7]


def test_what_is_left_is_sent_by_the_next(make: Make) -> None:
    """Stopped while nothing is delivered: all stays on disk, is counted as recovered, and arrives before new ones."""
    silent = _Manual()
    sender = make(silent)
    spans = _offer(sender, range(50))
    assert sender.stop(0.05) == spans
    assert _adds_up(sender)
    producer = _Scripted(lambda *_: None)
    again = make(producer)
    _offer(again, range(50, 60))
    assert again.flush(_WAIT_S) == 0
    assert producer.stored == list(range(60))
    assert again.counts.value(catalogue.AGENT_SPANS_RECOVERED) == spans
    assert _adds_up(again)


def test_stopping_delivers_what_can_be_delivered(make: Make) -> None:
    """Within the grace; afterwards nothing more is taken, and what comes is counted as dropped."""
    producer = _Scripted(lambda *_: None)
    sender = make(producer)
    _offer(sender, range(200))
    assert sender.stop(_WAIT_S) == 0
    assert producer.stored == list(range(200))
    _offer(sender, range(1))
    assert sender.counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"closed": item(0).spans}
    assert _adds_up(sender)


def test_reports_that_come_after_the_end_change_nothing(make: Make) -> None:
    """A producer that is closed last tells of values that the next run sends again: they are not counted here."""
    producer = _Manual()
    sender = make(producer)
    spans = _offer(sender, range(3))
    told = producer.take(3)
    assert sender.stop(0) == spans
    for at, problem in enumerate([None, "closed", "too_large"]):
        told[at](problem)
    assert sender.spool.spans == spans
    assert sender.counts.value(catalogue.AGENT_SPANS_DROPPED) == 0
    assert _adds_up(sender)


def test_a_report_of_what_was_dropped_meanwhile_is_not_counted_twice(make: Make) -> None:
    """A spool that overflows drops batches that are on their way; if they arrive after all, they count as dropped."""
    producer = _Manual()
    sender = make(producer, SpoolSettings(64 << 10), most_batches=3)
    _offer(sender, range(600))
    for told in producer.take(3):
        told(None)
    assert sender.counts.value(catalogue.AGENT_SPANS_SENT) == 0
    assert sender.counts.by_label(catalogue.AGENT_SPANS_DROPPED).keys() == {"spool_full"}
    assert _adds_up(sender)
    producer.take(1)
    assert producer.seen[3] > 100, "it goes on with the oldest that is left"


def test_many_threads_and_a_producer_of_moods(make: Make) -> None:
    """Four threads put while deliveries fail at random: every batch is stored or dropped, each thread's in order."""
    random = Random(7)  # noqa: S311  # repeatable, not secret
    moods = [None, None, None, None, "timeout", "fatal"]
    producer = _Scripted(lambda number, _: "rejected" if number % 97 == 0 else random.choice(moods))
    sender = make(producer)
    threads = [threading.Thread(target=_offer, args=(sender, range(1000 * at, 1000 * at + 200))) for at in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sender.flush(_WAIT_S) == 0
    assert _adds_up(sender)
    expected = [n for at in range(1, 5) for n in range(1000 * at, 1000 * at + 200) if n % 97]
    assert sorted(producer.stored) == expected
    for at in range(1, 5):
        mine = [number for number in producer.stored if number // 1000 == at]
        assert mine == sorted(mine)


def test_a_fault_of_the_producer_is_kept_for_whoever_runs_the_sender(make: Make) -> None:
    """A producer that raises ends the thread, loudly; batches are kept meanwhile."""

    class _Raising(_Manual):
        def send(self, *_: object) -> None:
            raise RuntimeError("no")

    caught: list[object] = []
    before, threading.excepthook = threading.excepthook, caught.append
    try:
        sender = make(_Raising())
        spans = _offer(sender, range(5))
        assert sender.stop(_WAIT_S) == spans
    finally:
        threading.excepthook = before
    assert isinstance(sender.failure, RuntimeError)
    assert len(caught) == 1


def test_a_backoff_doubles_up_to_its_bound_and_starts_again() -> None:
    """Waits lie between half and whole of 0.2, 0.4 … 30 s."""
    backoff = Backoff()
    whole = [0.2 * 2**turn for turn in range(8)] + [30.0] * 3
    for _ in range(2):
        assert all(most / 2 <= backoff.next_s() <= most for most in whole)
        backoff.reset()


def test_an_item_can_be_told() -> None:
    """The helper's numbers are what the producers above read."""
    assert [number_of(item(number)) for number in (0, 5, 70_000)] == [0, 5, 70_000]

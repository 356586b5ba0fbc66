"""Headers that say when a message was due and when it was let go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.replay.checkpoint import Account
from spanlite.replay.deliveries import Deliveries
from spanlite.replay.moments import Moment, headers_of, moment_of
from spanlite.replay.paced import Pacing
from spanlite.replay.pacing.late import Late, LatePolicy
from spanlite.replay.pacing.pacer import LEAD_NS
from spanlite.replay.pacing.settings import Pace, parse_speed
from spanlite.replay.pacing.waiting import SleepWaiter
from spanlite.replay.ports import Acknowledge, Item
from spanlite.replay.prepare import Replay
from spanlite.replay.running import Outcome, run_replay
from spanlite.replay.sinks import TopicSink
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from spanlite.transport.ports import Headers, Record
from tests.replay.archives import prepared
from tests.replay.test_running import plan

_UNIX_NS = 1_700_000_000_123_456_789
_INT64 = st.integers(-(2**63), 2**63 - 1)


class _Slow(MemoryProducer):
    """Takes its time with each value."""

    def __init__(self, broker: MemoryBroker, clock: ManualClock, each_ns: int) -> None:
        super().__init__(broker)
        self._clock, self._each_ns = clock, each_ns

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
        self._clock.advance_ns(self._each_ns)
        super().send(topic, key, value, timestamp_ms, on_delivery, headers=headers)


def _sent(replay: Replay, pacing: Pacing | None, clock: ManualClock, each_ns: int = 0) -> tuple[Outcome, list[Record]]:
    broker = MemoryBroker()
    outcome = run_replay(replay, TopicSink(_Slow(broker, clock, each_ns), "t"), clock, pacing=pacing)
    return outcome, MemoryConsumer(broker, "t").poll(10_000, 0)


@given(due=_INT64, emitted=_INT64)
def test_headers_say_what_they_were_given(due: int, emitted: int) -> None:
    """Any two whole numbers of nanoseconds come back, from eight bytes each, most significant first."""
    headers = headers_of(Moment(due, emitted))
    assert [(name, int.from_bytes(value, "big", signed=True)) for name, value in headers] == [
        ("spanlite.due_ns", due),
        ("spanlite.emitted_ns", emitted),
    ]
    assert moment_of([("other", b""), *headers]) == (due, emitted)


@pytest.mark.parametrize("wrong", [b"", b"1234567", b"123456789"])
def test_headers_of_others_say_nothing(wrong: bytes) -> None:
    """One that is missing or of another length is no moment, and no error."""
    headers = headers_of(Moment(1, 2))
    assert moment_of(headers[:1]) is None
    assert moment_of(headers[1:]) is None
    assert moment_of([headers[0], (headers[1][0], wrong)]) is None


def test_a_paced_record_says_when_it_was_due_and_let_go(small_archive: Path) -> None:
    """Due are the recorded distances at half of them; let go at that time, or when the sink was through before."""
    clock, replay = ManualClock(_UNIX_NS), plan(small_archive)
    recorded = replay.plan.arrival_ns.tolist()
    each_ns = min(after - before for before, after in pairwise(recorded) if after > before)  # for half of that
    pacing = Pacing(Pace(speed=parse_speed("2")), SleepWaiter(clock), LatePolicy())
    outcome, records = _sent(replay, pacing, clock, each_ns)
    due = [_UNIX_NS + LEAD_NS + -(-(at - recorded[0]) // 2) for at in recorded]
    emitted, free = [], 0
    for at in due:
        emitted.append(max(at, free))
        free = emitted[-1] + each_ns
    assert [moment_of(record.headers) for record in records] == list(zip(due, emitted, strict=True))
    assert outcome.summary is not None
    late = [at - was_due for was_due, at in zip(due, emitted, strict=True)]
    assert 0 < outcome.summary.lateness.max_ns == max(late)
    assert 0 in late


def test_what_late_shift_moved_is_due_later(small_archive: Path) -> None:
    """Each item late by more than allowed moves what follows: the header's time to come is that of the moved ones."""
    clock, replay = ManualClock(_UNIX_NS), plan(small_archive)
    pacing = Pacing(Pace(speed=parse_speed("1000")), SleepWaiter(clock), LatePolicy(Late.SHIFT, 0))
    outcome, records = _sent(replay, pacing, clock, 50_000_000)
    moments = [moment for record in records if (moment := moment_of(record.headers))]
    recorded = replay.plan.arrival_ns.tolist()
    shifted = 0
    for at, moment in zip(recorded, moments, strict=True):
        assert moment.due_ns == _UNIX_NS + LEAD_NS + -(-(at - recorded[0]) // 1000) + shifted
        shifted += moment.emitted_ns - moment.due_ns
    assert outcome.summary is not None
    assert outcome.summary.shifted_ns == shifted > 0


def test_without_a_pace_there_is_no_moment(small_archive: Path) -> None:
    """As fast as it goes nothing was due, and records have no headers."""
    _, records = _sent(plan(small_archive), None, ManualClock())
    assert {tuple(record.headers) for record in records} == {()}


def test_a_value_that_is_tried_again_keeps_its_moment(small_archive: Path) -> None:
    """Refused with its neighbour and sent once more, it says when it was let go first."""
    seen: list[Moment | None] = []

    class Once(TopicSink):
        def send(self, item: Item, payload: bytes, on_delivery: Acknowledge, moment: Moment | None = None) -> None:
            seen.append(moment)
            if len(seen) == 1:
                on_delivery("neighbour")
            else:
                super().send(item, payload, on_delivery, moment)

    deliveries = Deliveries(Once(MemoryProducer(MemoryBroker()), "t"), Account(), most=1)
    deliveries.send(prepared(small_archive)[0], Moment(3, 5))
    assert deliveries.settle().batches == 1
    assert seen == [(3, 5), (3, 5)]

"""When a producer is idle, through outages, stops and restarts, on a subtask whose clock the test moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.pipeline.jobs.timers import Soon
from tests.pipeline.subtask import KeyedTimers, Message, Subtask

IDLE = 10_000
LONGEST = 60_000
"""Six times idle: a silent producer is never closed later, stops not counted."""
RETAIN = 10**9
EPOCH = 10**12


def steady(keys: Sequence[str], begin: int, end: int, *, cost: int = 1, read_from: int = 0) -> list[Message]:
    """A message a second of each, from `begin` to before `end` (s); it can be read at once, or from `read_from` on."""
    at = [EPOCH + second * 1000 for second in range(begin, end)]
    return [Message(max(sent, EPOCH + read_from * 1000), key, sent, cost) for sent in at for key in keys]


def begun(timers: KeyedTimers | None = None, *, at: int = 0) -> Subtask:
    """A subtask that starts at this second."""
    subtask = Subtask(IDLE, RETAIN, timers)
    subtask.timers.now = EPOCH + at * 1000
    return subtask


def test_one_silent_producer_among_others() -> None:
    """It would stay open for ever, or others be closed with it: only it, and exactly after `idle`."""
    subtask = begun()
    subtask.add(steady("abc", 0, 21) + steady("ab", 21, 120))
    subtask.run(EPOCH + 119_000)
    assert subtask.idle == [("c", EPOCH + 20_002 + IDLE)]


def test_the_end_of_all_traffic() -> None:
    """The last windows would wait for traffic that does not come: each is closed after `idle` by the wall clock."""
    subtask = begun()
    subtask.add(steady("abc", 0, 21))
    subtask.run(EPOCH + 300_000)
    assert subtask.idle == [(key, EPOCH + 20_000 + at + IDLE) for at, key in enumerate("abc")]


def test_a_backlog_read_evenly_at_a_hundred_times_the_speed() -> None:
    """A producer that has ended in an outage of 10 minutes is closed in bounded time, and no other."""
    subtask = begun(at=600)
    subtask.add(steady("abcdefghix", 0, 300) + steady("abcdefghi", 300, 600) + steady("abcdefghi", 600, 900))
    subtask.run(EPOCH + 606_000)
    assert subtask.heard["a"] > EPOCH + 605_000 > EPOCH + 603_001 > subtask.heard["x"]
    subtask.run(EPOCH + 899_000)
    assert subtask.idle == [("x", subtask.heard["x"] + LONGEST)]


def test_a_backlog_read_one_partition_after_the_other() -> None:
    """Whoever lies in the partition that is read last would be taken for silent, for 48 s each."""
    subtask = begun(at=600)
    subtask.add(steady("abcdevwxyz", 0, 2))
    subtask.add(steady("abcde", 2, 600, cost=16))
    subtask.run(EPOCH + 648_000)
    assert subtask.timers.now - subtask.heard["z"] > 4 * IDLE
    subtask.add(steady("vwxyz", 2, 700, cost=14))
    subtask.run(EPOCH + 696_000)
    assert subtask.timers.now - subtask.heard["a"] > 4 * IDLE
    subtask.add(steady("abcde", 600, 700) + steady("abcdevwxyz", 700, 800))
    subtask.run(EPOCH + 799_000)
    assert subtask.idle == []


def test_a_partition_that_lags_and_stalls_while_another_is_up_to_date() -> None:
    """Its producers look silent: 50 s of that close nobody, more than 60 do, since they may have ended."""
    subtask = begun(at=600)
    subtask.add(steady("ab", 598, 650) + steady("yz", 300, 302, read_from=650) + steady("ab", 650, 700))
    subtask.add(steady("yz", 302, 304, read_from=700) + steady("ab", 700, 900))
    subtask.run(EPOCH + 700_000)
    assert subtask.idle == []
    subtask.run(EPOCH + 899_000)
    assert subtask.idle == [(key, subtask.heard[key] + LONGEST) for key in "yz"]


def test_a_stop_of_a_minute() -> None:
    """SIGSTOP, or a long collection: timers are late, and all that came meanwhile waits behind them."""
    subtask = begun()
    subtask.add(steady("abc", 0, 21) + steady("ab", 21, 200))
    subtask.run(EPOCH + 20_500)
    subtask.stop(60_000)
    subtask.run(EPOCH + 199_000)
    # Two messages a second wait, 1 ms each; those sent before second 76 are older than idle / 2 when they are read.
    assert subtask.idle == [("c", EPOCH + 80_500 + 2 * (76 - 21) - 1 + IDLE)]


def test_a_stop_into_which_the_traffic_ends() -> None:
    """What was silent already before a stop would be closed at its end, before what waits is read."""
    subtask = begun()
    subtask.add(steady("ab", 0, 21) + steady("a", 28, 30))
    subtask.run(EPOCH + 25_500)
    subtask.stop(60_000)
    subtask.run(EPOCH + 85_500 + IDLE)
    assert subtask.idle == []
    subtask.run(EPOCH + 85_502 + IDLE)
    assert [key for key, _ in subtask.idle] == ["b"]
    subtask.run(EPOCH + 300_000)
    assert subtask.idle[1:] == [("a", EPOCH + 85_501 + LONGEST)], "its last message was old"


def test_a_restart() -> None:
    """Timers of the former life are due long since: whoever is not heard again gets time, and is closed in the end."""
    former = begun()
    former.add(steady("abc", 0, 21))
    former.run(EPOCH + 20_500)
    subtask = begun(former.timers, at=320)
    subtask.add(steady("a", 21, 320) + steady("ab", 320, 500))
    subtask.run(EPOCH + 499_000)
    assert subtask.idle == [("c", EPOCH + 320_000 + LONGEST)]


def test_a_restart_without_input() -> None:
    """The windows that were open would stay so: they are closed after the longest time."""
    former = begun()
    former.add(steady("abc", 0, 21))
    former.run(EPOCH + 20_500)
    subtask = begun(former.timers, at=320)
    subtask.run(EPOCH + 600_000)
    assert sorted(subtask.idle) == [(key, EPOCH + 320_000 + LONGEST) for key in "abc"]


def test_a_subtask_that_is_always_held_up() -> None:
    """Each message takes 9 s of 10: who is silent is closed all the same, by time that is free."""
    subtask = begun()
    subtask.add([Message(EPOCH, "c", EPOCH), *steady("a", 0, 400, cost=9000)])
    subtask.run(EPOCH + 3_600_000)
    assert [key for key, _ in subtask.idle] == ["c"]


def test_an_overload_that_grows() -> None:
    """A subtask at half the speed that it needs gets ever further behind: nobody is closed, but who has ended."""
    subtask = begun()
    subtask.add(steady("abcx", 0, 10, cost=500) + steady("abc", 10, 600, cost=667))
    subtask.run(EPOCH + 1_000_000)
    assert subtask.heard["x"] + LONGEST == EPOCH + 79_500
    assert subtask.idle == [("x", EPOCH + 20_000 + 90 * 667)], "when the message in hand is done"


@pytest.mark.parametrize("sent", [None, 0, -(2**63)])
def test_messages_that_do_not_say_when_they_were_sent(sent: int | None) -> None:
    """They would look as old as the epoch: the clock alone decides."""
    subtask = begun()
    subtask.timers.key = "a"
    subtask.activity.active("a", subtask.timers, sent)
    subtask.run(EPOCH + 100_000)
    assert subtask.idle == [("a", EPOCH + IDLE)]


def test_state_goes_after_retain_and_not_of_who_comes_back() -> None:
    """A producer that comes back would lose its state, or one that is gone keep it for ever."""
    subtask = begun()
    subtask.add([Message(EPOCH, "a", EPOCH), Message(EPOCH, "b", EPOCH)])
    subtask.run(EPOCH + IDLE + 10)
    assert subtask.idle == [("a", EPOCH + IDLE), ("b", EPOCH + IDLE + 1)]
    subtask.add([Message(at, "b", at) for at in (EPOCH + RETAIN // 2,)])
    subtask.run(EPOCH + 2 * RETAIN)
    assert subtask.gone == [("a", EPOCH + IDLE + RETAIN), ("b", EPOCH + RETAIN // 2 + IDLE + RETAIN)]
    assert subtask.timers.waiting == set(), "a timer is left for nobody"


def test_soon() -> None:
    """A flush would come twice, or never after a restart."""
    timers, soon = KeyedTimers(), Soon(50)
    timers.key = "a"
    soon.arm("a", timers)
    timers.now = 20
    soon.arm("a", timers)
    assert timers.waiting == {(50, "a")}
    assert not soon.fired("a", 49)
    assert soon.fired("a", 50)
    assert Soon(50).fired("a", 7), "of the life before"


gaps = st.lists(st.integers(1, IDLE // 4), min_size=1, max_size=60)
"""Pauses between a producer's messages, ms."""
costs = st.lists(st.sampled_from([*[1] * 20, 100, 900, 5_000, 30_000]), min_size=1, max_size=40)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(gaps, min_size=1, max_size=4),
    costs,
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 200_000)), max_size=3),
)
def test_one_queue_worked_off_without_pause(
    producers: list[list[int]], taking: list[int], stops: list[tuple[int, int]]
) -> None:
    """Whatever the work costs and however it is stopped, nobody is closed while something of it waits in the queue.

    Not before the longest time, that is. And all are closed at the end, one `LONGEST` and some steps after the rest.
    """
    sent = sorted(
        (EPOCH + sum(pauses[:at]), f"p{number}")
        for number, pauses in enumerate(producers)
        for at in range(1, len(pauses) + 1)
    )
    subtask = begun()
    subtask.add(Message(at, key, at, taking[number % len(taking)]) for number, (at, key) in enumerate(sent))
    for after, length in stops:
        subtask.run(subtask.timers.now + after)
        subtask.stop(length)
    subtask.run(sent[-1][0])
    while subtask.input:
        subtask.run(subtask.timers.now + 1)
    subtask.run(subtask.timers.now + LONGEST + 1)
    assert [silent for silent in subtask.overlooked if silent < LONGEST] == []
    closed = dict(subtask.idle)
    assert closed.keys() == subtask.heard.keys()
    assert all(at >= subtask.heard[key] + IDLE for key, at in closed.items())

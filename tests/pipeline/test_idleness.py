"""Idleness against a brute force over all that has happened, and what it says in words of its own."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spanlite.pipeline.idleness import PATIENCE, Idleness

IDLE, STEP = 800, 100
KEYS = ("a", "b", "c")


class Log:
    """The rule again, computed from everything that has happened, each time anew.

    Attributes:
        heard: time, key and age of every message; an age of None is not known, and of "before" another life's.
        held: from when to when the reader was held up; full: when it has left something waiting.
    """

    def __init__(self) -> None:
        self.heard: list[tuple[int, str, int | str | None]] = []
        self.held: list[tuple[int, int]] = []
        self.full: list[int] = []

    def free(self, begin: int, end: int) -> int:
        """Time between two moments in which the reader was not held up."""
        edges = sorted({begin, end, *(edge for span in self.held for edge in span if begin < edge < end)})
        return sum(
            to - since
            for since, to in pairwise(edges)
            if not any(first <= since and to <= last for first, last in self.held)
        )

    def doubts(self) -> list[int]:
        """When the reader was not up to date."""
        found = [to for _, to in self.held] + self.full
        messages = [(at, age) for at, _, age in self.heard if isinstance(age, int)]
        for number, (at, age) in enumerate(messages):
            fresh = [when for when, other in messages[:number] if abs(other) <= IDLE // 2]
            if age > IDLE // 2 and not any(at - when <= STEP for when in fresh):
                found.append(at)
        return found

    def idle(self, now: int) -> set[str]:
        """Keys that have been heard and are idle now."""
        newest = {key: (at, age) for at, key, age in self.heard}
        found = set()
        for key, (last, age) in newest.items():
            behind = age == "before" or (isinstance(age, int) and age > IDLE // 2)
            waited = self.free(last, now)
            sure = all(self.free(doubt, now) >= IDLE for doubt in self.doubts())
            if waited >= PATIENCE * IDLE or (waited >= IDLE and sure and not behind):
                found.add(key)
        return found


class AgainstTheLog(RuleBasedStateMachine):
    """Any order of messages, rounds and stops."""

    def __init__(self) -> None:
        super().__init__()
        self.idleness: Idleness[str] = Idleness(IDLE)
        self.log = Log()
        self.now = 0

    @rule(key=st.sampled_from(KEYS), age=st.sampled_from([None, 0, 3, 400, 401, 5_000, -70, -400, -401]))
    def hear(self, key: str, age: int | None) -> None:
        """A message is read."""
        self.idleness.heard(key, self.now, age)
        self.log.heard.append((self.now, key, age))

    @rule(key=st.sampled_from(KEYS))
    def remember(self, key: str) -> None:
        """A key is found in what a restart has left."""
        self.idleness.remembered(key, self.now)
        self.log.heard.append((self.now, key, "before"))

    @rule(after=st.sampled_from([1, 50, 99, 100]), late=st.sampled_from([0, 0, 0, 100]))
    def go_round(self, after: int, late: int) -> None:
        """Time goes by, and the reader comes round in time."""
        due = self.now + after
        self.now = due + late
        self.idleness.came_round(due, self.now)

    @rule(rounds=st.integers(1, 40))
    def go_on(self, rounds: int) -> None:
        """Nothing happens for longer."""
        for _ in range(rounds):
            self.go_round(STEP, 0)

    @rule(after=st.sampled_from([0, 40]), length=st.sampled_from([101, 900, 20_000]), again=st.sampled_from([0, 30]))
    def stop(self, after: int, length: int, again: int) -> None:
        """The reader is held up; what was due in between is done after that, one by one."""
        due = self.now + after
        self.now = due + length
        self.log.held.append((due, self.now))
        self.idleness.came_round(due, self.now)
        self.idleness.came_round(due + again, self.now)

    @rule()
    def leave(self) -> None:
        """More is there than the reader takes."""
        self.idleness.left_waiting(self.now)
        self.log.full.append(self.now)

    @rule()
    def close(self) -> None:
        """Who is idle is given up, and forgotten by the log."""
        for key in self.idleness.idle(self.now):
            self.idleness.give_up(key)
            assert key not in self.idleness.keys
        gone = self.log.idle(self.now)
        self.log.heard = [(at, f"{key} gone" if key in gone else key, age) for at, key, age in self.log.heard]

    @invariant()
    def they_agree(self) -> None:
        """Who is idle is idle by both."""
        live = {key for _, key, _ in self.log.heard if key in KEYS}
        assert set(self.idleness.keys) == live
        assert set(self.idleness.idle(self.now)) == {key for key in self.log.idle(self.now) if key in KEYS}


AgainstTheLog.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestAgainstTheLog = AgainstTheLog.TestCase


def test_idle_to_the_unit() -> None:
    """A window would close one moment early, or one late."""
    idleness: Idleness[str] = Idleness(IDLE)
    idleness.heard("a", 5)
    assert idleness.due("a") == 805
    assert [idleness.idle(now) for now in (804, 805)] == [[], ["a"]]


def test_who_was_given_up_comes_back_like_any_other() -> None:
    """A producer that comes back would stay idle, or be behind for ever."""
    idleness: Idleness[str] = Idleness(IDLE)
    idleness.heard("a", 0, 10_000)
    assert idleness.due("a") == PATIENCE * IDLE
    idleness.give_up("a")
    idleness.give_up("a")
    with pytest.raises(KeyError):
        idleness.due("a")
    idleness.heard("a", 9_000, 0)
    assert idleness.due("a") == 9_000 + IDLE


def test_a_stop_is_seen_wherever_it_begins() -> None:
    """A stop of more than two steps would hide between two rounds that are punctual."""
    for begin in range(STEP):
        idleness: Idleness[str] = Idleness(IDLE)
        idleness.heard("a", 0, 0)
        rounds = [at for at in range(0, 1000, STEP) if at <= begin]
        resumed = begin + 2 * STEP + 1
        for due in rounds:
            idleness.came_round(due, due)
        idleness.came_round(rounds[-1] + STEP, resumed)
        assert idleness.due("a") == resumed + IDLE, begin


@pytest.mark.parametrize("idle", [0, 1, 7])
def test_the_shortest_times_have_a_step(idle: int) -> None:
    """A timer for no time at all would fire for ever."""
    assert Idleness(idle).step == 1


def test_all_patience_is_bounded() -> None:
    """Doubt after doubt would keep a silent producer for ever."""
    idleness: Idleness[str] = Idleness(IDLE)
    idleness.heard("a", 0, 0)
    idleness.heard("b", 0, 9 * IDLE)
    for at in range(0, 10 * IDLE, 50):
        idleness.left_waiting(at)
    assert {idleness.due(key) for key in "ab"} == {PATIENCE * IDLE}
    assert [len(idleness.idle(now)) for now in (PATIENCE * IDLE - 1, PATIENCE * IDLE)] == [0, 2]

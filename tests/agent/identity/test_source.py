"""A source that may be missing."""

from __future__ import annotations

import logging

import pytest

from spanlite.agent.identity.source import Source, Unavailable
from spanlite.runtime.clock import ManualClock


def test_it_is_asked_once_in_so_long_and_forgets_when_it_fails() -> None:
    """An answer stays fresh for 10 s; a failure takes it away, and is not asked about again sooner either."""
    clock, asked = ManualClock(), 0
    answers: list[int | None] = [1, None, 3]

    def ask() -> int:
        nonlocal asked
        answer = answers[asked]
        asked += 1
        if answer is None:
            raise Unavailable("timeout", "it did not answer")
        return answer

    source = Source("kubelet", ask, clock, fresh_s=10)
    assert source.state == "not_asked"
    seen = []
    for _ in range(7):
        seen.append((source.get(), source.state, asked))
        clock.advance_ns(4 * 10**9)
    assert seen == [
        *[(1, "ok", 1)] * 3,
        *[(None, "timeout", 2)] * 3,
        (3, "ok", 3),
    ]


def test_an_answer_that_is_enough_is_not_asked_for_again() -> None:
    """What is known already needs no question, however old; what is not known is asked for."""
    clock = ManualClock()
    answers = iter([{1}, {1, 2}])
    source = Source("nvml", lambda: next(answers), clock, fresh_s=10)
    assert source.get(lambda known: 1 in known) == {1}
    clock.advance_ns(3600 * 10**9)
    assert source.get(lambda known: 1 in known) == {1}
    assert source.get(lambda known: 2 in known) == {1, 2}


def test_a_state_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A node without a kubelet has one line in its log, not one a connection."""

    def ask() -> int:
        raise Unavailable("absent", "no kubelet")

    clock = ManualClock()
    source = Source("kubelet", ask, clock, fresh_s=1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            source.get()
            clock.advance_ns(2 * 10**9)
    assert [record.getMessage() for record in caplog.records] == ["no identities by kubelet: absent (no kubelet)"]


def test_a_fault_of_ours_is_no_state() -> None:
    """An error that nobody foresaw is not taken for a missing kubelet."""
    source = Source("kubelet", lambda: 1 // 0, ManualClock(), fresh_s=1)
    with pytest.raises(ZeroDivisionError):
        source.get()

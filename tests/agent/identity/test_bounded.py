"""Calls that may hang."""

from __future__ import annotations

import threading
from concurrent import futures

import pytest

from spanlite.agent.identity.bounded import Bounded


def test_an_answer_and_an_error_come_through() -> None:
    """What the call gives or raises is what the caller gets."""
    bounded = Bounded()
    assert bounded.call(lambda: 7, 60) == 7
    with pytest.raises(ZeroDivisionError):
        bounded.call(lambda: 1 // 0, 60)


def test_calls_that_hang_are_left_behind_and_not_many() -> None:
    """Two hang: both callers go on, a third is refused without another thread; when they end, there is room again."""
    ended = threading.Event()
    bounded = Bounded(most=2)
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(futures.TimeoutError):
            bounded.call(ended.wait, 0.01)
    assert threading.active_count() == before + 2
    ended.set()
    assert bounded.call(lambda: 1, 60) == 1

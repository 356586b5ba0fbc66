"""A lock in the order of asking."""

from __future__ import annotations

import threading

import pytest

from spanlite.agent.turns import Turns
from tests.agent.waiting import until


def test_turns_come_in_the_order_of_asking() -> None:
    """Who has just had a turn and wants another stands behind those who waited: three at a time, ten rounds."""
    turns, order = Turns(), []

    def work(name: str) -> None:
        for _ in range(10):
            with turns.turn():
                order.append(name)
                until(lambda: turns.waiting == 2 or len(order) > 27)

    with turns.turn():
        threads = []
        for at, name in enumerate("abc"):
            threads.append(threading.Thread(target=work, args=(name,)))
            threads[-1].start()
            until(lambda at=at: turns.waiting == at + 1)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert "".join(order) == "abc" * 10


def test_a_fault_in_a_turn_ends_it() -> None:
    """An exception does not stop all others for ever."""
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.turn():
        _ = 1 // 0
    with turns.turn():
        assert turns.waiting == 0


def test_nobody_has_a_turn_beside_another() -> None:
    """Eight threads add to a number without a lock of its own: none of the additions is lost."""
    turns, total = Turns(), [0]

    def work() -> None:
        for _ in range(2000):
            with turns.turn():
                before = total[0]
                total[0] = before + 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == [16_000]

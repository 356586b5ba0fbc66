"""Room for frames: bounded, waited for, and taken back from those who stall."""

from __future__ import annotations

import threading

import pytest

from spanlite.agent.framememory import SMALL_BYTES, FrameMemory
from spanlite.runtime.clock import ManualClock, SystemClock
from tests.agent.waiting import until

_BIG = 8 * SMALL_BYTES


def _never() -> None:
    pytest.fail("hung up")


def test_room_is_given_up_to_the_limit_and_waited_for_beyond() -> None:
    """A third frame waits until one of two is done; small frames do not wait, and are not counted."""
    memory = FrameMemory(2 * _BIG, ManualClock(), patience_s=60)
    entered = threading.Event()

    def third() -> None:
        with memory.room(_BIG, _never):
            entered.set()

    with memory.room(_BIG, _never):
        with memory.room(_BIG, _never), memory.room(SMALL_BYTES, _never):
            assert memory.held_bytes == 2 * _BIG
            waiting = threading.Thread(target=third)
            waiting.start()
            assert not entered.wait(0.05)
        assert entered.wait(60)
        waiting.join()
        assert memory.held_bytes == _BIG
    assert memory.held_bytes == 0


def test_a_frame_larger_than_the_limit_gets_room_alone() -> None:
    """A limit below one frame must not stop its process for ever."""
    memory = FrameMemory(1, ManualClock())
    with memory.room(_BIG, _never):
        assert memory.held_bytes == _BIG


def test_who_stalls_is_hung_up_on_when_others_wait() -> None:
    """Of two that hold all the room, the one still being read goes; the one that is worked off stays."""
    memory = FrameMemory(2 * _BIG, SystemClock(), patience_s=0.02)
    hung_up, entered = threading.Event(), threading.Event()

    def stalled() -> None:
        with memory.room(_BIG, hung_up.set):
            assert hung_up.wait(60)

    def third() -> None:
        with memory.room(_BIG, _never) as read:
            read()
            entered.set()

    with memory.room(_BIG, _never) as read:
        read()
        threads = [threading.Thread(target=stalled)]
        threads[0].start()
        until(lambda: memory.held_bytes == 2 * _BIG)
        threads.append(threading.Thread(target=third))
        threads[1].start()
        assert entered.wait(60)
    for thread in threads:
        thread.join()
    assert memory.held_bytes == 0


def test_who_stalls_may_stay_while_there_is_room() -> None:
    """A process that a debugger has stopped loses nothing on an idle node."""
    clock = ManualClock()
    memory = FrameMemory(3 * _BIG, clock, patience_s=0.01)
    with memory.room(_BIG, _never):
        clock.advance_ns(3600 * 10**9)
        for _ in range(3):
            with memory.room(_BIG, _never) as read:
                read()

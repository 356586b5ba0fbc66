"""What connected collectors tell of themselves."""

from __future__ import annotations

import pytest

from spanlite.agent.connected import Connected
from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Clock, Frame, Header, pack_clock, pack_text
from spanlite.contract import catalogue


def _told(connected: Connected, key: int, kind: Frame, payload: bytes) -> None:
    connected.saw(key, Header(kind, len(payload), 1), payload)


def test_collectors_are_counted_by_the_state_told_last() -> None:
    """HELLO's state first, then that of STATS; who leaves is no longer counted; errors lose their number."""
    connected = Connected(AgentCounts())
    for key, state in enumerate(("waiting", "active", None, "cupti_error_15", "cupti_error_35", "Wrong State")):
        connected.enter(key, state, None if state is None else "none")
    _told(connected, 0, Frame.STATS, pack_text({"state": "active", "sampling": "duty"}))
    _told(connected, 1, Frame.STATS, pack_text({"dropped.cupti": "1"}))
    connected.leave(5)
    connected.leave(99)
    assert connected.gauges() == {
        catalogue.AGENT_COLLECTORS.name: [
            ({"state": "active", "sampling": "duty"}, 1.0),
            ({"state": "active", "sampling": "none"}, 1.0),
            ({"state": "cupti_error", "sampling": "none"}, 2.0),
            ({"state": "untold", "sampling": "untold"}, 1.0),
        ]
    }


def test_a_client_that_is_no_collector_is_not_counted() -> None:
    """A program that only tells of its metrics has a connection, but neither state nor clock; what it lost counts."""
    counts = AgentCounts()
    connected = Connected(counts)
    _told(connected, 1, Frame.STATS, pack_text({"state": "active", "stamps_dropped": "2"}))
    _told(connected, 1, Frame.CLOCK, pack_clock(Clock(1, 2, 3)))
    assert connected.gauges() == {catalogue.AGENT_COLLECTORS.name: []}
    assert counts.value(catalogue.AGENT_STAMPS_DROPPED) == 2


def test_words_for_states_are_bounded() -> None:
    """A process cannot make a label of everything it can think of."""
    connected = Connected(AgentCounts())
    for key in range(100):
        connected.enter(key, f"state_{chr(97 + key // 26)}{chr(97 + key % 26)}")
    samples = connected.gauges()[catalogue.AGENT_COLLECTORS.name]
    assert len(samples) == 33
    assert ({"state": "other", "sampling": "untold"}, 68.0) in samples


@pytest.mark.parametrize(("told", "counted"), [("7", 7), ("0", 0), ("-1", 0), ("x", 0), ("9" * 19, 0)])
def test_dropped_stamps_are_counted(told: str, counted: int) -> None:
    """Numbers add up over frames; what is none adds nothing."""
    counts = AgentCounts()
    connected = Connected(counts)
    connected.enter(1, None)
    for _ in range(2):
        _told(connected, 1, Frame.STATS, pack_text({"stamps_dropped": told}))
    assert counts.value(catalogue.AGENT_STAMPS_DROPPED) == 2 * counted


def test_the_worst_clock_shows() -> None:
    """Of the newest reading of each connection the largest uncertainty, and the offset furthest from zero, signed."""
    connected = Connected(AgentCounts())
    for key in (1, 2, 3):
        connected.enter(key, "active")
    _told(connected, 1, Frame.CLOCK, pack_clock(Clock(5, 5, 9_000)))
    _told(connected, 1, Frame.CLOCK, pack_clock(Clock(1_000_000_000, 1_000_000_500, 400)))
    _told(connected, 2, Frame.CLOCK, pack_clock(Clock(1_000_000_000, 999_999_700, 700)))
    found = connected.gauges()
    assert found[catalogue.AGENT_CLOCK_UNCERTAINTY.name] == [({}, 7e-7)]
    assert found[catalogue.AGENT_CLOCK_OFFSET.name] == [({}, -5e-7)]
    connected.leave(1)
    assert connected.gauges()[catalogue.AGENT_CLOCK_OFFSET.name] == [({}, 3e-7)]
    connected.leave(2)
    assert catalogue.AGENT_CLOCK_OFFSET.name not in connected.gauges()

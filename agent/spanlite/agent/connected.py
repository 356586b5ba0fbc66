"""What the connected collectors told of themselves, apart from spans: their state, their clock, what they lost."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Clock as ClockReading
from spanlite.agent.frames import Frame, Header, unpack_clock, unpack_text
from spanlite.agent.speakers import Speakers
from spanlite.contract import catalogue

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]
STATE, SAMPLING = "spanlite.collector.state", "spanlite.collector.sampling"
"""Of HELLO's resource attributes, those that tell the first state, and how much is recorded."""
UNTOLD, OTHER = "untold", "other"
_MOST_STATES = 32
"""Different words that become labels; more are `other`."""
_STATE = re.compile("[a-z][a-z_]{0,31}")
_COUNT = re.compile("[0-9]{1,18}")


@dataclass(slots=True)
class Collector:
    """A connection's collector."""

    state: str = UNTOLD
    sampling: str = UNTOLD
    clock: ClockReading | None = None


class Connected:
    """All that are connected; any thread may call."""

    def __init__(self, counts: AgentCounts, speakers: Speakers | None = None) -> None:
        self._counts = counts
        self._speakers = speakers or Speakers()
        self._lock = threading.Lock()
        self._all: dict[int, Collector] = {}
        self._words: set[str] = set()

    def enter(self, key: int, state: str | None, sampling: str | None = None) -> None:
        """A collector has said HELLO, with its state and how much it records, if it told them."""
        with self._lock:
            self._all[key] = Collector(self._word(state), self._word(sampling))

    def leave(self, key: int) -> None:
        """A connection is gone; does nothing if it was not entered."""
        with self._lock:
            self._all.pop(key, None)

    def saw(self, key: int, header: Header, payload: bytes) -> None:
        """A frame of a connection, checked already by whoever worked it off; most tell nothing here.

        What is no collector (it was not entered) has neither state nor clock.

        Raises:
            FrameError: it was not checked.
        """
        if header.type == Frame.CLOCK:
            reading = unpack_clock(payload)
            with self._lock:
                if key in self._all:
                    self._all[key].clock = reading
        elif header.type == Frame.STATS:
            said = unpack_text(payload)
            if _COUNT.fullmatch(said.get("stamps_dropped", "")) and int(said["stamps_dropped"]):
                self._counts.add(catalogue.AGENT_STAMPS_DROPPED, int(said["stamps_dropped"]))
            with self._lock:
                if key in self._all:
                    one = self._all[key]
                    one.state = self._word(said["state"]) if "state" in said else one.state
                    one.sampling = self._word(said["sampling"]) if "sampling" in said else one.sampling
            if "affordable" in said:
                self._speakers.priced(key, affordable=said["affordable"] == "1")

    def gauges(self) -> Samples:
        """Collectors by state; the worst uncertainty and the largest offset of a clock."""
        with self._lock:
            states = Counter((one.state, one.sampling) for one in self._all.values())
            clocks = [one.clock for one in self._all.values() if one.clock is not None]
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {
            catalogue.AGENT_COLLECTORS.name: [
                ({"state": state, "sampling": sampling}, float(n)) for (state, sampling), n in sorted(states.items())
            ]
        }
        if clocks:
            offset_ns = max((clock.cupti_ns - clock.unix_ns for clock in clocks), key=abs)
            uncertainty_ns = max(clock.uncertainty_ns for clock in clocks)
            found[catalogue.AGENT_CLOCK_OFFSET.name] = [({}, offset_ns / 1e9)]
            found[catalogue.AGENT_CLOCK_UNCERTAINTY.name] = [({}, uncertainty_ns / 1e9)]
        return found

    def _word(self, state: str | None) -> str:
        """A state as a label: without the number of an error, and of a bounded set."""
        if state is None:
            return UNTOLD
        word = re.sub("_[0-9]+$", "", state)
        if not _STATE.fullmatch(word):
            return OTHER
        if word not in self._words and len(self._words) >= _MOST_STATES:
            return OTHER
        self._words.add(word)
        return word

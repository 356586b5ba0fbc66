"""Whether the agent does its work: judged by progress, not by being there."""

from __future__ import annotations

from collections.abc import Mapping

from spanlite.agent.counts import AgentCounts
from spanlite.agent.sender import Sender
from spanlite.agent.server import AgentServer
from spanlite.contract import catalogue
from spanlite.runtime.clock import Clock

_STEP_NS = 100_000_000
"""Change between Unix and monotonic clock that is a step; NTP slews by 0.5 ms a second at most."""


class Health:
    """Looks at the parts of an agent; `look` is to be called about every second, `problems` by any thread.

    Args:
        stall_s: so long may batches wait with none delivered.
    """

    def __init__(
        self, server: AgentServer, sender: Sender, clock: Clock, counts: AgentCounts, *, stall_s: float
    ) -> None:
        self._server = server
        self._sender = sender
        self._clock = clock
        self._counts = counts
        self._stall_s = stall_s
        self._handled = 0
        self._progress_ns = clock.monotonic_ns()
        self._apart_ns = clock.unix_ns() - clock.monotonic_ns()

    def look(self) -> None:
        """Notes progress, and steps of the clock."""
        now_ns = self._clock.monotonic_ns()
        handled = self._counts.value(catalogue.AGENT_BATCHES_SENT)
        if handled != self._handled or not self._sender.spool.state().records:
            self._handled, self._progress_ns = handled, now_ns
        apart_ns = self._clock.unix_ns() - now_ns
        if abs(apart_ns - self._apart_ns) > _STEP_NS:
            self._counts.add(catalogue.AGENT_CLOCK_STEPS)
        self._apart_ns = apart_ns

    def problems(self) -> Mapping[str, str]:
        """Check → what is wrong in one sentence, or nothing."""
        return {"socket": self._server.problem(), "spool": self._spool(), "kafka": self._kafka()}

    def _spool(self) -> str:
        state = self._sender.spool.state()
        if not state.degraded:
            return ""
        return f"the disk takes nothing; {state.memory_bytes} bytes of batches are in memory alone"

    def _kafka(self) -> str:
        if self._sender.failure is not None:
            return f"sending ended by a fault: {self._sender.failure}"
        waiting = self._sender.spool.state().records
        stalled_s = (self._clock.monotonic_ns() - self._progress_ns) / 1e9
        if not waiting or stalled_s <= self._stall_s:
            return ""
        failures = self._counts.by_label(catalogue.AGENT_SEND_FAILURES)
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(failures.items())) or "none"
        return f"{waiting} batches wait and none was delivered for {stalled_s:.0f} s; failures so far: {told}"

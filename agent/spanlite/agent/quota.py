"""How much a traced process may send: over that its buffers are read and dropped, and no other process notices."""

from __future__ import annotations

from dataclasses import dataclass

from spanlite.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bounds of what peers may do; a rate of 0 is none.

    Attributes:
        bytes_per_s: of frames, for each connection.
        spans_per_s: in buffers, for each connection.
        connections: at once, of all users.
        uid_connections: at once, of one user.
        uid_rate: new connections a second of one user, with a burst of ten seconds' worth.
        hello_s: within which a connection has to say HELLO.
        memory_bytes: of large frames that are read, wait, or are worked off; at least one frame's 64 MiB.
    """

    bytes_per_s: int = 0
    spans_per_s: int = 0
    connections: int = 4096
    uid_connections: int = 1024
    uid_rate: int = 100
    hello_s: float = 10.0
    memory_bytes: int = 256 << 20


class Bucket:
    """Tokens that come at a rate, up to a burst. It may go below zero, so that one item larger than the burst passes.

    Over any time of t seconds it lets at most `rate` · t + `burst` through, and the last item.
    """

    def __init__(self, rate: float, clock: Clock, *, burst_s: float = 2.0) -> None:
        self._rate = rate
        self._clock = clock
        self._burst = rate * burst_s
        self._tokens = self._burst
        self._at_ns = clock.monotonic_ns()

    @property
    def full(self) -> bool:
        """Whether nothing was taken for so long that it is as new."""
        self._fill()
        return self._tokens >= self._burst

    def take(self, amount: int) -> bool:
        """Takes tokens if there is one at all; nothing otherwise. A rate of 0 lets all through."""
        if not self._rate:
            return True
        self._fill()
        if self._tokens <= 0:
            return False
        self._tokens -= amount
        return True

    def charge(self, amount: int) -> float:
        """Takes tokens in any case; seconds until the debt is paid, 0 where there is none."""
        if not self._rate:
            return 0.0
        self._fill()
        self._tokens -= amount
        return max(0.0, -self._tokens / self._rate)

    def _fill(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._tokens = min(self._burst, self._tokens + self._rate * (now_ns - self._at_ns) / 1e9)
        self._at_ns = now_ns

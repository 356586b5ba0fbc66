"""Who may connect: so many at once, so many a second, counted by the user that the kernel names."""

from __future__ import annotations

import threading
from collections import Counter

from spanlite.agent.quota import Bucket, Quotas
from spanlite.runtime.clock import Clock

_MOST_UIDS = 4096
"""Users whose rate is remembered; beyond, those that have not come lately are forgotten."""
_BURST_S = 10.0


class Admission:
    """Counts connections by user; any thread may call."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock
        self._lock = threading.Lock()
        self._open: Counter[int] = Counter()
        self._rates: dict[int, Bucket] = {}

    def admit(self, uid: int) -> str:
        """Lets a connection of a user in, for which `leave` is then due; or the reason why not."""
        with self._lock:
            if not self._rate_of(uid).take(1):
                return "uid_rate"
            if self._open.total() >= self._quotas.connections:
                return "connections"
            if self._open[uid] >= self._quotas.uid_connections:
                return "uid_connections"
            self._open[uid] += 1
            return ""

    def leave(self, uid: int) -> None:
        """A connection that was let in has ended."""
        with self._lock:
            self._open[uid] -= 1
            if not self._open[uid]:
                del self._open[uid]

    def _rate_of(self, uid: int) -> Bucket:
        known = self._rates.get(uid)
        if known is None:
            if len(self._rates) >= _MOST_UIDS:
                self._rates = {one: bucket for one, bucket in self._rates.items() if not bucket.full}
            known = self._rates[uid] = Bucket(self._quotas.uid_rate, self._clock, burst_s=_BURST_S)
        return known

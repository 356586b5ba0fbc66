"""What became of each request, as columns: counted, summed up in histograms, and handed on chunk by chunk."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64
from spanlite.replay.pacing.lateness import Lateness

ERRORS = (
    "",
    "refused",
    "unreachable",
    "dns",
    "tls",
    "timeout",
    "reset",
    "truncated",
    "protocol",
    "local",
    "queue_full",
    "stopped",
)
"""Why there is no whole response; "" where there is one. The last two: never sent, or given up when it was stopped."""
CODES = {name: code for code, name in enumerate(ERRORS)}
LOST = ("queue_full", "stopped")
UNCONNECTED = ("refused", "unreachable", "dns", "tls")
"""Nobody was there to take a request."""
CHUNK_ROWS = 1024
"""Counting them takes half a millisecond of whoever sends."""
_COUNTED = (
    *("statuses", "errors", "expected", "request_bytes", "response_bytes", "first_sent_ns", "last_sent_ns"),
    *("latency", "service", "dispatch", "first_byte"),
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Requests that have ended, in the order in which they did, k of them.

    Attributes:
        trace: ids, shape (k,) of V16.
        due_ns, sent_ns, first_byte_ns, done_ns: monotonic nanoseconds; 0 for what did not come to be.
        status: of the response; 0 without one.
        error: index into ERRORS.
        request_bytes, response_bytes: of the bodies, as they went over the wire.
    """

    trace: NDArray[np.void]
    due_ns: Int64
    sent_ns: Int64
    first_byte_ns: Int64
    done_ns: Int64
    status: Int64
    error: Int64
    request_bytes: Int64
    response_bytes: Int64

    def __len__(self) -> int:
        return len(self.due_ns)


class Outcomes:
    """Rows as they come, in one thread; nothing but counts stays in memory.

    Attributes:
        statuses_expected, keep, chunk_rows: as given.
        statuses: requests by status, of those with a whole response.
        errors: by kind, of those without.
        expected: with a whole response and a status that is.
        request_bytes, response_bytes: in all.
        latency: from due to the end of the response, of those that were answered or timed out.
        service: likewise from when it was written.
        dispatch: from due to written, of all that were.
        first_byte: from due to the head of the response.
    """

    def __init__(
        self, expected: frozenset[int], *, keep: Callable[[Rows], object] | None = None, chunk_rows: int = CHUNK_ROWS
    ) -> None:
        """`keep` is handed every chunk."""
        self.statuses_expected, self.keep, self.chunk_rows = expected, keep, chunk_rows
        self._expected = np.zeros(1000, dtype=bool)
        self._expected[list(expected)] = True
        self.statuses: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self.expected = self.request_bytes = self.response_bytes = 0
        self.first_sent_ns = self.last_sent_ns = 0
        self.latency, self.service, self.dispatch, self.first_byte = (Lateness() for _ in range(4))
        self._clear()

    def add(
        self,
        trace: bytes,
        times_ns: tuple[int, int, int, int],
        *,
        status: int = 0,
        error: str = "",
        sizes: tuple[int, int] = (0, 0),
    ) -> None:
        """Enters one request; see Rows."""
        self._trace += trace
        self._times.extend(times_ns)
        self._rest.extend((status, CODES[error], *sizes))
        if len(self._times) >= 4 * self.chunk_rows:
            self.fold()

    def fold(self) -> None:
        """Counts what has been entered, and hands it on."""
        if not self._times:
            return
        times = np.frombuffer(self._times, np.int64).reshape(-1, 4).T
        rest = np.frombuffer(self._rest, np.int64).reshape(-1, 4).T
        rows = Rows(np.frombuffer(bytes(self._trace), "V16"), *times, *rest)
        self._clear()
        self._count(rows)
        if self.keep is not None:
            self.keep(rows)

    def counts(self) -> dict[str, Any]:
        """All that has been counted, for the same outcomes in another process."""
        return {name: getattr(self, name) for name in _COUNTED}

    def take_over(self, counts: Mapping[str, Any]) -> None:
        """Has counted what another process has, by its `counts`, and nothing else."""
        for name in _COUNTED:
            setattr(self, name, counts[name])

    @property
    def count(self) -> int:
        """Requests entered and counted."""
        return self.statuses.total() + self.errors.total()

    @property
    def unexpected(self) -> int:
        """Those with a status that is not, or without a whole response, that were not lost."""
        return self.count - self.expected - sum(self.lost.values())

    @property
    def lost(self) -> Mapping[str, int]:
        """Those that were not sent, by reason."""
        return {reason: self.errors[reason] for reason in LOST if self.errors[reason]}

    def facts(self) -> dict[str, Any]:
        """All of it as JSON values."""
        failed = {kind: count for kind, count in sorted(self.errors.items()) if kind not in LOST}
        classes: Counter[str] = Counter()
        for status, count in self.statuses.items():
            classes[f"{status // 100}xx"] += count
        return {
            "requests": self.count,
            "as_expected": self.expected,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "classes": dict(sorted(classes.items())),
            "errors": failed,
            "lost": dict(self.lost),
            "request_bytes": self.request_bytes,
            "response_bytes": self.response_bytes,
            "latency_from_due_ns": quantiles(self.latency),
            "service_ns": quantiles(self.service),
            "first_byte_from_due_ns": quantiles(self.first_byte),
            "dispatch_ns": quantiles(self.dispatch),
        }

    def _clear(self) -> None:
        self._trace = bytearray()
        self._times, self._rest = array("q"), array("q")

    def _count(self, rows: Rows) -> None:
        whole = rows.error == CODES[""]
        statuses, counts = np.unique(rows.status[whole], return_counts=True)
        self.statuses.update(dict(zip(statuses.tolist(), counts.tolist(), strict=True)))
        kinds, counts = np.unique(rows.error[~whole], return_counts=True)
        self.errors.update({ERRORS[kind]: count for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)})
        self.expected += int(self._expected[rows.status[whole].clip(0, 999)].sum())
        self.request_bytes += int(rows.request_bytes.sum())
        self.response_bytes += int(rows.response_bytes.sum())
        ended, sent, answered = whole | (rows.error == CODES["timeout"]), rows.sent_ns > 0, rows.first_byte_ns > 0
        self.latency.add(_between(rows.due_ns, rows.done_ns, ended))
        self.service.add(_between(rows.sent_ns, rows.done_ns, ended & sent))
        self.first_byte.add(_between(rows.due_ns, rows.first_byte_ns, answered))
        self.dispatch.add(_between(rows.due_ns, rows.sent_ns, sent))
        if sent.any():
            first, last = int(rows.sent_ns[sent].min()), int(rows.sent_ns[sent].max())
            self.first_sent_ns = min(self.first_sent_ns or first, first)
            self.last_sent_ns = max(self.last_sent_ns, last)


def quantiles(values: Lateness) -> dict[str, float]:
    """Count, quantiles (at most 1.1 % off), maximum (exact)."""
    named = {f"p{q * 100:g}": values.quantile_ns(q) for q in (0.5, 0.9, 0.99, 0.999)}
    return {"count": values.count, **named, "max": values.max_ns}


def _between(begin: Int64, end: Int64, chosen: NDArray[np.bool_]) -> list[int]:
    out: list[int] = np.maximum(end[chosen] - begin[chosen], 0).tolist()
    return out

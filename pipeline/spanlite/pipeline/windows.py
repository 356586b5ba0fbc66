"""Event-time windows: which are open, when one closes, which spans came too late."""

from __future__ import annotations

from dataclasses import dataclass

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Kind
from spanlite.pipeline.partial import Partial, empty_partial, merge, select

SECOND_NS = 1_000_000_000
_MERGE_AFTER = 64
"""Pending partials are merged when there are this many: often enough to bound memory, seldom enough to be free."""


@dataclass(frozen=True, slots=True)
class WindowPolicy:
    """When windows close.

    Attributes:
        width_ns: window width.
        lateness_ns: how far behind the newest span a window's end must lie before it closes; None keeps every
            window open until `drain`, which is right for finite input.
        idle_ns: a producer this far behind the newest one no longer holds the watermark back.
    """

    width_ns: int = 10 * SECOND_NS
    lateness_ns: int | None = 5 * SECOND_NS
    idle_ns: int = 60 * SECOND_NS


class Windows:
    """Open windows of one pipeline.

    The watermark is the newest start seen from the slowest producer that is not idle. A window closes when the
    watermark is `lateness_ns` past its end; what arrives for it later is counted in `late_spans` and left out of the
    metrics (the archive keeps it).
    """

    def __init__(self, policy: WindowPolicy) -> None:
        self.policy = policy
        self.late_spans = 0
        self._pending: list[Partial] = []
        self._newest_ns: dict[bytes, int] = {}
        self._closed_before: int | None = None

    @property
    def watermark_ns(self) -> int | None:
        """None before the first span."""
        if not self._newest_ns:
            return None
        return min(self._busy().values())

    def add(self, batch: Batch, partial: Partial) -> None:
        """Takes what `fold_batch` made of a batch."""
        if self._closed_before is not None:
            on_time = partial.window >= self._closed_before
            if not on_time.all():
                self.late_spans += int(partial.spans[~on_time].sum())
                partial = select(partial, on_time)
        work = batch.columns.start_ns[batch.columns.kind != Kind.RANGE]
        if len(work):
            seen = self._newest_ns.get(batch.producer)
            newest = int(work.max())
            self._newest_ns[batch.producer] = newest if seen is None else max(seen, newest)
        if len(partial):
            self._pending.append(partial)
        if len(self._pending) >= _MERGE_AFTER:
            self._pending = [merge(self._pending)]

    def close_due(self) -> Partial:
        """Rows of the windows that the watermark has left behind; each window comes out once."""
        watermark = self.watermark_ns
        if watermark is None or self.policy.lateness_ns is None:
            return empty_partial()
        before = (watermark - self.policy.lateness_ns) // self.policy.width_ns
        if self._closed_before is not None and before <= self._closed_before:
            return empty_partial()
        return self._close(before)

    def drain(self) -> Partial:
        """Rows of all windows still open, at the end of the input."""
        if not any(len(partial) for partial in self._pending):
            return empty_partial()
        return self._close(max(int(partial.window.max()) for partial in self._pending if len(partial)) + 1)

    def _close(self, before: int) -> Partial:
        everything = merge(self._pending)
        due = everything.window < before
        self._pending = [select(everything, ~due)]
        self._closed_before = before
        self._newest_ns = self._busy()  # producers that have ended must not pile up
        return select(everything, due)

    def _busy(self) -> dict[bytes, int]:
        """Newest start of each producer that is not idle."""
        horizon = max(self._newest_ns.values()) - self.policy.idle_ns
        return {producer: newest for producer, newest in self._newest_ns.items() if newest >= horizon}

"""Event-time windows of one producer: which are open, when one closes, which spans came too late."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.pipeline.partial import Partial, empty_partial, merge, select

SECOND_NS = 1_000_000_000
_MERGE_AFTER = 16
"""Pending partials are merged when there are this many: often enough to bound memory and state, seldom enough to be
free."""


@dataclass(frozen=True, slots=True)
class WindowPolicy:
    """When windows close.

    Attributes:
        width_ns: window width.
        lateness_ns: how far behind the producer's newest span a window's end must lie before it closes; None keeps
            every window open until `drain`, which is right for finite input.
        idle_ns: a producer from which nothing has come for so long (by the reader's clock) has its windows closed.
    """

    width_ns: int = 10 * SECOND_NS
    lateness_ns: int | None = 2 * SECOND_NS
    idle_ns: int = 10 * SECOND_NS


class Windows:
    """Open windows of one producer.

    A producer's time is its own: the watermark is the newest start that it has sent, so what closes when depends on
    the order of its own batches alone, and no other producer, ahead or behind, can make its spans late. What comes for
    a closed window comes out at once as late: counted apart, never lost.

    Attributes:
        newest_ns: newest start of its GPU work; None before the first.
        closed_before: windows with a lower number are closed; None while none is.
        pending: aggregates of the open windows, to be merged.
    """

    def __init__(
        self,
        policy: WindowPolicy,
        *,
        newest_ns: int | None = None,
        closed_before: int | None = None,
        pending: Iterable[Partial] = (),
    ) -> None:
        self.policy = policy
        self.newest_ns = newest_ns
        self.closed_before = closed_before
        self.pending = list(pending)

    def add(self, batch: Batch, partial: Partial) -> Partial:
        """Takes what `fold_batch` made of a batch; the rows of it that are late come back."""
        late = empty_partial()
        if self.closed_before is not None:
            on_time = partial.window >= self.closed_before
            if not on_time.all():
                late, partial = select(partial, ~on_time), select(partial, on_time)
        newest = newest_start_ns(batch)
        if newest is not None:
            self.newest_ns = newest if self.newest_ns is None else max(self.newest_ns, newest)
        if len(partial):
            self.pending.append(partial)
        if len(self.pending) >= _MERGE_AFTER:
            self.pending = [merge(self.pending)]
        return late

    def close_due(self) -> Partial:
        """Rows of the windows that the watermark has left behind; each window comes out once."""
        if self.newest_ns is None or self.policy.lateness_ns is None:
            return empty_partial()
        before = (self.newest_ns - self.policy.lateness_ns) // self.policy.width_ns
        if self.closed_before is not None and before <= self.closed_before:
            return empty_partial()
        return self._close(before)

    def drain(self) -> Partial:
        """Rows of all windows still open: at the end of the input, or when the producer is idle."""
        if not self.pending:
            return empty_partial()
        return self._close(max(int(partial.window.max()) for partial in self.pending) + 1)

    def _close(self, before: int) -> Partial:
        everything = merge(self.pending)
        due = everything.window < before
        self.pending = [] if due.all() else [select(everything, ~due)]
        self.closed_before = before
        return select(everything, due)


def newest_start_ns(batch: Batch) -> int | None:
    """Newest start of a batch's GPU work; None where it has none. Ranges are the host's and move no watermark."""
    columns = batch.columns
    if not len(columns):
        return None
    work = ~columns.is_range
    if work.all():
        return int(columns.start_ns.max())
    return int(columns.start_ns[work].max()) if np.any(work) else None

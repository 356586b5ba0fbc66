"""One producer: which of its batches were seen, which of its windows are open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.state import Progress
from spanlite.pipeline.dedupe import Sequences
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import Partial, empty_partial
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy, Windows


class Folded(NamedTuple):
    """What a batch has led to.

    Attributes:
        closed: rows of the windows that it has closed.
        late: rows of its own that belong to windows closed before.
        spans, ranges: rows that are GPU work, and rows that are ranges.
    """

    closed: Partial
    late: Partial
    spans: int = 0
    ranges: int = 0


class ProducerFold:
    """Folds the batches of one producer; what comes out depends on those batches and their order alone."""

    def __init__(
        self,
        policy: WindowPolicy,
        registry: SeriesRegistry,
        *,
        progress: Progress | None = None,
        pending: list[Partial] | None = None,
    ) -> None:
        """Begins, or goes on from where `progress` and `pending` were taken."""
        kept = progress or Progress()
        self.registry = registry
        self.taken = Sequences(kept.taken)
        self.windows = Windows(
            policy, newest_ns=kept.newest_ns, closed_before=kept.closed_before, pending=pending or []
        )

    @property
    def progress(self) -> Progress:
        """All that must be kept besides the pending partials."""
        return Progress(self.taken.runs, self.windows.newest_ns, self.windows.closed_before)

    def take(self, batch: Batch) -> Folded | None:
        """Folds a batch; None when it was taken before."""
        if not self.taken.first_time(batch.sequence):
            return None
        ranges = int(np.count_nonzero(batch.columns.is_range))
        late = self.windows.add(batch, fold_batch(batch, self.windows.policy.width_ns, self.registry))
        return Folded(self.windows.close_due(), late, len(batch.columns) - ranges, ranges)

    def drain(self) -> Folded:
        """Closes every open window."""
        return Folded(self.windows.drain(), empty_partial())

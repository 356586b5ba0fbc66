"""Archived batches through the pipeline's own stages, without a clock: what comes out follows from what goes in."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from spanlite.contract.batch import Batch
from spanlite.contract.errors import BatchError
from spanlite.pipeline.counts import FoldCounts
from spanlite.pipeline.partial import Partial, merge, stack
from spanlite.pipeline.plausible import check_batch
from spanlite.pipeline.pointset import PointSet
from spanlite.pipeline.producer import ProducerFold
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.topk import TopK
from spanlite.pipeline.windows import WindowPolicy

log = logging.getLogger(__name__)


@dataclass
class Account:
    """Where the spans went: spans = folded + ranges + rejected; late ones are among the folded.

    Attributes:
        folds: what was folded.
        rejected: spans of batches that claim what no agent can have measured, by reason.
        series: how many there are.
        in_other: kernels that have no series of their own.
    """

    folds: FoldCounts = field(default_factory=FoldCounts)
    rejected: Counter[str] = field(default_factory=Counter)
    series: int = 0
    in_other: int = 0

    @property
    def spans(self) -> int:
        """All that came."""
        return self.folds.spans + self.rejected.total()


class Backtest:
    """The graph of the embedded pipeline behind the decoding of messages, with idleness left out: it needs a clock.

    Batches of a producer must come in the order in which it sent them if windows close before the end (`lateness_ns` is
    not None); else any order gives the same points.
    """

    def __init__(self, policy: WindowPolicy, *, top_k: int) -> None:
        self.account = Account()
        self._policy = policy
        self._registry = SeriesRegistry()
        self._top = TopK(top_k, self._registry)
        self._producers: dict[bytes, ProducerFold] = {}
        self._numbers: dict[bytes, count[int]] = {}
        self._told: list[Partial] = []

    def take(self, batch: Batch, *, fillers: int = 0) -> None:
        """Folds a batch. Nothing is taken for a duplicate: an archive, and a plan of it, hold each batch once.

        Args: fillers: how many of its ranges only stand for rows that were left out, and are not counted.
        """
        rows = len(batch.columns) - fillers
        try:
            check_batch(batch)
        except BatchError as error:
            log.warning("batch %d of producer %s is left out: %s", batch.sequence, batch.producer.hex(), error)
            self.account.rejected[error.reason] += rows
            return
        producer = self._producers.get(batch.producer)
        if producer is None:
            producer = self._producers[batch.producer] = ProducerFold(self._policy, self._registry)
            self._numbers[batch.producer] = count()
        # Of a batch of which a selection has left rows out there may be several parts, all of one sequence.
        folded = producer.take(replace(batch, sequence=next(self._numbers[batch.producer])))
        if folded is None:
            return
        self.account.folds.take(rows, folded._replace(ranges=folded.ranges - fillers), 0)
        self._tell(merge([folded.closed, folded.late]))

    def finish(self) -> PointSet:
        """Closes all windows; every point, in an order that follows from the points themselves."""
        self._tell(merge([producer.drain().closed for producer in self._producers.values()]))
        rows = stack(self._told)
        self.account.series, self.account.in_other = len(set(rows.series.tolist())), self._top.folded
        return PointSet(self._policy.width_ns, self._registry, rows).ordered()

    def _tell(self, closed: Partial) -> None:
        if len(closed):
            self._told.append(self._top.apply(closed))


def backtest(batches: Iterable[Batch], policy: WindowPolicy, *, top_k: int) -> PointSet:
    """The points of some batches."""
    run = Backtest(policy, top_k=top_k)
    for batch in batches:
        run.take(batch)
    return run.finish()

"""The pipeline in one process: decode, drop what was seen, fold, close windows, archive. No broker, no JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import DEFAULT_LIMITS, Limits, decode_batch
from spanlite.contract.errors import BatchError
from spanlite.contract.points import Point
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.pipeline.counts import FoldCounts, Samples
from spanlite.pipeline.idleness import Idleness
from spanlite.pipeline.partial import Partial, merge
from spanlite.pipeline.plausible import check_batch
from spanlite.pipeline.points import Totals, points
from spanlite.pipeline.producer import Folded, ProducerFold
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.topk import TopK
from spanlite.pipeline.windows import WindowPolicy, newest_start_ns
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.transport.ports import Consumer, Record

log = logging.getLogger(__name__)

DEFAULT_TOP_K = 500
_POLL = 64


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go; each is called on the pipeline's thread.

    Attributes:
        window_points: what each series did in the windows that have just closed; points of one series and window
            (late ones, or of two processes) add up.
        total_points: the cumulative points of the same series.
        batch: every batch that is new, before it is folded.
        dead_letter: a record that is no batch, and why.
    """

    window_points: Callable[[list[Point]], None] = lambda _points: None
    total_points: Callable[[list[Point]], None] = lambda _points: None
    batch: Callable[[Batch], None] = lambda _batch: None
    dead_letter: Callable[[Record, BatchError], None] = lambda _record, _error: None


class EmbeddedPipeline:
    """Drives the pure functions over a consumer; one thread calls it, any thread may read `counters`."""

    def __init__(
        self,
        consumer: Consumer,
        outputs: Outputs,
        *,
        policy: WindowPolicy | None = None,
        archive: ArchiveWriter | None = None,
        top_k: int = DEFAULT_TOP_K,
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock | None = None,
    ) -> None:
        self._consumer = consumer
        self._outputs = outputs
        self._policy = policy or WindowPolicy()
        self._archive = archive
        self._limits = limits
        self._clock = clock or SystemClock()
        self._registry = SeriesRegistry()
        self._producers: dict[bytes, ProducerFold] = {}
        self._idleness: Idleness[bytes] = Idleness(self._policy.idle_ns)
        self._top = TopK(top_k, self._registry)
        self._totals = Totals(self._policy.width_ns, self._registry, epoch=self._clock.unix_ns())
        self._counts = FoldCounts()
        self._windows_closed = self._points_emitted = self._last_event_ns = 0
        self._lock = Lock()
        self._round_ended_ns = self._clock.monotonic_ns()

    def run_once(self, timeout_s: float) -> int:
        """Reads what has come within the time and works it off; the number of records read.

        Raises:
            ArchiveError: the archive cannot be written.
        """
        records = self._consumer.poll(_POLL, timeout_s)
        now = self._clock.monotonic_ns()
        self._idleness.came_round(self._round_ended_ns + round(timeout_s * 1e9), now)
        if len(records) == _POLL:
            self._idleness.left_waiting(now)
        for record in records:
            self._take(record)
        self._close_idle(now)
        self._consumer.commit()
        self._round_ended_ns = self._clock.monotonic_ns()
        return len(records)

    def finish(self) -> None:
        """Closes all windows and writes the archive's last files.

        Raises:
            ArchiveError: the archive cannot be written.
        """
        self._emit(merge([producer.drain().closed for producer in self._producers.values()]))
        if self._archive:
            self._archive.close()

    def counters(self) -> Samples:
        """The pipeline's own metrics.

        spans received = folded + ignored, and = archived + duplicate once `finish` has run; late spans are folded too.
        """
        with self._lock:
            return {
                **self._counts.samples(),
                catalogue.PIPELINE_SPANS_ARCHIVED.name: [({}, self._archive.spans_written if self._archive else 0)],
                catalogue.PIPELINE_WINDOWS_CLOSED.name: [({}, self._windows_closed)],
                catalogue.PIPELINE_POINTS_EMITTED.name: [({}, self._points_emitted)],
                catalogue.PIPELINE_LAST_EVENT.name: [({"stage": "fold"}, self._last_event_ns / 1e9)]
                if self._last_event_ns
                else [],
            }

    def _take(self, record: Record) -> None:
        try:
            batch = decode_batch(record.value, self._limits)
            check_batch(batch)
        except BatchError as error:
            log.warning("%s offset %d is no batch: %s", record.topic, record.offset, error)
            with self._lock:
                self._counts.reject(error.reason)
                self._counts.batches += 1
            self._outputs.dead_letter(record, error)
            return
        producer = self._producers.get(batch.producer)
        if producer is None:
            producer = self._producers[batch.producer] = ProducerFold(self._policy, self._registry)
        self._idleness.heard(batch.producer, self._clock.monotonic_ns())
        given_up = producer.taken.given_up
        folded = producer.take(batch)
        self._count(batch, folded, producer.taken.given_up - given_up)
        if folded is None:
            return
        self._outputs.batch(batch)
        if self._archive:
            self._archive.add(batch)
        self._emit(merge([folded.closed, folded.late]))

    def _count(self, batch: Batch, folded: Folded | None, given_up: int) -> None:
        newest = newest_start_ns(batch) if folded else None
        with self._lock:
            self._counts.take(len(batch.columns), folded, given_up)
            if newest is not None:
                self._last_event_ns = max(self._last_event_ns, newest)

    def _close_idle(self, now: int) -> None:
        """Closes the windows of producers from which nothing has come for long, as of the last poll."""
        if self._policy.lateness_ns is None:
            return
        for name in self._idleness.idle(now):
            self._idleness.give_up(name)
            self._emit(self._producers[name].drain().closed)

    def _emit(self, closed: Partial) -> None:
        if len(closed) == 0:
            return
        kept = self._top.apply(closed)
        window_points = points(kept, self._policy.width_ns, self._registry)
        with self._lock:
            self._windows_closed += len(set(kept.window.tolist()))
            self._points_emitted += len(window_points)
        self._outputs.window_points(window_points)
        self._outputs.total_points(self._totals.add(kept))


def drain(pipeline: EmbeddedPipeline) -> Iterator[int]:
    """Runs until the consumer has nothing more; yields the records of each round."""
    while read := pipeline.run_once(0):
        yield read

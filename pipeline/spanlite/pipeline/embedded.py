"""The pipeline in one process: decode, drop what was seen, fold, close windows, archive. No broker, no JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import DEFAULT_LIMITS, Limits, decode_batch
from spanlite.contract.errors import BatchError
from spanlite.contract.points import Point
from spanlite.pipeline.archive.write import ArchiveWriter
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


@dataclass(slots=True)
class _Counts:
    batches: int = 0
    spans: int = 0
    folded: int = 0
    ranges: int = 0
    duplicates: int = 0
    late: int = 0
    given_up: int = 0
    windows: int = 0
    points: int = 0
    last_event_ns: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


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
        self._busy: dict[bytes, int] = {}
        self._top = TopK(top_k, self._registry)
        self._totals = Totals(self._policy.width_ns, self._registry, epoch=self._clock.unix_ns())
        self._counts = _Counts()
        self._lock = Lock()

    def run_once(self, timeout_s: float) -> int:
        """Reads what has come within the time and works it off; the number of records read.

        Raises:
            ArchiveError: the archive cannot be written.
        """
        records = self._consumer.poll(_POLL, timeout_s)
        for record in records:
            self._take(record)
        self._close_idle()
        self._consumer.commit()
        return len(records)

    def finish(self) -> None:
        """Closes all windows and writes the archive's last files.

        Raises:
            ArchiveError: the archive cannot be written.
        """
        self._emit(merge([producer.drain().closed for producer in self._producers.values()]))
        self._busy.clear()
        if self._archive:
            self._archive.close()

    def counters(self) -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
        """The pipeline's own metrics.

        spans received = folded + ignored, and = archived + duplicate once `finish` has run; late spans are folded too.
        """
        with self._lock:
            counts = self._counts
            return {
                catalogue.PIPELINE_BATCHES_RECEIVED.name: [({}, counts.batches)],
                catalogue.PIPELINE_BATCHES_REJECTED.name: [
                    ({"reason": reason}, count) for reason, count in sorted(counts.rejected.items())
                ],
                catalogue.PIPELINE_SPANS_RECEIVED.name: [({}, counts.spans)],
                catalogue.PIPELINE_SPANS_FOLDED.name: [({}, counts.folded)],
                catalogue.PIPELINE_SPANS_IGNORED.name: [
                    ({"reason": "range"}, counts.ranges),
                    ({"reason": "duplicate"}, counts.duplicates),
                ],
                catalogue.PIPELINE_LATE_SPANS.name: [({}, counts.late)],
                catalogue.PIPELINE_SEQUENCES_GIVEN_UP.name: [({"stage": "fold"}, counts.given_up)],
                catalogue.PIPELINE_SPANS_ARCHIVED.name: [({}, self._archive.spans_written if self._archive else 0)],
                catalogue.PIPELINE_WINDOWS_CLOSED.name: [({}, counts.windows)],
                catalogue.PIPELINE_POINTS_EMITTED.name: [({}, counts.points)],
                catalogue.PIPELINE_LAST_EVENT.name: [({"stage": "fold"}, counts.last_event_ns / 1e9)]
                if counts.last_event_ns
                else [],
            }

    def _take(self, record: Record) -> None:
        try:
            batch = decode_batch(record.value, self._limits)
            check_batch(batch)
        except BatchError as error:
            log.warning("%s offset %d is no batch: %s", record.topic, record.offset, error)
            with self._lock:
                self._counts.rejected[error.reason] = self._counts.rejected.get(error.reason, 0) + 1
                self._counts.batches += 1
            self._outputs.dead_letter(record, error)
            return
        producer = self._producers.get(batch.producer)
        if producer is None:
            producer = self._producers[batch.producer] = ProducerFold(self._policy, self._registry)
        self._busy[batch.producer] = self._clock.monotonic_ns()
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
        rows = len(batch.columns)
        with self._lock:
            counts = self._counts
            counts.batches += 1
            counts.spans += rows
            counts.given_up += given_up
            if folded is None:
                counts.duplicates += rows
                return
            counts.folded += folded.spans
            counts.ranges += folded.ranges
            counts.late += int(folded.late.spans.sum())
            newest = newest_start_ns(batch)
            if newest is not None:
                counts.last_event_ns = max(counts.last_event_ns, newest)

    def _close_idle(self) -> None:
        """Closes the windows of producers from which nothing has come for long."""
        if self._policy.lateness_ns is None:
            return
        since = self._clock.monotonic_ns() - self._policy.idle_ns
        for name in [name for name, at in self._busy.items() if at < since]:
            del self._busy[name]
            self._emit(self._producers[name].drain().closed)

    def _emit(self, closed: Partial) -> None:
        if len(closed) == 0:
            return
        kept = self._top.apply(closed)
        window_points = points(kept, self._policy.width_ns, self._registry)
        with self._lock:
            self._counts.windows += len(set(kept.window.tolist()))
            self._counts.points += len(window_points)
        self._outputs.window_points(window_points)
        self._outputs.total_points(self._totals.add(kept))


def drain(pipeline: EmbeddedPipeline) -> Iterator[int]:
    """Runs until the consumer has nothing more; yields the records of each round."""
    while read := pipeline.run_once(0):
        yield read

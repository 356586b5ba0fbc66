"""The pipeline in one process: decode, drop what was seen, fold, close windows, archive. No broker, no JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import DEFAULT_LIMITS, Limits, decode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.errors import BatchError
from spanlite.contract.points import Point
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.pipeline.dedupe import Seen
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import Partial
from spanlite.pipeline.points import Totals, points
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.topk import TopK
from spanlite.pipeline.windows import WindowPolicy, Windows
from spanlite.transport.ports import Consumer, Record

log = logging.getLogger(__name__)

DEFAULT_TOP_K = 500
_POLL = 64


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go; each is called on the pipeline's thread.

    Attributes:
        window_points: what each series did in the windows that have just closed.
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
    ) -> None:
        self._consumer = consumer
        self._outputs = outputs
        self._policy = policy or WindowPolicy()
        self._archive = archive
        self._limits = limits
        self._registry = SeriesRegistry()
        self._seen = Seen()
        self._windows = Windows(self._policy)
        self._top = TopK(top_k, self._registry)
        self._totals = Totals(self._policy.width_ns, self._registry)
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
            self._close(self._windows.close_due())  # after each, so that how many came at once decides nothing
        self._consumer.commit()
        return len(records)

    def finish(self) -> None:
        """Closes all windows and writes the archive's last files.

        Raises:
            ArchiveError: the archive cannot be written.
        """
        self._close(self._windows.drain())
        if self._archive:
            self._archive.close()

    def counters(self) -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
        """The pipeline's own metrics.

        spans received = folded + ignored + late, and = archived + duplicate once `finish` has run.
        """
        with self._lock:
            counts = self._counts
            late = self._windows.late_spans
            return {
                catalogue.PIPELINE_BATCHES_RECEIVED.name: [({}, counts.batches)],
                catalogue.PIPELINE_BATCHES_REJECTED.name: [
                    ({"reason": reason}, count) for reason, count in sorted(counts.rejected.items())
                ],
                catalogue.PIPELINE_SPANS_RECEIVED.name: [({}, counts.spans)],
                catalogue.PIPELINE_SPANS_FOLDED.name: [({}, counts.folded - late)],
                catalogue.PIPELINE_SPANS_IGNORED.name: [
                    ({"reason": "range"}, counts.ranges),
                    ({"reason": "duplicate"}, counts.duplicates),
                ],
                catalogue.PIPELINE_LATE_SPANS.name: [({}, late)],
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
        except BatchError as error:
            log.warning("%s offset %d is no batch: %s", record.topic, record.offset, error)
            with self._lock:
                self._counts.rejected[error.reason] = self._counts.rejected.get(error.reason, 0) + 1
                self._counts.batches += 1
            self._outputs.dead_letter(record, error)
            return
        rows = len(batch.columns)
        new = self._seen.first_time(batch.producer, batch.sequence)
        with self._lock:
            self._counts.batches += 1
            self._counts.spans += rows
            self._counts.duplicates += 0 if new else rows
        if not new:
            return
        self._outputs.batch(batch)
        if self._archive:
            self._archive.add(batch)
        partial = fold_batch(batch, self._policy.width_ns, self._registry)
        ranges = int((batch.columns.kind == Kind.RANGE).sum())
        with self._lock:
            self._windows.add(batch, partial)
            self._counts.folded += rows - ranges
            self._counts.ranges += ranges
            if rows:
                self._counts.last_event_ns = max(self._counts.last_event_ns, int(batch.columns.start_ns.max()))

    def _close(self, closed: Partial) -> None:
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

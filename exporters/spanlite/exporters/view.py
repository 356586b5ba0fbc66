"""The table of points as a materialised view of a topic: filled from its beginning, then kept up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread

from spanlite.contract import catalogue
from spanlite.contract.columns import Kind
from spanlite.contract.errors import PointError, SpanliteError
from spanlite.contract.point_codec import DEFAULT_POINT_LIMITS, PointLimits, decode_point
from spanlite.contract.points import Point
from spanlite.exporters.table import Counters, PointTable
from spanlite.transport.ports import Consumer, Record

_LOG = logging.getLogger(__name__)
_MOST_RECORDS = 2000
_POLL_S = 0.2


class PointView:
    """Reads the records of a topic into a table, from a thread of its own.

    A record without a value ends the series that its key names. One that is no cumulative point of GPU work is
    counted by reason, logged the first time, and passed over.
    """

    def __init__(
        self,
        consumer: Consumer,
        table: PointTable,
        *,
        caught_up: Callable[[], bool],
        limits: PointLimits = DEFAULT_POINT_LIMITS,
    ) -> None:
        """Args: caught_up: whether `consumer` has handed out all that the topic held when it was opened."""
        self._consumer = consumer
        self._table = table
        self._caught_up = caught_up
        self._limits = limits
        self._lock = Lock()
        self._records = 0
        self._tombstones = 0
        self._rejected: dict[str, int] = {}
        self._ready = False
        self._stopping = False
        self._ended = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="points", daemon=True)

    def is_ready(self) -> bool:
        """Whether the table holds all that the topic held at the start; before that counters would be seen to fall."""
        return self._ready

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the records at hand; returns when the thread has ended."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until reading has ended; False when it had not in time.

        Raises:
            SpanliteError, or whatever else made it end other than by `stop`.
        """
        ended = self._ended.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return ended

    def counters(self) -> Counters:
        """Own metrics, for PointTable.set_counters."""
        with self._lock:
            return {
                catalogue.EXPORTER_RECORDS.name: [({}, self._records)],
                catalogue.EXPORTER_TOMBSTONES.name: [({}, self._tombstones)],
                catalogue.EXPORTER_REJECTED.name: [({"reason": word}, n) for word, n in self._rejected.items()],
            }

    def step(self) -> int:
        """Takes what one poll gives; returns how many records that were."""
        records = self._consumer.poll(_MOST_RECORDS, _POLL_S)
        self._take(records)
        self._ready = self._ready or self._caught_up()
        return len(records)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self.step()
        except BaseException as error:  # noqa: BLE001  # raised again by `wait`, in the thread that can end the program
            self._failure = error
            if not isinstance(error, SpanliteError):
                _LOG.exception("reading points has failed")
        finally:
            self._ended.set()

    def _take(self, records: list[Record]) -> None:
        """Puts points in bulk, and in their order with the tombstones between them."""
        points: list[Point] = []
        tombstones = 0
        reasons: dict[str, int] = {}
        for record in records:
            if not record.value:
                self._table.put(points)
                points = []
                self._table.remove([record.key])
                tombstones += 1
                continue
            try:
                points.append(self._decode(record))
            except PointError as error:
                reasons[error.reason] = reasons.get(error.reason, 0) + 1
                if error.reason not in self._rejected:
                    _LOG.warning("record %d of topic %s is passed over: %s", record.offset, record.topic, error)
        self._table.put(points)
        with self._lock:
            self._records += len(records)
            self._tombstones += tombstones
            for reason, number in reasons.items():
                self._rejected[reason] = self._rejected.get(reason, 0) + number

    def _decode(self, record: Record) -> Point:
        point = decode_point(record.value, self._limits)
        if not point.cumulative:
            raise PointError("window", "it counts one window; the exporter shows totals since the series began")
        if point.series.kind == Kind.RANGE:
            raise PointError("range", "a range is host time, not GPU work")
        return point

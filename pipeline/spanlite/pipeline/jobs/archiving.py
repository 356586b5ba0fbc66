"""The archive job's stage as Flink's keyed function: state and timers in, files out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyflink.common import Row
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.time_domain import TimeDomain

from spanlite.pipeline.archive.flush import writer
from spanlite.pipeline.archivestage import ArchiveStage
from spanlite.pipeline.jobs.counting import Counters
from spanlite.pipeline.jobs.state import FlinkLog, FlinkValue
from spanlite.pipeline.jobs.timers import Activity, Fired, Soon
from spanlite.runtime.allocator import keep_freed


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What an archive job is told.

    Attributes:
        archive: folder or URI.
        buckets: files an hour, producer and flush, by a hash of the trace.
        most_spans: a producer's batches are written when they hold so many.
        flush_ms: or when the oldest has waited so long.
        idle_ms: a producer that is quiet for so long is taken out of memory.
        retain_ms: and its state is given up after this.
    """

    archive: str
    buckets: int
    most_spans: int
    flush_ms: int
    idle_ms: int
    retain_ms: int


class Archive(KeyedProcessFunction):  # type: ignore[misc]  # pyflink ships no types
    """The stage, keyed by producer (hex). Nothing comes out: the files are the result."""

    def __init__(self, plan: ArchivePlan) -> None:
        self._plan = plan

    def open(self, runtime_context: RuntimeContext) -> None:
        """Takes hold of state and archive; called once per subtask and start."""
        keep_freed()
        pa.set_memory_pool(pa.system_memory_pool())  # its own would give memory back after each file
        plan = self._plan
        self._stage = ArchiveStage(
            writer(plan.archive, buckets=plan.buckets),
            FlinkValue(runtime_context, "progress"),
            FlinkLog(runtime_context, "buffer"),
            most_spans=plan.most_spans,
        )
        self._activity = Activity(plan.idle_ms, plan.retain_ms)
        self._due = Soon(plan.flush_ms)
        self._counters = Counters(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        """One message."""
        key, timers = ctx.get_current_key(), ctx.timer_service()
        self._activity.active(key, timers)
        if self._stage.take(bytes.fromhex(key), bytes(value)):
            self._due.arm(key, timers)
        self._counters.update(self._stage.counts.by_name())
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Row]:
        """Writes what waits: it is old enough, the producer is idle, or the input has ended."""
        key, timers = ctx.get_current_key(), ctx.timer_service()
        producer = bytes.fromhex(key)
        fired = Fired.NOTHING
        if ctx.time_domain() == TimeDomain.PROCESSING_TIME:
            fired = self._activity.fired(key, timestamp, timers)
        if fired is Fired.GONE:
            self._stage.forget(producer)
            return ()
        if fired is Fired.IDLE or self._due.fired(key, timestamp) or ctx.time_domain() == TimeDomain.EVENT_TIME:
            self._stage.flush(producer)
            self._counters.update(self._stage.counts.by_name())
        if fired is Fired.IDLE:
            self._stage.release(producer)
        return ()

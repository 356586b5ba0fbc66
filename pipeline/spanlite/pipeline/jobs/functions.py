"""The stages of the metrics job as Flink's keyed functions: state in, outputs out, timers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext
from pyflink.datastream.time_domain import TimeDomain

from spanlite.pipeline.foldstage import Dead, FoldStage, Late, Piece
from spanlite.pipeline.jobs.counting import Counters
from spanlite.pipeline.jobs.state import BYTES, FlinkLog, FlinkTable, FlinkValue
from spanlite.pipeline.jobs.timers import Activity, Fired, Soon
from spanlite.pipeline.totalstage import TotalStage
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.allocator import keep_freed

PIECE = Types.ROW([Types.STRING(), BYTES])
KEYED = Types.TUPLE([BYTES, BYTES])
"""Key and value of a Kafka record; a pair passes from Python to Java at a quarter of what a row costs."""
LATE = OutputTag("late", KEYED)
DEAD = OutputTag("dead", KEYED)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a metrics job is told.

    Attributes:
        policy: windows of the first stage.
        emit_ms: a series is told at most once in so many milliseconds.
        retain_ms: state of a producer that is quiet for so long is given up; at least the topic's retention, or a
            redelivered batch would count again.
        top_k: kernels per GPU with series of their own.
        epoch: generation of totals that begin anew, ns; see contract.points.Point.
    """

    policy: WindowPolicy
    emit_ms: int
    retain_ms: int
    top_k: int
    epoch: int


class Fold(KeyedProcessFunction):  # type: ignore[misc]  # pyflink ships no types
    """First stage, keyed by producer (hex): messages → pieces, late points, dead letters."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def open(self, runtime_context: RuntimeContext) -> None:
        """Takes hold of state; called once per subtask and start."""
        keep_freed()
        plan = self._plan
        self._stage = FoldStage(
            plan.policy, FlinkValue(runtime_context, "progress"), FlinkLog(runtime_context, "pending")
        )
        self._activity = Activity(plan.policy.idle_ns // 10**6, plan.retain_ms)
        self._counters = Counters(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """One message."""
        key = ctx.get_current_key()
        self._activity.active(key, ctx.timer_service(), ctx.timestamp())
        for output in self._stage.take(bytes.fromhex(key), bytes(value)):
            yield _tagged(output)
        self._counters.update(self._stage.counts.by_name())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """Closes the windows of a producer that is idle, or of all at the end; much later gives up its state."""
        key = ctx.get_current_key()
        producer = bytes.fromhex(key)
        if ctx.time_domain() == TimeDomain.PROCESSING_TIME:
            fired = self._activity.fired(key, timestamp, ctx.timer_service())
            if fired is Fired.GONE:
                self._stage.forget(producer)
            if fired is not Fired.IDLE:
                return
        for output in self._stage.drain(producer):
            yield _tagged(output)
        self._stage.release(producer)


class Total(KeyedProcessFunction):  # type: ignore[misc]  # pyflink ships no types
    """Second stage, keyed by GPU: pieces → key and cumulative point of each series that changed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def open(self, runtime_context: RuntimeContext) -> None:
        """Takes hold of state; called once per subtask and start."""
        plan = self._plan
        self._stage = TotalStage(
            plan.policy.width_ns,
            plan.top_k,
            plan.epoch,
            FlinkLog(runtime_context, "waiting"),
            FlinkTable(runtime_context, "series"),
        )
        self._emit = Soon(plan.emit_ms)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[tuple[bytes, ...]]:
        """One piece; its series are told when the timer fires."""
        self._emit.arm(ctx.get_current_key(), ctx.timer_service())
        self._stage.take(bytes(value[1]))
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[bytes, ...]]:
        """Tells of the series that have changed since."""
        key = ctx.get_current_key()
        self._emit.fired(key, timestamp)
        yield from map(tuple, self._stage.emit(key))  # process mode takes a tuple, and no class made of it


def _tagged(output: Piece | Late | Dead) -> Any:
    if isinstance(output, Piece):
        return Row(output.gpu_uuid, output.partial)
    if isinstance(output, Late):
        return LATE, (output.key, output.point)
    return DEAD, (output.reason.encode(), output.message)

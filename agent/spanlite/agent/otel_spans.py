"""OpenTelemetry's spans of a Python program as ranges: its kernels join the traces that it already has.

    from opentelemetry import trace
    from spanlite.agent import attach
    from spanlite.agent.otel_spans import SpanRanges

    trace.get_tracer_provider().add_span_processor(SpanRanges(attach()))

A span becomes two ranges of its thread, its traceparent and its name. Ranges nest, spans need not: those that cannot be
told from outside are left alone and counted. The agent's own telemetry is agent/otel.py.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanContext

UNSAMPLED, IN_TASK = "unsampled", "in_task"
OTHER_THREAD, OVERLAPPING = "other_thread", "overlapping"
REASONS = (UNSAMPLED, IN_TASK, OTHER_THREAD, OVERLAPPING)


class Ranges(Protocol):
    """What is needed of attach()'s object."""

    def push(self, name: str) -> None: ...

    def pop(self) -> None: ...


def traceparent(context: SpanContext) -> str:
    """A span's context as a range's text: for spans that are left alone here, `with tracing.range(traceparent(…))`."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 0xFF:02x}"


class _Open:
    """The two ranges of a span."""

    __slots__ = ("ended", "span_id", "stack")

    def __init__(self, span_id: int, stack: list[_Open]) -> None:
        self.span_id = span_id
        self.stack = stack
        self.ended = False


class _Here(threading.local):
    """The spans that have ranges on this thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[_Open] = []


class SpanRanges(SpanProcessor):
    """A span processor; any number of threads.

    What is left alone, by REASONS in `left_alone`:

    - unsampled: nobody would find the trace. It has no ranges.
    - in_task: started in a task of asyncio. Tasks take turns on a thread unseen, so a range would take in what others
      launch. It has no ranges, unless `tasks` is set.
    - other_thread: ended by another thread than began it, which cannot close a range of the first. Its ranges end with
      the next start or end of a span on their own thread.
    - overlapping: still open when a span ends that began before it on its thread. Its ranges end with that one's.

    Args:
        tracing: attach()'s object.
        tasks: whether spans of asyncio's tasks become ranges, too: right where no span holds an `await`.
    """

    def __init__(self, tracing: Ranges, *, tasks: bool = False) -> None:
        self._tracing = tracing
        self._tasks = tasks
        self._here = _Here()
        self._open: dict[int, _Open] = {}
        self._lock = threading.Lock()
        self._left_alone: Counter[str] = Counter()

    @property
    def left_alone(self) -> dict[str, int]:
        """Spans by the reason for which they have no ranges, or others than their own begin and end."""
        with self._lock:
            return {reason: self._left_alone[reason] for reason in REASONS}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - the SDK's
        """Opens the ranges of a span."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            self._count(UNSAMPLED)
            return
        if not self._tasks and _in_task():
            self._count(IN_TASK)
            return
        stack = self._here.stack
        self._close(stack)
        opened = self._open[context.span_id] = _Open(context.span_id, stack)
        stack.append(opened)
        self._tracing.push(traceparent(context))
        self._tracing.push(span.name)

    def on_end(self, span: ReadableSpan) -> None:
        """Closes them."""
        context = span.get_span_context()
        ended = None if context is None else self._open.pop(context.span_id, None)
        if ended is None:
            return
        ended.ended = True
        stack = self._here.stack
        if ended.stack is not stack:
            self._count(OTHER_THREAD)
        else:
            for inner in stack[stack.index(ended) + 1 :]:
                inner.ended = True
                if self._open.pop(inner.span_id, None) is not None:  # else another thread has ended it
                    self._count(OVERLAPPING)
        self._close(stack)

    def _close(self, stack: list[_Open]) -> None:
        """Closes the ranges of this thread's innermost spans that have ended."""
        while stack and stack[-1].ended:
            stack.pop()
            self._tracing.pop()
            self._tracing.pop()

    def _count(self, reason: str) -> None:
        with self._lock:
            self._left_alone[reason] += 1


def _in_task() -> bool:
    """Whether a task of asyncio runs on this thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # no loop runs here
        return False

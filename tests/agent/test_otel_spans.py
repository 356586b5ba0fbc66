"""OpenTelemetry's SDK with our span processor: which ranges its spans become, on which thread, in which order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from spanlite.agent.attach import Attachment, Nothing
from spanlite.agent.otel_spans import SpanRanges, traceparent
from spanlite.agent.tracecontext import parse_traceparent

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7


class Recording(Nothing):
    """A collector that keeps what it is told, by thread."""

    def __init__(self) -> None:
        super().__init__("active")
        self.open: dict[int, list[str]] = {}
        self.said: list[str] = []

    def push(self, name: str) -> None:
        self.open.setdefault(threading.get_ident(), []).append(name)
        self.said.append(f"+{name}")

    def pop(self) -> None:
        self.said.append(f"-{self.open[threading.get_ident()].pop()}")

    @property
    def here(self) -> list[str]:
        return self.open.get(threading.get_ident(), [])


@pytest.fixture
def told() -> Recording:
    return Recording()


@contextmanager
def tracing(told: Recording, *, tasks: bool = False, sampler: Sampler | None = None) -> Iterator[_Traced]:
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    ranges = SpanRanges(Attachment("python", told), tasks=tasks)
    provider.add_span_processor(ranges)
    yield _Traced(provider.get_tracer("test"), ranges)
    provider.shutdown()


class _Traced:
    def __init__(self, tracer: trace.Tracer, ranges: SpanRanges) -> None:
        self.tracer = tracer
        self.ranges = ranges

    def left_alone(self) -> dict[str, int]:
        return {reason: count for reason, count in self.ranges.left_alone.items() if count}


def of(span: trace.Span) -> str:
    """The traceparent by the W3C's form, written anew."""
    context = span.get_span_context()
    flags = f"{int(context.trace_flags):02x}"
    return "-".join(("00", trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id), flags))


def test_spans_become_two_ranges_each_and_nest(told: Recording) -> None:
    """Traceparent outside, name inside; both closed at the end, also by an exception; nothing is counted."""
    with tracing(told) as traced:
        with traced.tracer.start_as_current_span("request") as request:
            with suppress(ValueError), traced.tracer.start_as_current_span("prefill") as prefill:
                assert told.here == [of(request), "request", of(prefill), "prefill"]
                raise ValueError
            assert told.here == [of(request), "request"]
        assert told.here == []
        assert told.said[-2:] == ["-request", f"-{of(request)}"]
        assert traced.left_alone() == {}


def test_a_remote_parent_s_trace_goes_on(told: Recording) -> None:
    """The trace that came with the request is the one that is told; the span is our own, the remote's child."""
    remote = SpanContext(TRACE, SPAN, is_remote=True, trace_flags=TraceFlags(1))
    with tracing(told) as traced:
        context = set_span_in_context(NonRecordingSpan(remote))
        with traced.tracer.start_as_current_span("handle", context=context) as span:
            parsed = parse_traceparent(told.here[0])
            assert parsed == (TRACE.to_bytes(16, "big"), span.get_span_context().span_id)
    assert traceparent(remote) == "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_unsampled_spans_have_no_ranges(told: Recording) -> None:
    """Those that are not recorded never reach us; those recorded but not sampled are counted."""

    class RecordOnly(Sampler):
        def should_sample(self, *_: object, **__: object) -> SamplingResult:
            return SamplingResult(Decision.RECORD_ONLY)

        def get_description(self) -> str:
            return "record only"

    for sampler, counted in ((ALWAYS_OFF, {}), (RecordOnly(), {"unsampled": 1})):
        with tracing(told, sampler=sampler) as traced:
            with traced.tracer.start_as_current_span("quiet"):
                assert told.said == []
            assert traced.left_alone() == counted


def test_a_span_that_another_thread_ends_is_counted_and_closed_at_home(told: Recording) -> None:
    """No thread pops another's range: it is closed with the next span on its own thread, before that one opens."""
    with tracing(told) as traced:
        lost = traced.tracer.start_span("lost")
        thread = threading.Thread(target=lost.end)
        thread.start()
        thread.join()
        assert told.here == [of(lost), "lost"]
        assert traced.left_alone() == {"other_thread": 1}
        with traced.tracer.start_as_current_span("next") as after:
            assert told.here == [of(after), "next"]
        assert told.here == []
        assert list(told.open) == [threading.get_ident()]


def test_threads_have_ranges_of_their_own(told: Recording) -> None:
    """Spans that are open at once on two threads close each their own."""
    with tracing(told) as traced:
        both, done = threading.Barrier(2), []

        def request(name: str) -> None:
            with traced.tracer.start_as_current_span(name) as span:
                both.wait()
                done.append(told.here == [of(span), name])
                both.wait()

        threads = [threading.Thread(target=request, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [True, True]
        assert set(map(len, told.open.values())) == {0}
        assert traced.left_alone() == {}


@pytest.mark.parametrize("late", [True, False])
def test_spans_that_overlap_end_with_the_one_around_them(told: Recording, *, late: bool) -> None:
    """Ranges are closed in order; a span that ends too late, or never, leaves none open and is counted once."""
    with tracing(told) as traced:
        outer = traced.tracer.start_span("outer")
        inner = traced.tracer.start_span("inner")
        innermost = traced.tracer.start_span("innermost")
        innermost.end()
        outer.end()
        assert told.here == []
        assert [word[1:] for word in told.said if word[0] == "-"][:4] == [
            *("innermost", of(innermost), "inner", of(inner))
        ]
        if late:
            inner.end()
        with traced.tracer.start_as_current_span("next"):
            assert len(told.here) == 2
        assert told.here == []
        assert traced.left_alone() == {"overlapping": 1}


def test_an_overlapping_span_that_another_thread_has_ended_is_counted_once(told: Recording) -> None:
    """It lies above one that ends at home: both are closed, one is counted."""
    with tracing(told) as traced:
        outer, inner = traced.tracer.start_span("outer"), traced.tracer.start_span("inner")
        thread = threading.Thread(target=inner.end)
        thread.start()
        thread.join()
        outer.end()
        assert told.here == []
        assert traced.left_alone() == {"other_thread": 1}


def test_spans_of_tasks_are_left_alone_unless_asked_for(told: Recording) -> None:
    """Two requests that take turns on one thread would take in each other's kernels."""

    async def request(traced: _Traced, name: str) -> None:
        with traced.tracer.start_as_current_span(name):
            await asyncio.sleep(0)

    async def both(traced: _Traced) -> None:
        await asyncio.gather(request(traced, "a"), request(traced, "b"))

    with tracing(told) as traced:
        asyncio.run(both(traced))
        assert told.said == []
        assert traced.left_alone() == {"in_task": 2}
        with traced.tracer.start_as_current_span("outside"):  # asyncio is imported, no task runs
            assert len(told.here) == 2
    with tracing(told, tasks=True) as traced:
        asyncio.run(request(traced, "alone"))
        assert traced.left_alone() == {}
        assert told.said[-2] == "-alone"

"""Trace contexts: a range whose text is a traceparent gives its trace to what lies inside, and is nothing else."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent import tracecontext
from spanlite.agent.activity import OBJECT_PROCESS, OBJECT_THREAD
from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import STAMP, Frame, pack_names
from spanlite.agent.tracecontext import Contexts, parse_traceparent, trace_id
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.ids import derived_trace_id
from tests.agent.playing import process, rows, take
from tests.agent.records import PROCESS, call, closing, external, kernel, opening

SESSION = 0xAB
THREAD = (77 << 32) | 1
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER = "00000000000000000000000000000001"
TEXTS = {
    0x10: "gemm",
    0x20: "prefill",
    0x30: "decode",
    0x40: f"00-{TRACE}-00f067aa0ba902b7-01",
    0x41: f"00-{TRACE}-ffffffffffffffff-00",
    0x42: f"00-{OTHER}-00f067aa0ba902b7-01",
}
CONTEXTS = {
    0x40: (bytes.fromhex(TRACE), 0x00F067AA0BA902B7),
    0x41: (bytes.fromhex(TRACE), 0xFFFFFFFFFFFFFFFF),
    0x42: (bytes.fromhex(OTHER), 0x00F067AA0BA902B7),
}


@pytest.mark.parametrize("text", [*(TEXTS[at] for at in CONTEXTS), f"01-{TRACE}-00f067aa0ba902b7-ff"])
def test_traceparents_are_read(text: str) -> None:
    """Trace id and span id of the W3C's form, whatever flags and version."""
    _, trace, span, _ = text.split("-")
    assert parse_traceparent(text) == (bytes.fromhex(trace), int(span, 16))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prefill",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00F067AA0BA902B7-01",
        f"00-{TRACE}-00f067aa0ba902b7-01-",
        f"00-{TRACE}-00f067aa0ba902b7-01\n",
        f" 00-{TRACE}-00f067aa0ba902b7-01",
        f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7",
        f"0-{TRACE}-00f067aa0ba902b7-01",
        f"00-{TRACE[:-1]}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7-1",
        f"00-{TRACE[:-1]}g-00f067aa0ba902b7-01",
        f"00-{'٣' * 32}-00f067aa0ba902b7-01",
    ],
)
def test_other_texts_are_none(text: str) -> None:
    """Zeros, upper case, version ff, anything before or behind: an ordinary range."""
    assert parse_traceparent(text) is None


@given(st.text(alphabet="0123456789abcdefF-", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """What is read is written again as it stood."""
    parsed = parse_traceparent(text)
    if parsed is not None:
        assert text[2:-2] == f"-{parsed[0].hex()}-{parsed[1]:016x}-"


def test_a_pointer_that_has_another_text_is_no_context_any_more() -> None:
    """CUPTI's pointers come again: the newest text counts."""
    contexts = Contexts()
    assert not contexts.learn(1, "prefill")
    assert contexts.of(np.array([1], np.uint64)) is None
    assert contexts.learn(1, TEXTS[0x40])
    assert contexts.learn(2, TEXTS[0x42])
    assert not contexts.learn(1, "prefill")
    told = contexts.of(np.array([2, 1, 0, 2], np.uint64))
    assert told is not None
    assert told["remote_parent"].tolist() == [CONTEXTS[0x42][1], 0, 0, CONTEXTS[0x42][1]]
    assert trace_id(told[0]) == CONTEXTS[0x42][0]


def test_contexts_are_forgotten_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text a request must not fill the agent's memory."""
    monkeypatch.setattr(tracecontext, "MOST", 8)
    contexts = Contexts()
    for number in range(1, 101):
        contexts.learn(number, f"00-{TRACE}-{number:016x}-01")
        told = contexts.of(np.arange(101, dtype=np.uint64))
        assert told is not None
        known = np.flatnonzero(told["remote_parent"])
        assert number in known
        assert known.tolist() == list(range(number - len(known) + 1, number + 1))
        assert len(known) <= 8


@dataclass
class Span:
    """Where a kernel or a range belongs."""

    name: str
    stage: str
    trace: bytes
    remote: int
    parent: int
    number: int = -1


@dataclass
class Program:
    """A thread's pushes, pops and launches, and what must come of them by a plain stack."""

    steps: list[tuple[str, int]] = field(default_factory=list)  # push, pop, launch; pointer, number
    kernels: dict[int, Span] = field(default_factory=dict)  # by correlation id
    ranges: dict[int, Span] = field(default_factory=dict)  # by number
    _stack: list[tuple[int, int]] = field(default_factory=list)
    _opened: int = 0

    def push(self, pointer: int) -> Program:
        if pointer not in CONTEXTS:
            self.ranges[self._opened] = self._here(TEXTS[pointer], self._opened)
        self._stack.append((self._opened, pointer))
        self._opened += 1
        self.steps.append(("push", pointer))
        return self

    def pop(self) -> Program:
        if self._stack:
            self._stack.pop()
            self.steps.append(("pop", 0))
        return self

    def launch(self) -> Program:
        number = len(self.kernels) + 11
        self.kernels[number] = self._here("gemm", -1)
        self.steps.append(("launch", number))
        return self

    def end(self) -> Program:
        while self._stack:
            self.pop()
        return self

    def _here(self, name: str, number: int) -> Span:
        """Of what is launched or opened now; `number` is that of a range."""
        real = [(at, pointer) for at, pointer in self._stack if pointer not in CONTEXTS]
        contexts = [pointer for _, pointer in self._stack if pointer in CONTEXTS]
        stage = TEXTS[real[-1][1]] if real else ""
        parent = self._stack[-1][0] if self._stack and self._stack[-1][1] not in CONTEXTS else -1
        if contexts:
            trace, remote = CONTEXTS[contexts[-1]]
        else:
            root = self._stack[0][0] if self._stack else number
            trace, remote = (derived_trace_id(SESSION, -1 - root) if root >= 0 else b""), 0
        return Span(name, stage, trace, remote, parent, number)

    def stamped(self, cuts: Sequence[int] = ()) -> list[tuple[Frame, bytes]]:
        """As stamps and buffers, cut after some steps."""
        frames: list[tuple[Frame, bytes]] = [(Frame.NAMES, pack_names(TEXTS))]
        newest = 0
        edges = [0, *sorted(min(cut, len(self.steps)) for cut in cuts), len(self.steps)]
        for begin, end in pairwise(edges):
            stamps, buffer = [], b""
            for at, (what, value) in enumerate(self.steps[begin:end], begin):
                if what == "launch":
                    newest, buffer = value, buffer + kernel(10_000 + at * 10, 10_005 + at * 10, value)
                else:
                    stamps.append((THREAD, value, 1000 + at * 10, newest, 1 if what == "push" else -1))
            frames += [(Frame.RANGES, np.array(stamps, STAMP).tobytes()), (Frame.BUFFER, buffer)]
        return frames

    def marked(self, cuts: Sequence[int] = ()) -> list[tuple[Frame, bytes]]:
        """As markers and recorded calls."""
        frames: list[tuple[Frame, bytes]] = [(Frame.NAMES, pack_names(TEXTS))]
        edges = [0, *sorted(min(cut, len(self.steps)) for cut in cuts), len(self.steps)]
        open_ids: list[int] = []
        for begin, end in pairwise(edges):
            buffer = b""
            for at, (what, value) in enumerate(self.steps[begin:end], begin):
                time = 1000 + at * 10
                if what == "launch":
                    buffer += call(time, value) + kernel(10_000 + at * 10, 10_005 + at * 10, value)
                elif what == "push":
                    open_ids.append(at + 1)
                    buffer += opening(time, at + 1, value)
                else:
                    buffer += closing(time, open_ids.pop())
            frames.append((Frame.BUFFER, buffer))
        return frames


def batches_of(frames: list[tuple[Frame, bytes]], counts: AgentCounts | None = None) -> list[Batch]:
    """Encoded and decoded."""
    traced = process(counts=counts)
    return [decode_batch(encode_batch(batch)) for batch in [*take(traced, frames), *traced.finish()]]


def spans(batches: list[Batch]) -> tuple[dict[int, Span], dict[int, Span]]:
    """Kernels by correlation id, ranges by number."""
    kernels: dict[int, Span] = {}
    ranges: dict[int, Span] = {}
    if batches:
        table = rows(batches)
        names = ("kind", "correlation", "name", "stage", "trace", "remote_parent", "parent", "range_number")
        for kind, correlation, *values in zip(*(table[name].tolist() for name in names), strict=True):
            span = Span(*values)
            if kind == Kind.KERNEL:
                assert correlation not in kernels
                kernels[correlation] = span
            else:
                assert kind == Kind.RANGE
                ranges[span.number] = span
    return kernels, ranges


def serving() -> Program:
    """Two requests in turns on one thread, within a range of its own; one has a step with a parent of its own."""
    program = Program().push(0x20).launch()
    for context in (0x40, 0x42, 0x40):
        program.push(context).launch().push(0x30).launch().pop().launch().pop()
    program.push(0x40).push(0x20).push(0x41).launch().push(0x30).launch().pop().pop().launch().pop().pop()
    return program.launch().end().launch().push(0x42).launch().end()


@pytest.mark.parametrize("marked", [False, True])
def test_requests_in_turns_keep_their_traces(*, marked: bool) -> None:
    """Trace ids, remote parents, stages and parents, written down one by one."""
    program = serving()
    kernels, ranges = spans(batches_of(program.marked() if marked else program.stamped()))
    (trace, span), (_, inner), (other, _) = CONTEXTS.values()
    own = derived_trace_id(SESSION, -1)
    assert kernels[11] == Span("gemm", "prefill", own, 0, 0)
    assert kernels[12] == Span("gemm", "prefill", trace, span, -1)  # directly in the context: the outer stage
    assert kernels[13] == Span("gemm", "decode", trace, span, 2)
    assert kernels[15] == Span("gemm", "prefill", other, span, -1)
    assert kernels[16] == Span("gemm", "decode", other, span, 4)
    assert [kernels[at].trace for at in (18, 19, 20)] == [trace] * 3
    assert kernels[21] == Span("gemm", "prefill", trace, inner, -1)
    assert kernels[22] == Span("gemm", "decode", trace, inner, 10)
    assert kernels[23] == Span("gemm", "prefill", trace, span, 8)  # the outer trace goes on
    assert kernels[24] == Span("gemm", "prefill", own, 0, 0)
    assert kernels[25] == Span("gemm", "", b"", 0, -1)
    assert kernels[26] == Span("gemm", "", other, span, -1)
    assert ranges == {
        0: Span("prefill", "", own, 0, -1, 0),
        2: Span("decode", "prefill", trace, span, -1, 2),
        4: Span("decode", "prefill", other, span, -1, 4),
        6: Span("decode", "prefill", trace, span, -1, 6),
        8: Span("prefill", "prefill", trace, span, -1, 8),
        10: Span("decode", "prefill", trace, inner, -1, 10),
    }


def test_a_trace_has_one_start_however_many_parents() -> None:
    """Whatever comes of a distributed trace is told with the start of its first range here, also from later buffers."""
    program = serving()
    for frames in (program.stamped(), program.stamped(range(1, 60))):
        table = rows(batches_of(frames))
        chosen = table["trace"] == bytes.fromhex(TRACE)
        assert set(table["trace_start"][chosen].tolist()) == {1000 + 10 * program.steps.index(("push", 0x40))}


def test_contexts_are_no_spans_and_are_not_counted() -> None:
    """Received are 16 kernels and 6 ranges, and all are sent: traceparents would make a name of each request."""
    counts = AgentCounts()
    batches = batches_of(serving().stamped(), counts)
    assert sum(len(batch.columns) for batch in batches) == 22
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 22
    assert not counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    assert not any("-" in text for batch in batches for text in batch.columns.strings)


def test_a_program_s_own_ids_do_not_reach_into_a_context() -> None:
    """Inside, the context's trace counts, and no launch waits for an id; outside, the program's id does as before."""
    data = [
        *(opening(1000, 1, 0x20), external(11, 5), call(1001, 11), kernel(1002, 1003, 11)),
        *(opening(1010, 2, 0x40), external(12, 6), call(1011, 12), kernel(1012, 1013, 12)),
        *(call(1014, 13), kernel(1015, 1016, 13), closing(1020, 2)),
        *(call(1030, 14), kernel(1031, 1032, 14), closing(1040, 1)),
    ]
    kernels, ranges = spans(batches_of([(Frame.NAMES, pack_names(TEXTS)), (Frame.BUFFER, b"".join(data))]))
    assert [kernels[at].trace for at in (12, 13)] == [bytes.fromhex(TRACE)] * 2
    assert [kernels[at].trace for at in (11, 14)] == [derived_trace_id(SESSION, 5)] * 2
    assert ranges[0].trace == derived_trace_id(SESSION, 5)


def test_a_context_of_the_process_gives_no_trace_and_is_no_range() -> None:
    """Start/end ranges belong to no thread, so nothing is inside them."""
    of_thread, of_process = (struct.pack("<iI", kind, PROCESS) for kind in (OBJECT_THREAD, OBJECT_PROCESS))
    markers = (opening(1000, 1, 0x40) + closing(1020, 1)).replace(of_thread, of_process)
    assert markers.count(of_process) == 2
    data = markers + call(1001, 11) + kernel(1002, 1003, 11)
    kernels, ranges = spans(batches_of([(Frame.NAMES, pack_names(TEXTS)), (Frame.BUFFER, data)]))
    assert kernels[11] == Span("gemm", "", b"", 0, -1)
    assert ranges == {}


_STEPS = st.lists(st.sampled_from([0x20, 0x30, 0x40, 0x41, 0x42, "-", "-", "-", "l", "l", "l"]), max_size=40)


@settings(max_examples=150, deadline=None)
@given(_STEPS, st.lists(st.integers(0, 60), max_size=5), st.booleans())
def test_any_program_of_a_thread_is_told_as_a_stack_tells_it(
    steps: list[int | str], cuts: list[int], marked: bool
) -> None:
    """Stamps or markers, wherever buffers end: every kernel and range has its trace, parents and stage."""
    program = Program()
    for step in steps:
        if isinstance(step, int):
            program.push(step)
        elif step == "-":
            program.pop()
        else:
            program.launch()
    program.end()
    kernels, ranges = spans(batches_of(program.marked(cuts) if marked else program.stamped(cuts)))
    assert kernels == program.kernels
    assert ranges == program.ranges

"""One traced process: identity, conservation, traces that keep their name, several threads and GPUs, hostile frames."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import STAMP, Clock, Frame, Header, pack_clock, pack_names, pack_text
from spanlite.agent.process import TracedProcess
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch, ClockAnchor
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.errors import FrameError, LayoutError
from spanlite.contract.ids import derived_trace_id
from spanlite.runtime.clock import ManualClock
from tests.agent import records
from tests.agent.playing import HELLO, ordered, process, rows, take
from tests.agent.records import call, closing, external, kernel, opening

_SESSION = 0xAB
_NAMES = (Frame.NAMES, pack_names({0x10: "gemm", 0x20: "prefill", 0x30: "decode"}))


def _run(
    buffers: Sequence[bytes], *, traced: TracedProcess | None = None, before: Sequence[tuple[Frame, bytes]] = ()
) -> list[Batch]:
    """Names, buffers, end; each batch is encoded and decoded."""
    traced = traced or process()
    frames = [_NAMES, *before, *((Frame.BUFFER, buffer) for buffer in buffers)]
    return [decode_batch(encode_batch(batch)) for batch in [*take(traced, frames), *traced.finish()]]


def _hello_error(said: dict[str, str], without: str = "") -> FrameError:
    payload = pack_text({key: value for key, value in {**HELLO, **said}.items() if key != without})
    with pytest.raises(FrameError) as caught:
        TracedProcess.from_hello(Header(Frame.HELLO, len(payload), 0), payload, 1, ManualClock(), AgentCounts())
    return caught.value


def test_a_batch_says_who_sent_it() -> None:
    """Producer, session, resource, GPUs and clock come from HELLO and CLOCK; the pid is that of the caller."""
    traced = process({"resource.k8s.pod.name": "a=b\\\nc", "resource.process.pid": "1", "resource.host.name": "n1"})
    (batch,) = _run([kernel(10, 12, 1)], traced=traced, before=[(Frame.CLOCK, pack_clock(Clock(10, 10, 3)))])
    assert batch.producer == bytes([0] * 7 + [0xAB]) + (130500).to_bytes(8, "big")
    assert batch.session == _SESSION
    assert batch.resource == {
        "k8s.pod.name": "a=b\\\nc",
        "process.pid": "4711",
        "host.name": "n1",
        "cupti.version": "130500",
    }
    assert [(gpu.uuid, gpu.index, gpu.compute_major) for gpu in batch.gpus] == [("GPU-0", 0, 9), ("GPU-1", 1, 9)]
    assert batch.clock == ClockAnchor(10, 10, 3)


@pytest.mark.parametrize("key", ["cupti_version", "session", "gpu.1.uuid"])
def test_hello_that_lacks_a_value_is_refused(key: str) -> None:
    """The message names the key."""
    error = _hello_error({}, without=key)
    assert error.reason == "hello"
    assert key in str(error)


@pytest.mark.parametrize(
    "said",
    [
        {"cupti_version": "-1"},
        {"cupti_version": "9" * 30},
        {"session": "1" * 17},
        {"session": "-1"},
        {"session": ""},
        {"gpu.x.uuid": "GPU"},
        {"gpu.-1.uuid": "GPU"},
        {"gpu.99999999999.uuid": "GPU"},
        {"gpu.0.multiprocessors": "many"},
        {"size.10": "0x10"},
        {"size.ten": "8"},
    ],
)
def test_hello_with_a_bad_value_is_refused(said: dict[str, str]) -> None:
    """Numbers that are none, too large or negative do not get any further."""
    assert _hello_error(said).reason == "hello"


@pytest.mark.parametrize("said", [{"cupti_version": "23"}, {"size.10": "216"}, {"size.300": "8"}])
def test_hello_of_an_unknown_layout_is_refused(said: dict[str, str]) -> None:
    """A version that is not known, and sizes that contradict it, are layout errors."""
    with pytest.raises(LayoutError):
        process(said)


def test_the_first_frame_must_be_hello_and_the_only_one() -> None:
    """Anything else first, and HELLO again, break the protocol."""
    with pytest.raises(FrameError, match="first frame is NAMES"):
        TracedProcess.from_hello(Header(Frame.NAMES, 0, 0), b"", 1, ManualClock(), AgentCounts())
    with pytest.raises(FrameError, match="second HELLO"):
        take(process(), [(Frame.HELLO, pack_text(HELLO))])


def test_lost_frames_are_counted_by_their_numbers() -> None:
    """HELLO is 0; frames 1, 4, 5 and 9 leave gaps of 2 and 3; a number that goes back breaks the protocol."""
    counts = AgentCounts()
    traced = process(counts=counts)
    for sequence in (1, 4, 5, 9):
        list(traced.take(Header(Frame.STATS, 0, sequence), b""))
    assert counts.value(catalogue.AGENT_FRAMES_LOST) == 5
    with pytest.raises(FrameError) as caught:
        list(traced.take(Header(Frame.STATS, 0, 9), b""))
    assert caught.value.reason == "sequence"


def _patched(data: bytes, changes: dict[int, tuple[int, int]]) -> bytes:
    """The bytes with other start and end times of some kernels, by their number."""
    broken = bytearray(data)
    places = [at for kind, at in records.walk("streams-cupti130500") if kind == records.KERNEL]
    for row, times in changes.items():
        struct.pack_into("<QQ", broken, places[row] + 16, *times)
    return bytes(broken)


def test_impossible_times_are_dropped_and_counted_by_reason() -> None:
    """Of a recorded buffer 15 patched kernels are dropped, each under its own reason; the others are sent."""
    data, about = records.load("streams-cupti130500")
    start, end = (records.kernels("streams-cupti130500")[0][at] for at in (1, 2))
    day = 24 * 3600 * 10**9
    now = about["unix_ns"][1]
    bad = {
        "zero_timestamp": [(0, end), (start, 0), (0, 0)],
        "sentinel": [(2**64 - 1, end), (start, 2**63), (2**63, 2**63 + 5)],
        "negative_duration": [(end, start), (start, start - 1)],
        "zero_duration": [(start, start)],
        "implausible_clock": [(now - day - 1, now), (now + day + 1, now + day + 2), (1, 2)] * 2,
    }
    changes = dict(enumerate((times for group in bad.values() for times in group), 100))
    counts = AgentCounts()
    reading = (Frame.CLOCK, pack_clock(Clock(now, now, 1)))
    batches = _run([_patched(data, changes)], traced=process(counts=counts), before=[reading])
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {reason: len(group) for reason, group in bad.items()}
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 2410
    assert sum(len(batch.columns) for batch in batches) == 2410 - 15
    sent = ordered(rows(batches))
    kept = [one for at, one in enumerate(records.kernels("streams-cupti130500")) if at not in changes]
    assert sorted(sent["start_ns"][sent["kind"] == Kind.KERNEL].tolist()) == sorted(one.start for one in kept)


def test_ranges_with_impossible_times_are_dropped_and_counted() -> None:
    """A range that ends before it began is dropped; one that took no time at all is kept."""
    counts = AgentCounts()
    stamps = np.array([(1, 0x20, 50, 1, 1), (1, 0, 40, 2, -1), (1, 0x30, 60, 3, 1), (1, 0, 60, 4, -1)], STAMP)
    table = rows(_run([], traced=process(counts=counts), before=[(Frame.RANGES, stamps.tobytes())]))
    assert table["name"].tolist() == ["decode"]
    assert table["duration_ns"].tolist() == [0]
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 2
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"negative_duration": 1}


def test_what_others_dropped_counts_as_received_and_dropped() -> None:
    """STATS names spans that never came, by who lost them."""
    counts = AgentCounts()
    said = {"dropped.cupti": "7", "dropped.ring_full": "2", "dropped.odd": "x", "other": "3", "dropped.Not a word": "4"}
    said |= {"dropped.none": "0", "dropped.square": "\u00b2", "dropped.many": "9" * 5000, "dropped.minus": "-1"}
    take(process(counts=counts), [(Frame.STATS, pack_text(said))])
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 9
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"cupti": 7, "ring_full": 2}


# Two requests, marked as ranges: the first call of each carries no id of the program, a later one does.
_REQUESTS = [
    *(opening(1000, 1, 0x20), external(11, 5), call(1001, 11), kernel(1002, 1003, 11), closing(1010, 1)),
    *(opening(2000, 2, 0x30), call(2001, 21), kernel(2002, 2003, 21), call(2004, 22), kernel(2005, 2006, 22)),
    *(external(23, 6), call(2007, 23), kernel(2008, 2009, 23), closing(2010, 2)),
]


@pytest.mark.parametrize("cuts", [*combinations(range(1, len(_REQUESTS)), 2), tuple(range(1, len(_REQUESTS)))])
def test_a_trace_has_one_name_wherever_buffers_end(cuts: tuple[int, ...]) -> None:
    """The id of a request becomes known after its first kernels: those wait for it, however the records are cut."""
    buffers = [b"".join(_REQUESTS[a:b]) for a, b in pairwise([0, *cuts, len(_REQUESTS)])]
    table = rows(_run(buffers))
    found = dict(zip(zip(table["name"], table["correlation"].tolist(), strict=True), table["trace"], strict=True))
    first, second = derived_trace_id(_SESSION, 5), derived_trace_id(_SESSION, 6)
    assert len(table["name"]) == 6
    assert found == {
        ("gemm", 11): first,
        ("prefill", 0): first,
        **{("gemm", correlation): second for correlation in (21, 22, 23)},
        ("decode", 0): second,
    }


def test_a_trace_that_was_told_keeps_its_name() -> None:
    """An id that comes too late names its own call alone: the range and its other kernels keep the range's trace."""
    late = 10**9
    buffers = [
        opening(1000, 1, 0x20) + call(1001, 11) + kernel(1002, 1003, 11),
        external(12, 5) + call(late, 12) + kernel(late + 1, late + 2, 12),
        call(late + 3, 13) + kernel(late + 4, late + 5, 13) + closing(late + 6, 1),
    ]
    table = rows(_run(buffers))
    by_range = derived_trace_id(_SESSION, -1)
    found = dict(zip(table["correlation"].tolist(), table["trace"], strict=True))
    assert found == {11: by_range, 12: derived_trace_id(_SESSION, 5), 13: by_range, 0: by_range}
    assert set(table["trace_start"][table["correlation"] != 12].tolist()) == {1000}


def test_a_trace_begins_when_it_was_first_seen() -> None:
    """Outside all ranges the first launch with an id is the start that all its later ones are told with, too."""
    buffers = [external(n, 5) + call(n, n) + kernel(10 * n, 10 * n + 1, n) for n in (10, 11, 12)]
    table = rows(_run(buffers))
    assert set(table["trace"]) == {derived_trace_id(_SESSION, 5)}
    assert table["trace_start"].tolist() == [100, 100, 100]


def test_waiting_for_an_id_ends_with_the_next_one_or_after_a_tenth_of_a_second() -> None:
    """A request without an id is sent by its range's name when a later one has an id, or when it has run for long."""
    known = opening(1, 1, 0x20) + external(11, 5) + call(2, 11) + kernel(3, 4, 11) + closing(5, 1)
    traced = process()
    assert len(rows(take(traced, [_NAMES, (Frame.BUFFER, known)]))["name"]) == 2
    waits = opening(10, 2, 0x20) + call(11, 12) + kernel(12, 13, 12)
    assert take(traced, [(Frame.BUFFER, waits)], first=3) == []
    ranges = rows(take(traced, [(Frame.BUFFER, call(15, 13) + closing(20, 2))], first=4))
    assert ranges["range_number"].tolist() == [1]
    told = rows(take(traced, [(Frame.BUFFER, external(14, 6) + call(25, 14))], first=5))
    assert told["correlation"].tolist() == [12]
    assert {*ranges["trace"], *told["trace"]} == {derived_trace_id(_SESSION, -2)}
    waits = opening(30, 3, 0x20) + call(31, 15) + kernel(32, 33, 15)
    assert take(traced, [(Frame.BUFFER, waits)], first=6) == []
    later = 40 + 10**8
    told = rows(take(traced, [(Frame.BUFFER, call(later, 16) + kernel(later + 1, later + 2, 16))], first=7))
    assert told["correlation"].tolist() == [15]
    assert set(told["trace"]) == {derived_trace_id(_SESSION, -3)}


def test_threads_have_stages_of_their_own() -> None:
    """Two threads in ranges at the same time: each kernel is in the range of the thread that launched it."""
    data = [
        *(opening(100, 1, 0x20, thread=1), opening(101, 2, 0x30, thread=2)),
        *(call(102, 11, thread=2), call(103, 12, thread=1), call(104, 13, thread=2)),
        *(kernel(110, 111, 11, stream=8), kernel(112, 113, 12, stream=7), kernel(114, 115, 13, stream=8)),
        *(closing(120, 1, thread=1), closing(121, 2, thread=2)),
    ]
    table = ordered(rows(_run(data)))
    chosen = table["kind"] == Kind.KERNEL
    assert table["stage"][chosen].tolist() == ["decode", "prefill", "decode"]
    assert table["parent"][chosen].tolist() == [1, 0, 1]
    threads = dict(zip(table["name"][~chosen], table["thread_id"][~chosen].tolist(), strict=True))
    assert threads == {"prefill": (77 << 32) | 1, "decode": (77 << 32) | 2}


def test_kernels_of_two_gpus_name_theirs() -> None:
    """A place names the GPU by its number in HELLO; occupancy is looked up for each; an unheard-of device is host."""
    data = b"".join(kernel(start, start + 1, start, device=start % 3) for start in range(3, 30))
    table = ordered(rows(_run([data])))
    assert table["device_id"].tolist() == [start % 3 for start in range(3, 30)]
    assert table["gpu"].tolist() == [(1, 2, 0)[start % 3] for start in range(3, 30)]
    assert table["max_warps"].tolist() == [(64, 64, 0)[start % 3] for start in range(3, 30)]


def test_stamps_after_the_last_buffer_are_ranges_too() -> None:
    """Ranges that end after all GPU work arrive; so do those of a program that never uses the GPU."""
    stamps = np.zeros(200_002, STAMP)
    stamps["thread"], stamps["name"] = 5, 0x20
    stamps["time_ns"] = stamps["correlation"] = np.arange(1, len(stamps) + 1)
    stamps["delta"] = np.tile([1, -1], len(stamps) // 2)
    parts = [stamps[:100], stamps[100:150_000], stamps[150_000:]]
    traced = process()
    early = take(traced, [_NAMES, *((Frame.RANGES, part.tobytes()) for part in parts)])
    assert sum(len(batch.columns) for batch in early) == 75_000
    late = list(traced.finish())
    assert rows([*early, *late])["range_number"].tolist() == list(range(100_001))


def _noise(seed: int) -> bytes:
    """Records of every decoded kind with random fields, the sizes right."""
    dice = random.Random(seed)  # noqa: S311 - test data
    parts = []
    for _ in range(dice.randrange(20)):
        kind = dice.choice(sorted(records.SIZES))
        size = records.SIZES[kind]
        few = dice.random() < 0.7  # small numbers pass the checks of times and meet each other
        body = bytes(dice.choice((0, 0, 0, 1, 2)) for _ in range(size)) if few else dice.randbytes(size)
        parts.append(struct.pack("<i", kind) + body[4:])
    return b"".join(parts)


_FRAMES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([kind for kind in Frame if kind != Frame.HELLO]), st.binary(max_size=120)),
        st.tuples(
            st.just(Frame.RANGES), st.integers(0, 6).flatmap(lambda n: st.binary(min_size=32 * n, max_size=32 * n))
        ),
        st.tuples(st.just(Frame.BUFFER), st.integers(0, 2**32).map(_noise)),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=150)
@given(_FRAMES)
def test_random_frames_become_batches_that_can_be_read_or_are_refused(frames: list[tuple[Frame, bytes]]) -> None:
    """Random records, stamps and payloads: FrameError and LayoutError only, no span is lost, every batch decodes."""
    counts = AgentCounts()
    traced = process(counts=counts)
    batches: list[Batch] = []
    with suppress(FrameError, LayoutError):
        for sequence, frame in enumerate(frames, 1):
            batches += take(traced, [frame], first=sequence)
    batches += traced.finish()
    sent = sum(len(decode_batch(encode_batch(batch)).columns) for batch in batches)
    dropped = sum(counts.by_label(catalogue.AGENT_SPANS_DROPPED).values())
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == sent + dropped


def test_skipped_records_are_counted_by_their_kind() -> None:
    """A record of a kind that holds no span is stepped over and counted."""
    counts = AgentCounts()
    overhead = struct.pack("<i", 17).ljust(56, b"\0")
    take(process(counts=counts), [(Frame.BUFFER, overhead * 3)])
    assert counts.by_label(catalogue.AGENT_RECORDS_SKIPPED) == Counter({"17": 3})
    assert counts.value(catalogue.AGENT_BUFFERS_RECEIVED) == 1

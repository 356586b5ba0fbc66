"""Both stages of the metrics job against faults: whatever crashes, comes again or is poison, each span counts once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.contract.columns import OBSERVATIONS, Kind
from spanlite.contract.point_codec import decode_point, series_key
from spanlite.contract.points import Point, Series
from spanlite.exporters.table import PointTable
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.pipeline.foldstage import FoldStage, Piece
from spanlite.pipeline.pieces import unpack
from spanlite.pipeline.points import points
from spanlite.pipeline.routing import producer_of
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import ManualClock
from spanlite.transport.ports import Record
from tests.contract.mutations import Mutator
from tests.pipeline.conftest import LAUNCH, Span, brute_force, make_batch, plain, span_lists
from tests.pipeline.simulator import EPOCH, Job, MemoryLog, MemoryValue, Store, schedules, topic

WIDTH_NS = 100
POLICY = WindowPolicy(WIDTH_NS, lateness_ns=50, idle_ns=1000)
SOUND = encode_batch(make_batch([Span(5, row=9000)], producer=b"z" * 16))
_SHIFT = 10**9
"""Moves starts beyond 0, a multiple of every window."""


class Case(NamedTuple):
    """What comes, in the order in which it lies in its partition.

    Attributes:
        spans: those of the sound batches, each batch once; poison: what must be told as dead.
    """

    spans: list[Span]
    messages: list[bytes]
    poison: list[bytes]


def poisoned(message: bytes, way: int) -> bytes:
    """What is no batch, made of one: half of it, nothing, too much of it, a head alone, another's name, an age."""
    long = Span(0, 1 << 47, weight=3, row=0)
    return [
        message[:-3],
        b"",
        message + b"\xff",
        message[:20] + b"\xff\xff",
        message + b"\x12\x10" + b"y" * 16,
        encode_batch(make_batch([long], producer=message[4:20], sequence=99)),
        encode_batch(make_batch([Span(-(2**63), row=0)], producer=message[4:20], sequence=99)),
        b"no batch at all",
    ][way]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to three producers of up to five batches, some delivered again and out of order, poison among them."""
    spans: list[Span] = []
    messages: list[bytes] = []
    poison: list[bytes] = []
    few = draw(st.booleans())  # series, so that each is in many batches
    for producer in (b"a" * 16, b"b" * 16, b"c" * 16)[: draw(st.integers(1, 3))]:
        own: list[bytes] = []
        for sequence in range(draw(st.integers(1, 5))):
            # Rows are numbered through, so that no two spans have one id; time goes on, more or less.
            later = sequence * draw(st.sampled_from([0, 30, 130]))
            batch = [
                span._replace(start_ns=span.start_ns + later, row=len(spans) + at, weight=min(span.weight, 3))
                for at, span in enumerate(draw(span_lists(most=6)))
            ]
            if few:
                batch = [span._replace(launch=LAUNCH, stage="", gpu="GPU-1") for span in batch]
            spans += batch
            own.append(encode_batch(make_batch(batch, producer=producer, sequence=sequence)))
        bad = [poisoned(draw(st.sampled_from(own)), way) for way in draw(st.lists(st.integers(0, 7), max_size=3))]
        again = draw(st.lists(st.sampled_from(own), max_size=4))
        order = [*own, *bad, *again, *again[:1]]
        messages += draw(st.permutations(order)) if draw(st.booleans()) else order
        poison += bad
    return Case(spans, messages, poison)


def expected_totals(spans: Iterable[Span], width_ns: int) -> dict[Series, tuple[int, int, object]]:
    """First window's start, last window's end and all sums of each series, span by span."""
    moved = [span._replace(start_ns=span.start_ns + _SHIFT) for span in spans]
    starts: dict[Series, list[int]] = defaultdict(list)
    for span in moved:
        if span.kind != Kind.RANGE:
            starts[span.series].append(span.start_ns // width_ns * width_ns - _SHIFT)
    made: dict[Series, tuple[int, int, object]] = {}
    for (_, series), what in brute_force(moved, 10**15).items():
        exemplar = (*what.exemplar[:3], what.exemplar[3] - _SHIFT)
        made[series] = (
            min(starts[series]),
            max(starts[series]) + width_ns,
            type(what)(**{**vars(what), "exemplar": exemplar}),
        )
    return made


def told(newest: dict[Series, Point]) -> dict[Series, tuple[int, int, object]]:
    """Points in the form of `expected_totals`."""
    assert all(point.cumulative and point.epoch == EPOCH for point in newest.values())
    return {
        series: (point.window_start_ns, point.window_end_ns, next(iter(plain([point]).values())))
        for series, point in newest.items()
    }


class Queue:
    """A consumer over a list."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._left = [Record("spans", at, 0, b"", value) for at, value in enumerate(messages)]

    def poll(self, most: int, timeout_s: float) -> list[Record]:  # noqa: ARG002  # the port asks for it
        some, self._left = self._left[:most], self._left[most:]
        return some

    def commit(self) -> None:
        """Nothing to keep."""


def embedded_totals(messages: Sequence[bytes], policy: WindowPolicy, top_k: int = 1000) -> dict[Series, Point]:
    """Newest cumulative points of the embedded runner, which meets no fault."""
    newest: dict[Series, Point] = {}
    outputs = Outputs(total_points=lambda made: newest.update({point.series: point for point in made}))
    clock = ManualClock(EPOCH)
    pipeline = EmbeddedPipeline(Queue(messages), outputs, policy=policy, top_k=top_k, clock=clock)
    assert sum(drain(pipeline)) == len(messages)
    pipeline.finish()
    return newest


def assert_same(left: dict[Series, Point], right: dict[Series, Point]) -> None:
    """Equal in every field, the buckets in type and bits."""
    assert left.keys() == right.keys()
    for series, point in left.items():
        for field in fields(Point):
            mine, other = getattr(point, field.name), getattr(right[series], field.name)
            if isinstance(mine, np.ndarray):
                assert (mine.dtype, mine.tobytes()) == (other.dtype, other.tobytes())
            else:
                assert mine == other, (field.name, series)


def assert_never_falls(job: Job) -> None:
    """An exporter that reads all that went out, one by one, never counts back, and ends at the totals."""
    table = PointTable(clock=ManualClock(2**62))
    before: dict[Series, Point] = {}
    for update in job.updates:
        table.put([decode_point(update.point)])
        for row in table.snapshot().rows:
            point, last = row.point, before.get(row.point.series)
            before[point.series] = point
            if last is None:
                continue
            for name in ("count", "spans", "sum_ns", "max_ns", "warp_ns", "bytes"):
                assert getattr(point, name) >= getattr(last, name)
            now = dict(zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True))
            then = zip(last.bucket_index.tolist(), last.bucket_count.tolist(), strict=True)
            assert all(now.get(index, 0) >= count for index, count in then)
    assert_same(before, topic(job.updates))


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(cases(), schedules)
def test_every_span_counts_once_whatever_crashes(case: Case, schedule: list[tuple[str, int]]) -> None:
    """After any crashes, redelivery, poison and idleness the newest points are those of a faultless run to the bit."""
    job = Job(case.messages, POLICY)
    for what, which in schedule:
        job.step(what, which)
    job.finish()
    assert told(topic(job.updates)) == expected_totals(case.spans, WIDTH_NS)
    embedded = [message for message in case.messages if message not in case.poison]
    assert_same(topic(job.updates), embedded_totals(embedded, POLICY))
    assert {dead.message for dead in job.dead} == set(case.poison)
    assert all(update.key == series_key(decode_point(update.point).series) for update in job.updates)
    assert_never_falls(job)


@settings(max_examples=60, deadline=None)
@given(cases(), st.lists(st.tuples(st.sampled_from(["take", "pass", "emit", "drain"]), st.integers(0, 7)), max_size=60))
def test_without_faults_nothing_is_told_twice(case: Case, schedule: list[tuple[str, int]]) -> None:
    """Each poison is told once, late points hold just the late spans, and the operator's counts add up."""
    job = Job(case.messages, POLICY)
    for what, which in schedule:
        job.step(what, which)
    job.finish()
    assert Counter(dead.message for dead in job.dead) == Counter(case.poison)
    counts = job.fold.counts
    late = [decode_point(late.point) for late in job.late]
    assert all(late.key == series_key(point.series) for late, point in zip(job.late, late, strict=True))
    assert not any(point.cumulative for point in late)
    assert counts.late == sum(point.spans for point in late)
    assert counts.batches == len(case.messages)
    assert counts.spans == counts.folded + counts.ranges + counts.duplicates
    assert counts.folded == sum(span.kind != Kind.RANGE for span in case.spans)
    assert sum(counts.rejected.values()) == len(case.poison)


@settings(max_examples=100, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_same_messages_give_the_same_pieces_whatever_restarts(case: Case, random: Random) -> None:
    """A stage that loses its memory between any two messages says all that one says that never does."""

    def outputs(*, forgetful: bool) -> list[object]:
        store = Store({})
        made: list[object] = []
        stage = None
        for message in case.messages:
            if stage is None or (forgetful and random.random() < 0.5):
                stage = FoldStage(POLICY, MemoryValue(store, "progress"), MemoryLog(store, "pending"))
            producer = store.key = producer_of(message)
            made += [_plain(output) for output in stage.take(producer, message)]
        return made

    assert outputs(forgetful=True) == outputs(forgetful=False)


def _plain(output: object) -> object:
    """Pieces number their series in the order of first sight, which a restart may change: compare them as points."""
    if not isinstance(output, Piece):
        return output
    registry = SeriesRegistry()
    return output.gpu_uuid, plain(points(unpack(output.partial, registry), WIDTH_NS, registry))


def test_a_batch_survives_whose_window_did_not_close_when_the_watermark_passed_an_edge() -> None:
    """The second batch closes an empty window, and the open one's two partials become one: both must be kept."""
    policy = WindowPolicy(WIDTH_NS, lateness_ns=50)
    spans = [Span(410, row=0), Span(470, row=1)]
    messages = [encode_batch(make_batch([span], sequence=at)) for at, span in enumerate(spans)]
    job = Job(messages, policy)
    for _ in spans:
        job.take(job.producers[0])
    job.checkpoint()
    job.crash()
    job.finish()
    assert told(topic(job.updates)) == expected_totals(spans, WIDTH_NS)


@pytest.mark.parametrize("seed", range(3))
def test_a_recorded_run_survives_crashes(seed: int, recorded: list[Batch]) -> None:
    """20,000 recorded executions of an H200, each batch twice, crashing often: the totals of the faultless run."""
    random = Random(seed)  # noqa: S311  # repeatable on purpose
    policy = WindowPolicy(10**7, lateness_ns=10**6)
    messages = [encode_batch(small) for small in _small(recorded)]
    # What comes again may come in any order, but behind what is new.
    delivered = [*messages, *random.sample(messages, len(messages)), *[b"poison"] * 3]
    job = Job(delivered, policy)
    for _ in range(400):
        job.step(random.choice(["take"] * 6 + ["pass"] * 6 + ["emit", "drain", "checkpoint", "crash"]), 0)
    job.finish()
    newest = topic(job.updates)
    assert_same(newest, embedded_totals(messages, policy))
    assert sum(point.spans for point in newest.values()) == 20_000
    assert {dead.message for dead in job.dead} == {b"poison"}
    assert_never_falls(job)


def _small(batches: Sequence[Batch]) -> list[Batch]:
    """The batches' rows in batches of 500."""
    small: list[Batch] = []
    for batch in batches:
        for at in range(0, len(batch.columns), 500):
            rows = np.arange(at, min(at + 500, len(batch.columns)))
            columns = batch.columns.take(rows)
            small.append(replace(batch, sequence=len(small), first_row=batch.first_row + at, columns=columns))
    return small


@settings(max_examples=60, deadline=None)
@given(cases(), schedules, st.integers(0, 2))
def test_top_k_loses_nothing_in_a_crash(case: Case, schedule: list[tuple[str, int]], top_k: int) -> None:
    """Which kernels have a series of their own may depend on timing; what the state counts of each GPU does not."""
    job = Job(case.messages, POLICY, top_k=top_k)
    for what, which in schedule:
        job.step(what, which)
    job.finish()
    kept = [
        decode_point(data)
        for (name, _), table in job.total_store.saved.items()
        if name == "kept"
        for data in table.values()
    ]
    work = [point.series for point in kept if point.series.kind not in OBSERVATIONS]
    kernels = {(series.gpu_uuid, series.kernel) for series in work if series.kernel != "other"}
    assert all(count <= top_k for count in Counter(gpu for gpu, _ in kernels).values())
    assert _sums((p.series, p.count, p.spans, p.sum_ns, p.warp_ns, p.bytes) for p in kept) == _sums(
        (series, what.count, what.spans, what.sum_ns, what.warp_ns, what.moved)
        for (_, series), what in brute_force(case.spans, WIDTH_NS).items()
    )


def _sums(rows: Iterable[tuple[Series, int, int, int, int, int]]) -> dict[tuple[str, int, str], list[int]]:
    """Sums by GPU, kind and stage."""
    sums: dict[tuple[str, int, str], list[int]] = {}
    for series, *numbers in rows:
        key = (series.gpu_uuid, series.kind, series.stage)
        sums[key] = [a + b for a, b in zip(sums.get(key, [0] * 5), numbers, strict=True)]
    return sums


@pytest.mark.parametrize("lateness_ns", [50, None])
def test_state_is_bounded_by_series_not_by_batches(lateness_ns: int | None) -> None:
    """However many batches an open window takes, what is kept of them is a few times what it is after the first 16."""
    stages = FoldStage(
        WindowPolicy(WIDTH_NS, lateness_ns), MemoryValue(store := Store({}), "progress"), MemoryLog(store, "pending")
    )
    producer = store.key = b"a" * 16
    sizes = []
    for sequence in range(500):
        spans = [Span(sequence % 100, 1000 + at, 4 * sequence + at, f"k{at}") for at in range(4)]
        message = encode_batch(make_batch(spans, producer=producer, sequence=sequence))
        assert list(stages.take(producer, message)) == []
        sizes.append(len(store.saved["progress", producer]) + sum(map(len, store.saved["pending", producer])))
    assert max(sizes) <= 1.1 * max(sizes[:17])
    assert max(sizes) < 17 * 1000


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(17, 60))
def test_pending_partials_stay_few_and_small(kernels: int, batches: int) -> None:
    """For any number of series, the log holds at most 16 partials, none larger than one row a series."""
    store = Store({})
    stage = FoldStage(POLICY, MemoryValue(store, "progress"), MemoryLog(store, "pending"))
    producer = store.key = b"a" * 16
    for sequence in range(batches):
        spans = [Span(5, 1000, kernels * sequence + at, f"k{at}") for at in range(kernels)]
        assert list(stage.take(producer, encode_batch(make_batch(spans, producer=producer, sequence=sequence)))) == []
        log = store.saved["pending", producer]
        assert len(log) <= 16
        assert max(map(len, log)) <= 200 + 300 * kernels


def test_an_idle_producer_is_taken_out_of_memory_and_goes_on() -> None:
    """After `release` what comes next finds the state; after `forget` the producer is new, and counts once more."""
    store = Store({})
    stage = FoldStage(POLICY, MemoryValue(store, "progress"), MemoryLog(store, "pending"))
    producer = store.key = b"a" * 16
    message = encode_batch(make_batch([Span(5)], producer=producer))
    assert list(stage.take(producer, message)) == []
    stage.release(producer)
    assert list(stage.take(producer, message)) == []
    assert stage.counts.duplicates == 1
    assert len(list(stage.drain(producer))) == 1
    assert list(stage.drain(producer)) == []
    stage.forget(producer)
    assert store.saved.get(("progress", producer)) is None
    assert list(stage.take(producer, message)) == []
    assert stage.counts.folded == 2


@pytest.mark.parametrize("seed", range(8))
def test_damaged_batches_are_dead_or_valid_and_harm_no_other(seed: int) -> None:
    """Of 250 damaged batches none raises anywhere, and the good ones among them count as if they were alone."""
    mutator = Mutator(seed)
    damaged = [mutator.next() for _ in range(250)]
    good = [Span(50 * row, 100 + row, row, f"k{row % 3}", gpu="GPU-good") for row in range(60)]
    batches = [encode_batch(make_batch(good[at : at + 10], producer=b"g" * 16, sequence=at)) for at in range(0, 60, 10)]
    messages = list(damaged)
    for at, message in enumerate(batches):
        messages.insert(40 * at, message)
    job = Job(messages, WindowPolicy(WIDTH_NS, lateness_ns=10**6), top_k=100)
    random = Random(seed)  # noqa: S311  # repeatable on purpose
    for _ in range(600):
        job.step(random.choice(["take"] * 8 + ["pass"] * 8 + ["emit", "checkpoint", "crash"]), random.randrange(300))
    job.finish()
    newest = topic(job.updates)
    mine = {series: point for series, point in newest.items() if series.gpu_uuid == "GPU-good"}
    assert told(mine) == expected_totals(good, WIDTH_NS)
    assert {dead.message for dead in job.dead} <= set(damaged)
    assert job.dead


def test_a_message_that_names_two_producers_is_dead() -> None:
    """Else it would count under the one that its first bytes name, and take a sequence of it."""
    job = Job([SOUND + b"\x12\x10" + b"y" * 16, SOUND], POLICY)
    job.finish()
    assert [dead.reason for dead in job.dead] == ["producer"]
    assert [point.spans for point in topic(job.updates).values()] == [1]

"""What a batch may claim: each limit to the unit, and that sums of batches at the limits neither wrap nor raise."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch, Gpu
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.errors import BatchError
from spanlite.contract.names import NAME_BYTES, clean_text
from spanlite.contract.point_codec import decode_point, encode_point
from spanlite.contract.points import Launch
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import MOST_SUM, Partial, merge
from spanlite.pipeline.plausible import (
    MOST_BYTES,
    MOST_COUNT,
    MOST_START_NS,
    MOST_TIME_NS,
    MOST_WARPS,
    check_batch,
)
from spanlite.pipeline.points import Totals
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy
from tests.contract.columns_strategy import batches
from tests.native.without import numpy_only
from tests.pipeline.conftest import Span, make_batch, same_bits
from tests.pipeline.simulator import Job, topic

WARM = Launch(active_warps=MOST_WARPS, max_warps=64)
LONGEST = "x" * NAME_BYTES


def refused(batch: Batch) -> str | None:
    """The reason, or None where the batch is accepted."""
    try:
        check_batch(batch)
    except BatchError as error:
        return error.reason
    return None


def copy(moved: int, weight: int = 1) -> Span:
    """A copy of so many bytes."""
    return Span(0, 1, kind=Kind.MEMCPY, moved=moved, weight=weight)


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ([Span(0, MOST_TIME_NS)], [Span(0, MOST_TIME_NS + 1)]),
        ([Span(0, MOST_TIME_NS >> 3, weight=8)], [Span(0, MOST_TIME_NS >> 3, weight=9)]),
        ([Span(0, MOST_TIME_NS // 2, r) for r in (0, 1)], [Span(0, MOST_TIME_NS // 2 + 1, r) for r in (0, 1)]),
        ([copy(MOST_BYTES)], [copy(MOST_BYTES + 16)]),
        ([copy(MOST_BYTES >> 10, 1 << 10)], [copy(MOST_BYTES >> 10, (1 << 10) + 1)]),
        ([Span(0, 1, weight=MOST_COUNT - 1)], [Span(0, 0, r, weight=1 << 31) for r in (0, 1, 2)]),
        ([Span(0, launch=WARM)], [Span(0, launch=WARM._replace(active_warps=MOST_WARPS + 1))]),
    ],
)
def test_sums_are_accepted_up_to_the_limit(within: list[Span], beyond: list[Span]) -> None:
    """GPU time, bytes, executions and warps: at the limit yes, over it no, weight and number of spans included."""
    assert refused(make_batch(within)) is None
    assert refused(make_batch(beyond)) == "total"


@pytest.mark.parametrize("by_numpy", [False, True])
def test_a_gauge_claims_no_bytes(*, by_numpy: bool) -> None:
    """Bits of a value are none, however large, with or without the library; increments of counters are."""
    gauges = [Span(0, 0, row, kind=Kind.GAUGE, moved=bits) for row, bits in enumerate([2**63 - 1, -(2**63), -1])]
    with numpy_only() if by_numpy else nullcontext():
        assert refused(make_batch([*gauges, copy(MOST_BYTES)._replace(row=3)])) is None
        assert refused(make_batch([Span(0, 0, kind=Kind.COUNTER, moved=MOST_BYTES + 16)])) == "total"


@pytest.mark.parametrize("sign", [-1, 1])
def test_starts_are_accepted_up_to_the_limit(sign: int) -> None:
    """146 years from 1970 either way; beyond, the edges of a window may not fit an int64."""
    assert refused(make_batch([Span(0), Span(sign * MOST_START_NS, row=1)])) is None
    assert refused(make_batch([Span(0), Span(sign * (MOST_START_NS + 1), row=1)])) == "time"
    assert refused(make_batch([Span(0), Span(-(2**63) if sign < 0 else 2**63 - 1, row=1)])) == "time"


def test_texts_are_accepted_up_to_the_limit() -> None:
    """Kernels, stages, owners and GPUs, counted in bytes: whatever name an agent keeps is within."""
    sound = make_batch([Span(0)])
    longer = LONGEST + "x"
    wide = "\U0001f525" * (NAME_BYTES // 4)
    assert refused(make_batch([Span(0, stage=wide)])) is None
    assert refused(make_batch([Span(0, stage=wide + "x")])) == "text_bytes"
    assert len(clean_text("x" * 10**6)) == NAME_BYTES
    stages = [make_batch([Span(0, stage=stage)]) for stage in (LONGEST, longer)]
    owners = [replace(sound, resource={"workload": text}) for text in (LONGEST, longer)]
    gpus = [replace(sound, gpus=(*sound.gpus, Gpu(text))) for text in (LONGEST, longer)]
    for within, beyond in (stages, owners, gpus):
        assert refused(within) is None
        assert refused(beyond) == "text_bytes"


def test_an_empty_batch_claims_nothing() -> None:
    """No rows, no limits."""
    assert refused(make_batch([])) is None


def greatest(sequence: int = 0) -> Batch:
    """A batch at every limit at once, with the longest texts of the widest characters."""
    wide = "\U0001f525" * 16384
    half = MOST_TIME_NS // 2
    launch = WARM._replace(copy_kind=1)
    spans = [
        Span(MOST_START_NS, half, 0, wide[:-6], launch, Kind.MEMCPY, wide, moved=MOST_BYTES // 2),
        Span(MOST_START_NS, half, 1, wide[:-6], launch, Kind.MEMCPY, wide, moved=MOST_BYTES // 2),
        Span(-MOST_START_NS, 0, 2, wide[:-6], launch, Kind.MEMCPY, wide, weight=MOST_COUNT - 2),
    ]
    names = ("workload", "k8s.namespace.name", "k8s.pod.name", "k8s.container.name", "host.name")
    return make_batch(spans, resource=dict.fromkeys(names, wide), sequence=sequence)


def test_a_batch_at_every_limit_adds_up_a_thousand_times() -> None:
    """2^10 of them and more in one running total: each point can be told, and sums are exact or stop at 2^62."""
    first = encode_batch(greatest())
    batch = decode_batch(first)
    check_batch(batch)
    registry = SeriesRegistry()
    totals = Totals(100, registry)
    one = merge([fold_batch(batch, 100, registry)])
    doubled = one
    for _ in range(10):
        doubled = merge([doubled, doubled])
        for point in totals.add(doubled):
            assert decode_point(encode_point(point)).count == point.count
    (last,) = totals.add(one)
    n = 1 + sum(1 << at for at in range(1, 11))
    assert last.count == n * MOST_COUNT
    assert last.sum_ns == n * MOST_TIME_NS
    assert (last.warp_ns, last.bytes) == (MOST_SUM, MOST_SUM)
    again = Totals(100, SeriesRegistry())
    again.restore([decode_point(encode_point(last))])


def test_batches_at_every_limit_pass_both_stages() -> None:
    """Windows at both ends of time, every text as long as it may be: nothing is dead and nothing raises."""
    messages = [encode_batch(greatest(sequence)) for sequence in range(3)]
    job = Job(messages, WindowPolicy(10**10))
    for _ in messages:
        job.take(job.producers[0])
        job.checkpoint()
        job.crash()
    job.finish()
    assert job.dead == []
    (point,) = topic(job.updates).values()
    assert (point.spans, point.count) == (9, 3 * MOST_COUNT)


@settings(max_examples=100, deadline=None)
@given(batches())
def test_any_batch_that_is_plausible_can_be_told(batch: Batch) -> None:
    """Whatever the contract allows is refused by a word, or passes both stages into points that can be read."""
    reason = refused(batch)
    job = Job([encode_batch(batch)], WindowPolicy(100))
    job.finish()
    assert [dead.reason for dead in job.dead] == ([reason] if reason else [])
    work = int((batch.columns.kind != Kind.RANGE).sum())
    assert sum(point.spans for point in topic(job.updates).values()) == (0 if reason else work)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, MOST_SUM), st.sampled_from([MOST_SUM, MOST_SUM - 1, 1 << 61])), max_size=12),
    st.randoms(use_true_random=False),
)
def test_sums_that_stop_still_commute(numbers: list[int], random: Random) -> None:
    """Merged in any tree, sums are the exact ones or 2^62, the same whatever the order."""
    registry = SeriesRegistry()
    one = merge([fold_batch(make_batch([Span(0)]), 100, registry)])
    parts = [replace(one, sum_ns=np.array([number])) for number in numbers] or [replace(one, sum_ns=np.array([0]))]
    whole = merge(parts)
    assert whole.sum_ns.tolist() == [min(sum(numbers), MOST_SUM)]
    left: list[Partial] = random.sample(parts, len(parts))
    while len(left) > 1:
        taken = random.randrange(1, len(left)) + 1
        left[:taken] = [merge(left[:taken])]
    assert same_bits(merge(left), whole)

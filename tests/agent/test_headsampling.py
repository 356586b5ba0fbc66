"""Head sampling: whole traces by a hash of their ids, weights that stand for all, and nothing that is not counted."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Frame, Header, pack_names, pack_text
from spanlite.agent.headsampling import MOST, HeadSampler
from spanlite.agent.process import TracedProcess
from spanlite.agent.windows import WINDOW
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Kind, SamplingMode, SpanColumns, make_columns
from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import ManualClock
from tests.agent.playing import HELLO, rows, take
from tests.agent.records import call, closing, external, kernel, opening

WORDS = 1 << 64


def mixed(word: int) -> int:
    """SplitMix64's finaliser, in whole numbers."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORDS
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORDS
    return word ^ word >> 31


def kept(trace: bytes, one_in: int) -> bool:
    """The rule, for one id."""
    high, low = int.from_bytes(trace[:8], "big"), int.from_bytes(trace[8:], "big")
    return mixed(high ^ mixed(low)) % one_in == 0


def ids_of(*numbers: int, seed: int = 0) -> npt.NDArray[np.void]:
    """Ids as good as random."""
    made = [hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=16).digest() for number in numbers]
    return np.array(made, dtype="V16")


def columns_of(
    trace: npt.NDArray[np.int64], ids: npt.NDArray[np.void], *, duration: Sequence[int] = (), weight: int = 1
) -> SpanColumns:
    """A kernel a row."""
    traces = np.zeros(len(ids), TRACE)
    traces["id"] = ids
    return make_columns(
        np.arange(len(trace)),
        np.array(duration if len(duration) else np.ones(len(trace)), np.int64),
        tables=(("",), np.zeros(1, CONFIG), np.zeros(1, PLACE), np.zeros(1, NODE), traces),
        trace=trace,
        weight=np.full(len(trace), weight),
    )


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=20), st.integers(1, MOST))
def test_which_traces_are_kept_follows_from_their_ids_alone(ids: list[bytes], one_in: int) -> None:
    """By the documented hash, worked out one id at a time: every process comes to the same."""
    found = HeadSampler(one_in).keeps(np.array(ids, dtype="V16"))
    assert found.tolist() == [kept(one, one_in) for one in ids]


def test_the_same_ids_are_kept_for_ever() -> None:
    """Ids written down: a change of the hash would tear the traces of a fleet that is upgraded node by node."""
    numbers = np.flatnonzero(HeadSampler(50).keeps(np.array([n.to_bytes(16, "big") for n in range(600)], "V16")))
    assert numbers.tolist() == [0, 70, 184, 261, 275, 356, 411, 412, 451, 485, 579]


def test_who_keeps_fewer_keeps_some_of_the_same() -> None:
    """One in 100 is a subset of one in 10, so agents with different rates still share whole traces."""
    ids = ids_of(*range(20_000))
    ten, hundred = HeadSampler(10).keeps(ids), HeadSampler(100).keeps(ids)
    assert not (hundred & ~ten).any()
    # Binomial: 2,000 and 200 with standard deviations of 42 and 14.
    assert abs(int(ten.sum()) - 2000) < 4 * 43
    assert abs(int(hundred.sum()) - 200) < 4 * 15


@pytest.mark.parametrize("one_in", [-1, 0, MOST + 1])
def test_rates_that_cannot_be_are_refused(one_in: int) -> None:
    """None, or weights that do not fit."""
    with pytest.raises(UsageError, match="65536"):
        HeadSampler(one_in)


def test_one_in_one_changes_nothing() -> None:
    """The default hands on the very same columns."""
    columns = columns_of(np.array([0, -1]), ids_of(1))
    sampled = HeadSampler().sample(columns)
    assert sampled.columns is columns
    assert (sampled.left_out, sampled.capped) == (0, 0)


def test_weights_multiply_and_rows_without_a_trace_stay() -> None:
    """A kept span of a window that stands for 7 stands for 7·N; one without a trace for its 7."""
    ids = ids_of(*range(40))
    sampled = HeadSampler(4).sample(columns_of(np.arange(-1, 40), ids, weight=7))
    expected = [7] + [28 for one in ids.tolist() if kept(bytes(one), 4)]
    assert sampled.columns.weight.tolist() == expected
    assert sampled.columns.weight.dtype == np.uint32
    assert sampled.left_out == 41 - len(expected)


def test_a_weight_that_does_not_fit_is_capped_and_counted() -> None:
    """2^20 by a window and 2^16 by sampling: as much as fits, and how often, instead of what is left modulo 2^32."""
    sampler = HeadSampler(MOST)
    several = ids_of(*range(1_000_000))
    ids = several[sampler.keeps(several)][:2]
    assert len(ids) == 2
    sampled = sampler.sample(columns_of(np.array([0, 1, -1, 1]), ids, weight=1 << 20))
    assert sampled.columns.weight.tolist() == [2**32 - 1, 2**32 - 1, 1 << 20, 2**32 - 1]
    assert sampled.capped == 3
    assert HeadSampler(MOST).sample(columns_of(np.array([0]), ids, weight=65_535)).capped == 0


@pytest.mark.parametrize("one_in", [2, 10, 64])
def test_counts_and_quantiles_are_unbiased(one_in: int) -> None:
    """30 runs of 10,000 traces whose sizes and durations differ widely and hang together.

    Of each run z = error / standard error, of the weighted count and of the weighted share of durations up to a true
    quantile. Traces are kept or not, so with sums m of a trace both errors have the variance (N - 1) · Σ m². The mean
    of 30 must lie within four of its standard errors of 0, and every z within five.
    """
    sampler = HeadSampler(one_in)
    errors = []
    for run in range(30):
        dice = np.random.default_rng(run)
        sizes = dice.geometric(0.05, 10_000)
        trace = np.repeat(np.arange(10_000), sizes)
        duration = (dice.lognormal(8, 1, len(trace)) * (1 + np.log(sizes))[trace]).astype(
            np.int64
        )  # long ones are slow
        ids = np.frombuffer(dice.bytes(160_000), dtype="V16")
        columns = sampler.sample(columns_of(trace, ids, duration=duration.tolist())).columns
        weight = columns.weight.astype(np.int64)
        error = [(int(weight.sum()) - len(trace)) / np.sqrt((one_in - 1) * (sizes**2).sum())]
        for share in (0.5, 0.9, 0.99):
            bound = np.quantile(duration, share)
            exact = np.count_nonzero(duration <= bound) / len(duration)
            of_trace = np.bincount(trace, (duration <= bound) - exact)
            found = (weight * ((columns.duration_ns <= bound) - exact)).sum()
            error.append(found / np.sqrt((one_in - 1) * (of_trace**2).sum()))
        errors.append(error)
    z = np.array(errors)
    assert np.abs(z).max() < 5
    assert np.abs(z.mean(axis=0)).max() < 4 / np.sqrt(30)
    assert z.std(axis=0).min() > 0.5  # it is sampled at all, and the standard errors are those of what is done


def process(one_in: int, counts: AgentCounts, said: dict[str, str] | None = None) -> TracedProcess:
    payload = pack_text({**HELLO, **(said or {})})
    header = Header(Frame.HELLO, len(payload), 0)
    return TracedProcess.from_hello(header, payload, 4711, ManualClock(), counts, sampler=HeadSampler(one_in))


NAMES = (Frame.NAMES, pack_names({0x10: "gemm", 0x20: "step", 0x30: "part"}))


def requests(sizes: Sequence[int], *, given_ids: bool) -> bytes:
    """A request a size, with so many kernels and a range within it, and a kernel between two; some times are wrong."""
    data, at, number = b"", 1000, 10
    for request, size in enumerate(sizes):
        data += opening(at, 2 * request + 1, 0x20) + opening(at + 1, 2 * request + 2, 0x30)
        for _ in range(size):
            number, at = number + 1, at + 10
            data += (external(number, request + 1) if given_ids else b"") + call(at, number)
            data += kernel(at + 1, at + 2 if size % 4 else at, number)  # every fourth request's end before they begin
        data += closing(at + 5, 2 * request + 2) + closing(at + 6, 2 * request + 1)
        number, at = number + 1, at + 20
        data += call(at, number) + kernel(at + 1, at + 2, number)
        at += 10
    return data


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=12), st.sampled_from([1, 2, 3, 7]), st.booleans(), st.integers(1, 4000))
def test_received_is_sent_dropped_and_sampled_out(sizes: list[int], one_in: int, given_ids: bool, piece: int) -> None:
    """Exactly, whatever traces there are and wherever buffers end; and what is kept of a trace is all of it."""
    data = requests(sizes, given_ids=given_ids)
    found: dict[int, list[Batch]] = {}
    for rate in (1, one_in):
        counts = AgentCounts()
        traced = process(rate, counts)
        frames = [NAMES, (Frame.BUFFER, data)]
        found[rate] = [decode_batch(encode_batch(one)) for one in [*take(traced, frames), *traced.finish()]]
        sent = sum(len(batch.columns) for batch in found[rate])
        dropped = sum(counts.by_label(catalogue.AGENT_SPANS_DROPPED).values())
        sampled_out = counts.value(catalogue.AGENT_SPANS_SAMPLED_OUT)
        assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == sent + dropped + sampled_out
        assert sampled_out == 0 or rate > 1
    if found[1]:
        everything = Counter(rows(found[1])["trace"].tolist())
        few = rows(found[one_in]) if found[one_in] else {"trace": np.zeros(0, object), "weight": np.zeros(0, np.int64)}
        assert Counter(few["trace"].tolist()) == {
            trace: count for trace, count in everything.items() if trace == b"" or kept(trace, one_in)
        }
        assert few["weight"].tolist() == [one_in if trace else 1 for trace in few["trace"].tolist()]


def test_ranges_go_with_their_traces() -> None:
    """Of 200 requests the kept ones have all three of their rows, a kernel and two ranges, each with weight 5."""
    batches = take(process(5, AgentCounts()), [NAMES, (Frame.BUFFER, requests([1] * 200, given_ids=False))])
    table = rows(batches)
    traced = table["trace"] != b""
    assert table["kind"][~traced].tolist() == [Kind.KERNEL] * 200
    assert set(table["weight"][~traced].tolist()) == {1}
    of_trace = Counter(table["trace"][traced].tolist())
    assert set(of_trace.values()) == {3}
    assert 20 < len(of_trace) < 65  # 40 and a standard deviation of 5.7
    assert Counter(table["kind"][traced].tolist()) == {Kind.KERNEL: len(of_trace), Kind.RANGE: 2 * len(of_trace)}
    assert set(table["weight"][traced].tolist()) == {5}


def test_processes_agree_on_a_distributed_trace() -> None:
    """The same traceparents in two processes with other sessions: both keep the same third of 300 traces."""
    names = {
        0x1000 + n: f"00-{hashlib.blake2b(bytes([n // 256, n % 256]), digest_size=16).hexdigest()}-{n + 1:016x}-01"
        for n in range(300)
    }
    data = b"".join(
        opening(1000 + 10 * n, n + 1, 0x1000 + n)
        + call(1001 + 10 * n, 11 + n)
        + kernel(1002 + 10 * n, 1003 + 10 * n, 11 + n)
        + closing(1004 + 10 * n, n + 1)
        for n in range(300)
    )
    told = []
    for session in ("ab", "cd"):
        traced = process(3, AgentCounts(), {"session": session})
        table = rows(take(traced, [NAMES, (Frame.NAMES, pack_names(names)), (Frame.BUFFER, data)]))
        assert set(table["weight"].tolist()) == {3}
        told.append(sorted(table["trace"].tolist()))
    assert told[0] == told[1]
    assert told[0] == sorted(bytes.fromhex(text[3:35]) for text in names.values() if kept(bytes.fromhex(text[3:35]), 3))


def test_batches_say_how_they_were_chosen() -> None:
    """TRACES; in windows DUTY_CYCLE, whose weights are multiplied; FULL at a rate of 1."""
    data = (Frame.BUFFER, requests([1] * 50, given_ids=False))
    window = np.array([(1, 6, 2, SamplingMode.DUTY_CYCLE, 0)], WINDOW).tobytes()
    for one_in, frames, mode, weights in (
        (1, [NAMES, data], SamplingMode.FULL, {1}),
        (4, [NAMES, data], SamplingMode.TRACES, {1, 4}),
        (4, [NAMES, (Frame.WINDOWS, window), data], SamplingMode.DUTY_CYCLE, {3, 12}),
    ):
        batches = take(process(one_in, AgentCounts()), frames)
        assert {batch.sampling for batch in batches} == {mode}
        table = rows(batches)
        assert set(table["weight"][table["kind"] == Kind.KERNEL].tolist()) == weights


def test_a_client_without_cupti_is_not_sampled() -> None:
    """Custom metrics come on connections of their own and have no traces: all of them are there, and they say so."""
    traced = process(4, AgentCounts(), {"cupti_version": "0"})
    assert traced._batcher.sampling is SamplingMode.FULL

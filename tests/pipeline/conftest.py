"""Spans as plain rows, batches made of them, and a brute force in Python's whole numbers to judge the fold by.

The brute force shares no code with the pipeline: span by span, with its own buckets and span ids.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from spanlite.agent.batcher import Batcher
from spanlite.agent.tables import KernelTable
from spanlite.contract.batch import Batch, Gpu
from spanlite.contract.columns import CONFIG, NODE, OBSERVATIONS, PLACE, TRACE, Kind, Table, make_columns
from spanlite.contract.points import Launch, Point, Series
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import Partial, merge
from spanlite.pipeline.points import points
from spanlite.pipeline.series import SeriesRegistry
from spanlite.runtime.clock import ManualClock

SLICE = Path(__file__).parents[1] / "data" / "serve_slice.parquet"
SESSION = 0x9E3779B97F4A7C15
NO_TRACE = bytes(16)


LAUNCH = Launch(grid=(4, 2, 1), block=(128, 1, 1), registers_per_thread=32, active_warps=48, max_warps=64, limiter=3)


class Span(NamedTuple):
    """One row of a batch; `row` is its number in the session, which makes its id.

    `moved` is also what a counter is increased by, and of a gauge the bits of its value.
    """

    start_ns: int
    duration_ns: int = 1000
    row: int = 0
    kernel: str = "gemm"
    launch: Launch = Launch()
    kind: int = Kind.KERNEL
    stage: str = ""
    gpu: str = "GPU-1"
    moved: int = 0
    weight: int = 1
    trace: bytes = NO_TRACE

    @property
    def span_id(self) -> int:
        """SplitMix64's finaliser of session xor row; what an exemplar says of a gauge is its value."""
        if self.kind == Kind.GAUGE:
            return self.moved % 2**64
        x = SESSION ^ self.row
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    @property
    def series(self) -> Series:
        """The series of the span; its kernel's full name is the id with a mark."""
        return Series(self.gpu, int(self.kind), self.kernel, f'{self.kernel}{{full="1"}}', self.launch, self.stage)


@dataclass(frozen=True)
class Expected:
    """What a point must say; `exemplar` is trace, span id, duration, start of the longest span."""

    count: int
    spans: int
    sum_ns: int
    min_ns: int
    max_ns: int
    warp_ns: int
    moved: int
    buckets: tuple[tuple[int, int], ...]
    exemplar: tuple[bytes, int, int, int]


Expectation = dict[tuple[int, Series], Expected]


@cache
def exact_bucket(duration_ns: int) -> int:
    """Smallest i with duration <= 2^(i/32) s, in whole numbers: d^32 <= 2^i * 10^288; no time counts as 1 ns."""
    duration_ns = max(duration_ns, 1)
    index = math.ceil(32 * math.log2(duration_ns / 1e9)) - 2
    while duration_ns**32 << max(-index, 0) > 10**288 << max(index, 0):
        index += 1
    return index


def brute_force(spans: Iterable[Span], width_ns: int) -> Expectation:
    """Groups of (window start, series), span by span."""
    groups: dict[tuple[int, Series], list[Span]] = {}
    for span in spans:
        if span.kind != Kind.RANGE:
            groups.setdefault((span.start_ns // width_ns * width_ns, span.series), []).append(span)
    return {key: _aggregate(group) for key, group in groups.items()}


def _aggregate(group: Sequence[Span]) -> Expected:
    buckets: dict[int, int] = {}
    for span in group:
        index = exact_bucket(span.duration_ns)
        buckets[index] = buckets.get(index, 0) + span.weight
    sum_ns = sum(span.duration_ns * span.weight for span in group)
    lasting = any(span.duration_ns for span in group)
    longest = min(
        group, key=lambda span: (-span.duration_ns, span.start_ns if lasting else -span.start_ns, span.span_id)
    )
    is_gauge = longest.kind == Kind.GAUGE
    return Expected(
        count=sum(span.weight for span in group),
        spans=len(group),
        sum_ns=sum_ns,
        min_ns=min(span.duration_ns for span in group),
        max_ns=longest.duration_ns,
        warp_ns=sum_ns * group[0].launch.active_warps,
        moved=0 if is_gauge else sum(span.moved * span.weight for span in group),
        buckets=tuple(sorted(buckets.items())),
        exemplar=(NO_TRACE if is_gauge else longest.trace, longest.span_id, longest.duration_ns, longest.start_ns),
    )


def plain(made: Iterable[Point]) -> Expectation:
    """Points in the form of the brute force; fails where a series has two points of one window."""
    found: Expectation = {}
    for point in made:
        key = (point.window_start_ns, point.series)
        assert key not in found
        assert point.exemplar is not None
        buckets = tuple(zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True))
        longest = point.exemplar
        exemplar = (longest.trace_id, longest.span_id, longest.duration_ns, longest.start_ns)
        sums = (point.count, point.spans, point.sum_ns, point.min_ns, point.max_ns, point.warp_ns, point.bytes)
        found[key] = Expected(*sums, buckets, exemplar)
    return found


def make_batch(
    spans: Sequence[Span],
    *,
    producer: bytes = b"producer-1......",
    sequence: int = 0,
    resource: Mapping[str, str] | None = None,
) -> Batch:
    """A batch of spans with consecutive row numbers; unused entries stand in front of every table."""
    strings: dict[str, int] = {"": 0, "unused": 1}
    configs: dict[tuple[str, Launch], int] = {("unused", Launch(grid=(9, 9, 9))): 0}
    gpus: dict[str, int] = {"": 0, "GPU-unused": 1}
    traces: dict[bytes, int] = {b"unused trace....": 0}
    first = spans[0].row if spans else 0
    assert all(span.row == first + at for at, span in enumerate(spans))
    rows = [
        (
            span.start_ns,
            span.duration_ns,
            span.kind,
            configs.setdefault((span.kernel, span.launch), len(configs)),
            gpus.setdefault(span.gpu, len(gpus)),
            strings.setdefault(span.stage, len(strings)),
            -1 if span.trace == NO_TRACE else traces.setdefault(span.trace, len(traces)),
            span.row if span.kind == Kind.RANGE else -1,
            span.moved,
            span.weight,
        )
        for span in spans
    ]
    places = np.zeros(len(gpus), dtype=PLACE)
    places["gpu"] = np.arange(len(gpus))[::-1]
    columns: Any = np.array(rows, dtype=np.int64).reshape(len(rows), 10).T
    table = _config_table(configs, strings)
    return Batch(
        producer=producer,
        sequence=sequence,
        session=SESSION,
        first_row=first,
        emit_ns=0,
        columns=make_columns(
            columns[0],
            columns[1],
            tables=(tuple(strings), table, places, np.zeros(1, dtype=NODE), _trace_table(traces)),
            kind=columns[2],
            config=columns[3],
            place=len(gpus) - 1 - columns[4],
            stage=columns[5],
            trace=columns[6],
            range_number=columns[7],
            bytes=columns[8],
            weight=columns[9],
        ),
        resource=resource or {},
        gpus=tuple(Gpu(uuid) for uuid in list(gpus)[1:]),
    )


def _config_table(configs: dict[tuple[str, Launch], int], strings: dict[str, int]) -> Table:
    rows = []
    for kernel, launch in configs:
        names = [strings.setdefault(text, len(strings)) for text in (kernel, f'{kernel}{{full="1"}}')]
        rows.append((*names, *launch.grid, *launch.block, *launch.cluster, *launch[3:]))
    return np.array(rows, dtype=CONFIG)


def _trace_table(traces: dict[bytes, int]) -> Table:
    table = np.zeros(len(traces), dtype=TRACE)
    table["id"] = np.frombuffer(b"".join(traces), dtype="V16")
    return table


launches = st.sampled_from([LAUNCH, LAUNCH._replace(grid=(4, 2, 2)), LAUNCH._replace(active_warps=16), Launch()])


@st.composite
def span_lists(draw: st.DrawFn, most: int = 30) -> list[Span]:
    """Rows of every kind, with few distinct values, so that groups, ties and window edges meet."""
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from([-100, -1, 0, 1, 99, 100, 101, 250, 7 * 10**6]),
                st.sampled_from([1, 2, 500, 500, 977, 10**9, 10**11]),
                st.sampled_from(["gemm", "relu"]),
                launches,
                st.sampled_from([Kind.KERNEL, Kind.KERNEL, Kind.MEMCPY, Kind.RANGE, *map(Kind, sorted(OBSERVATIONS))]),
                st.sampled_from(["", "prefill", "decode"]),
                st.sampled_from(["", "GPU-1", "GPU-2"]),
                st.integers(0, 4096),
                st.sampled_from([1, 1, 3, 1000]),
                st.sampled_from([bytes(16), b"trace-a.........", b"trace-b........."]),
            ),
            max_size=most,
        )
    )
    return [_fitting(Span(start, duration, row, *rest)) for row, (start, duration, *rest) in enumerate(rows)]


def _fitting(span: Span) -> Span:
    """The span with what its kind has: counters and gauges take no time, the latter are values of either sign."""
    if span.kind in OBSERVATIONS:  # one name is one kind's
        span = span._replace(kernel=f"{span.kernel}.{Kind(span.kind).name}")
    if span.kind == Kind.COUNTER:
        return span._replace(duration_ns=0)
    if span.kind == Kind.GAUGE:
        return span._replace(duration_ns=0, moved=bits_of((2048 - span.moved) / 3))
    return span if span.kind == Kind.MEMCPY else span._replace(moved=0)


def bits_of(value: float) -> int:
    """The bits of a float64 as an int64."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def fold_all(batches: Iterable[Batch], width_ns: int) -> list[Point]:
    """Points of all windows, everything merged at once."""
    registry = SeriesRegistry()
    return points(merge([fold_batch(batch, width_ns, registry) for batch in batches]), width_ns, registry)


def same_bits(left: Partial, right: Partial) -> bool:
    """Whether two partials agree in every column and dtype."""
    pairs = ((getattr(left, name), getattr(right, name)) for name in Partial.__slots__)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope="session")
def recorded() -> list[Batch]:
    """20,000 executions of a recorded H200 serving run, in batches of at most 8,192."""
    (whole,) = KernelTable(SLICE).batches(ManualClock())
    batcher = Batcher(whole.producer, whole.session, whole.resource, whole.gpus, ManualClock(), whole.clock, rows=8192)
    return list(batcher.cut(whole.columns))

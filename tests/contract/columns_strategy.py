"""Batches to test with: any that hypothesis can think of, and one that looks like a traced process."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Kind, SamplingMode, SpanColumns, Table, make_columns

LOWEST, HIGHEST = -(2**63), 2**63 - 1
_INT64 = st.one_of(st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]))
_NATURAL = st.one_of(st.integers(0, HIGHEST), st.sampled_from([0, 1, 255, 256, 2**32, HIGHEST]))
_UINT64 = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**63, 2**64 - 1]))
_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["核🔥\x00", '"\n\\', "x" * 20_000, "é" * 5_000]),
)


@st.composite
def _tables(draw: st.DrawFn, dtype: np.dtype[np.void], rows: int, limits: dict[str, int]) -> Table:
    table: Table = np.zeros(rows, dtype=dtype)
    for name, (field, *_) in (dtype.fields or {}).items():
        if name == "id":
            ids = [draw(st.binary(min_size=16, max_size=16)) for _ in range(rows)]
            table[name] = np.frombuffer(b"".join(ids), dtype="V16")
            continue
        if name in limits:
            elements = st.integers(0, limits[name])
        elif field == np.dtype("<i8"):
            elements = _INT64
        else:
            elements = st.integers(int(np.iinfo(field).min), int(np.iinfo(field).max))
        table[name] = draw(npst.arrays(field, rows, elements=elements))
    return table


@st.composite
def columns(draw: st.DrawFn, gpus: int, most_rows: int = 24) -> SpanColumns:
    """Columns of 0 to `most_rows` rows in no order, of all kinds, with values up to the edge of every type."""
    rows = draw(st.integers(0, most_rows))
    strings = ("", *draw(st.lists(_TEXT, max_size=4)))
    texts = len(strings) - 1
    configs = draw(_tables(CONFIG, draw(st.integers(1, 4)), {"kernel": texts, "name": texts}))
    places = draw(_tables(PLACE, draw(st.integers(1, 3)), {"gpu": gpus}))
    nodes = draw(_tables(NODE, draw(st.integers(1, 3)), {}))
    traces = draw(_tables(TRACE, draw(st.integers(0, 5)), {}))

    def column(elements: st.SearchStrategy[int], dtype: str = "<i8") -> NDArray[Any]:
        return draw(npst.arrays(np.dtype(dtype), rows, elements=elements))

    kind = column(st.sampled_from([int(k) for k in Kind]), "u1")
    moves = (kind == Kind.MEMCPY) | (kind == Kind.MEMSET) | (kind == Kind.COUNTER)
    return make_columns(
        column(_INT64),
        column(_NATURAL),
        tables=(strings, configs, places, nodes, traces),
        kind=kind,
        config=column(st.integers(0, len(configs) - 1), "<i4"),
        place=column(st.integers(0, len(places) - 1), "<i4"),
        node=column(st.integers(0, len(nodes) - 1), "<i4"),
        stage=column(st.integers(0, texts), "<i4"),
        trace=column(st.integers(-1, len(traces) - 1), "<i4"),
        parent=column(st.one_of(st.just(-1), _NATURAL)),
        range_number=np.where(kind == Kind.RANGE, column(_NATURAL), -1),
        correlation=column(_INT64),
        bytes=np.where(moves, column(_NATURAL), np.where(kind == Kind.GAUGE, column(_INT64), 0)),
        weight=column(st.one_of(st.just(1), st.integers(1, 2**32 - 1)), "<u4"),
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Any batch that the contract allows."""
    gpus = tuple(
        Gpu(
            uuid=draw(_TEXT),
            index=at,
            name=draw(_TEXT),
            compute_major=9,
            multiprocessors=draw(st.integers(0, 2**32 - 1)),
        )
        for at in range(draw(st.integers(0, 2)))
    )
    return Batch(
        producer=draw(st.binary(min_size=16, max_size=16)),
        sequence=draw(_UINT64),
        session=draw(_UINT64),
        first_row=draw(st.integers(0, 2**63 - 100)),
        emit_ns=draw(_INT64),
        columns=draw(columns(len(gpus))),
        resource=draw(st.dictionaries(_TEXT, _TEXT, max_size=3)),
        gpus=gpus,
        clock=ClockAnchor(draw(_INT64), draw(_INT64), draw(st.integers(0, 2**32 - 1))),
        sampling=draw(st.sampled_from(list(SamplingMode))),
    )


def sample_batch(rows: int, seed: int = 1, *, traces: int = 3) -> Batch:
    """A batch as a busy process makes it: kernels with gaps of microseconds, some copies, sets and ranges."""
    rng = np.random.default_rng(seed)
    strings = ("", "gemm", "void gemm<float>(int)", "norm", "_Z4normPfi", "prefill", "decode", "request")
    configs = np.zeros(6, dtype=CONFIG)
    for name in CONFIG.names or ():
        configs[name] = rng.integers(0, 5, len(configs))
    configs["grid_x"] = rng.integers(1, 1 << 20, len(configs))
    places = np.zeros(3, dtype=PLACE)
    places["gpu"], places["stream_id"], places["thread_id"] = [1, 2, 0], [7, 13, 0], [0, 0, 2**64 - 5]
    nodes = np.zeros(4, dtype=NODE)
    nodes["graph_id"], nodes["graph_node_id"] = [0, 3, 3, 3], [0, 2**33, 2**33 + 1, 2**33 + 2]
    table = np.zeros(traces, dtype=TRACE)
    table["id"] = np.frombuffer(rng.bytes(16 * traces), dtype="V16")
    table["start_ns"] = 1_700_000_000_000_000_000 + np.arange(traces) * 1_000_000
    kind = rng.choice(np.array([1, 1, 1, 1, 1, 1, 2, 3, 4], dtype=np.uint8), rows)
    duration = rng.integers(1_000, 60_000, rows)
    start = 1_700_000_000_000_000_000 + np.cumsum(duration + rng.integers(300, 3_000, rows))
    made = make_columns(
        start,
        duration,
        tables=(strings, configs, places, nodes, table),
        kind=kind,
        config=rng.integers(0, len(configs), rows),
        place=rng.integers(0, len(places), rows),
        node=rng.integers(0, len(nodes), rows),
        stage=rng.choice([0, 5, 6], rows),
        trace=rng.integers(-1, traces, rows),
        parent=np.arange(rows) // 50 - 1,
        range_number=np.where(kind == Kind.RANGE, np.cumsum(kind == Kind.RANGE), -1),
        correlation=np.arange(rows) + 1_000,
        bytes=np.where((kind == Kind.MEMCPY) | (kind == Kind.MEMSET), rng.integers(0, 1 << 24, rows), 0),
        weight=np.where(rng.random(rows) < 0.1, 8, 1),
    )
    return Batch(
        producer=bytes(range(16)),
        sequence=41,
        session=0x0123456789ABCDEF,
        first_row=1_000,
        emit_ns=1_700_000_001_000_000_000,
        columns=made,
        resource={"host.name": "node-1", "workload": "serve"},
        gpus=(
            Gpu("GPU-aaaa", 0, "NVIDIA H200", 9, 0, 132, "0000:18:00.0"),
            Gpu("MIG-bbbb", 1, "NVIDIA H200", 9, 0, 16),
        ),
        clock=ClockAnchor(1_700_000_000_000_000_000, 1_700_000_000_000_000_123, 250),
    )

"""Span columns: ranges added, rows in order, tables cut to what is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.columns import RangeRows, compact, in_start_order, with_ranges
from spanlite.contract.columns import CONFIG, NODE, PLACE, ROW_COLUMNS, TRACE, Kind, SpanColumns, equal, make_columns

_STRINGS = ("", "unused", "k0", "k1", "k2", "prefill", "decode")


def _columns(rows: int, seed: int = 0, *, widest: int = 2**40) -> SpanColumns:
    """Random rows over tables of which some entries may be unused, some equal."""
    rng = np.random.default_rng(seed)
    configs, places = np.zeros(4, CONFIG), np.zeros(3, PLACE)
    configs["kernel"], configs["name"], configs["grid_x"] = [2, 3, 4, 2], [2, 3, 4, 2], [5, 6, 7, 8]
    places["stream_id"] = [1, 2, 3]
    nodes, traces = np.zeros(3, NODE), np.zeros(3, TRACE)
    nodes["graph_id"] = [0, 4, 5]
    traces["id"] = [b"a" * 16, b"b" * 16, b"c" * 16]
    return make_columns(
        rng.integers(0, widest, rows),
        rng.integers(1, 100, rows),
        tables=(_STRINGS, configs, places, nodes, traces),
        config=rng.integers(0, 4, rows),
        place=rng.integers(0, 3, rows),
        node=rng.integers(0, 3, rows),
        stage=rng.choice([0, 5, 6], rows),
        trace=rng.integers(-1, 3, rows),
        parent=rng.integers(-1, 9, rows),
        correlation=rng.integers(0, 99, rows),
    )


def _looked_up(columns: SpanColumns) -> list[tuple[Any, ...]]:
    """Every row as a tuple, with what its tables say instead of the indexes."""
    config, place = columns.configs[columns.config], columns.places[columns.place]
    traces = [columns.traces["id"][at].tobytes() if at >= 0 else None for at in columns.trace.tolist()]
    parts: list[list[Any]] = [
        [columns.strings[at] for at in config["kernel"]],
        [columns.strings[at] for at in config["name"]],
        [columns.strings[at] for at in columns.stage],
        config[list((CONFIG.names or ())[2:])].tolist(),
        place.tolist(),
        columns.nodes[columns.node].tolist(),
        traces,
    ]
    plain = set(ROW_COLUMNS) - {"config", "place", "node", "stage", "trace"}
    return list(zip(*parts, *(getattr(columns, name).tolist() for name in sorted(plain)), strict=True))


@given(st.integers(0, 6), st.integers(0, 2**32))
def test_compacting_changes_no_row_and_leaves_no_unused_entry(rows: int, seed: int) -> None:
    """Rows look up what they did; of the tables every entry is used, or is text 0 or node 0; once more is the same."""
    columns = _columns(rows, seed)
    small = compact(columns)
    assert _looked_up(small) == _looked_up(columns)
    assert set(range(len(small.configs))) == set(small.config.tolist())
    assert set(range(len(small.places))) == set(small.place.tolist())
    assert set(range(len(small.nodes))) == {0, *small.node.tolist()}
    assert set(range(len(small.traces))) == set(small.trace.tolist()) - {-1}
    texts = {0, *small.configs["kernel"].tolist(), *small.configs["name"].tolist(), *small.stage.tolist()}
    assert set(range(len(small.strings))) == texts
    assert small.nodes[0].tolist() == (0, 0)
    assert equal(compact(small), small)


def test_compacting_does_not_touch_what_it_was_given() -> None:
    """The tables of the source are shared by several batches."""
    columns = _columns(50)
    before = columns.configs.copy(), columns.traces.copy()
    for rows in (2, 50):
        compact(columns.take(slice(0, rows)))
    assert np.array_equal(columns.configs, before[0])
    assert np.array_equal(columns.traces, before[1])


@given(st.integers(0, 30), st.integers(0, 2**32))
def test_rows_are_put_in_order_of_their_starts_and_equal_ones_stay(rows: int, seed: int) -> None:
    """A stable sort by start, as Python's own."""
    columns = _columns(rows, seed, widest=6)
    assert _looked_up(in_start_order(columns)) == [
        row
        for _, row in sorted(zip(columns.start_ns.tolist(), _looked_up(columns), strict=True), key=lambda one: one[0])
    ]


def test_rows_that_are_in_order_are_not_copied() -> None:
    """The usual case of one stream costs one comparison."""
    columns = in_start_order(_columns(50))
    assert in_start_order(columns) is columns


def test_ranges_become_rows_with_text_thread_and_number() -> None:
    """Behind the GPU work, which stays as it was; texts and threads are entered into the tables once each."""
    columns = _columns(5)
    ranges = RangeRows(
        number=np.array([7, 8, 9]),
        parent=np.array([-1, 7, 7]),
        start_ns=np.array([100, 110, 120]),
        duration_ns=np.array([50, 5, 6]),
        trace=np.array([2, 2, -1], dtype=np.int32),
        name=np.array([5, 6, 6], dtype=np.int32),
        thread=np.array([2**64 - 1, 3, 2**64 - 1], dtype=np.uint64),
    )
    joined = with_ranges(columns, ranges, np.array([0, 5, 5], dtype=np.int32))
    assert _looked_up(joined.take(slice(0, 5))) == _looked_up(columns)
    rows = joined.take(slice(5, None))
    assert rows.kind.tolist() == [Kind.RANGE] * 3
    assert rows.range_number.tolist() == [7, 8, 9]
    assert rows.parent.tolist() == [-1, 7, 7]
    assert rows.start_ns.tolist() == [100, 110, 120]
    assert rows.duration_ns.tolist() == [50, 5, 6]
    assert [rows.strings[at] for at in rows.configs["name"][rows.config]] == ["prefill", "decode", "decode"]
    assert [rows.strings[at] for at in rows.stage] == ["", "prefill", "prefill"]
    assert rows.places["thread_id"][rows.place].tolist() == [2**64 - 1, 3, 2**64 - 1]
    assert rows.places["gpu"][rows.place].tolist() == [0, 0, 0]
    assert rows.trace.tolist() == [2, 2, -1]
    assert (len(joined.configs), len(joined.places)) == (4 + 2, 3 + 2)


def test_no_ranges_no_change() -> None:
    """Nothing is copied."""
    columns = _columns(5)
    none = np.zeros(0, dtype=np.int64)
    ranges = RangeRows(none, none, none, none, none.astype(np.int32), none.astype(np.int32), none.astype(np.uint64))
    assert with_ranges(columns, ranges, none.astype(np.int32)) is columns

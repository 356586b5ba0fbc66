"""Windows: rows of several batches, from several row groups, in any order, once each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spanlite.contract.columns import ROW_COLUMNS, TRACE
from spanlite.replay.blocks import Part
from spanlite.replay.window import Window, arranged

Piece = tuple[int, list[int]]
"""A batch, and numbers of rows of it."""


@st.composite
def pieces(draw: st.DrawFn) -> tuple[int, list[list[Piece]]]:
    """How many batches there are, and rows of them, each batch in at least one part, rows maybe there twice."""
    batches = draw(st.integers(1, 4))
    base = draw(st.sampled_from([0, 5, 2**62, 2**63 - 20]))
    rows = st.lists(st.integers(base, base + 8), min_size=1, max_size=8)
    whole = st.integers(1, 6).map(lambda count: [base + at for at in range(count)])
    parts = [[(batch, draw(whole | rows)) for batch in range(batches)]]
    for _ in range(draw(st.integers(0, 2))):
        some = draw(st.lists(st.integers(0, batches - 1), unique=True, min_size=1))
        parts.append([(batch, draw(rows)) for batch in some])
    return batches, draw(st.permutations(parts))


def _part(part: list[Piece], number: int) -> Part:
    """Columns that tell where a row is from: its start says batch and row, its correlation the part."""
    row = np.array([row for _, rows in part for row in rows], dtype=np.uint64)
    counts = np.array([len(rows) for _, rows in part])
    batch = np.repeat([batch for batch, _ in part], counts)
    columns: dict[str, NDArray[Any]] = {
        name: np.broadcast_to(np.zeros(1, dtype=dtype), len(row)) for name, dtype in ROW_COLUMNS.items()
    }
    columns["start_ns"] = row.view(np.int64) * 4 + batch
    columns["correlation"] = np.broadcast_to(np.int64(number), len(row))
    columns["trace"] = np.where(row % np.uint64(2) == 0, 0, -1).astype(np.int32)
    traces = np.zeros(1, dtype=TRACE)
    traces["start_ns"] = number
    return Part(counts, row, columns, traces)


def _rows(window: Window) -> list[list[tuple[int, int, int]]]:
    """Of each batch its rows: number, part, and part of the trace or -1."""
    columns, found = window.columns, []
    runs = [*zip(window.runs.batch.tolist(), window.runs.begin.tolist(), window.runs.row.tolist(), strict=True)]
    ends = [*window.runs.begin.tolist()[1:], int(window.bound[-1])]
    for batch, (begin, end) in enumerate(zip(window.bound.tolist(), window.bound.tolist()[1:], strict=False)):
        rows: list[tuple[int, int, int]] = []
        for (of, first, number), last in zip(runs, ends, strict=True):
            if of != batch:
                continue
            assert begin <= first < last <= end
            for at in range(first, last):
                row = number + at - first
                assert int(columns["start_ns"][at]) == int(np.uint64(row).view(np.int64) * np.int64(4)) + batch
                trace = int(columns["trace"][at])
                told = int(window.traces["start_ns"][trace]) if trace >= 0 else -1
                rows.append((row, int(columns["correlation"][at]), told))
        assert len(rows) == end - begin
        found.append(rows)
    return found


@pytest.mark.filterwarnings("ignore:overflow")
@given(pieces())
def test_rows_come_in_order_and_once(drawn: tuple[int, list[list[Piece]]]) -> None:
    """Whatever is missing or there twice: of a row that is in two parts, the first one's is taken."""
    batches, parts = drawn
    expected: list[dict[int, int]] = [{} for _ in range(batches)]
    for number, part in enumerate(parts):
        for batch, rows in part:
            for row in rows:
                expected[batch].setdefault(row, number)
    owners = [np.array([batch for batch, _ in part]) for part in parts]
    window = arranged([_part(part, number) for number, part in enumerate(parts)], owners, batches)
    assert _rows(window) == [
        [(row, part, part if row % 2 == 0 else -1) for row, part in sorted(rows.items())] for rows in expected
    ]
    assert {name: values.dtype for name, values in window.columns.items()} == ROW_COLUMNS
    whole = window.whole()
    assert whole.row.tolist() == [min(rows) for rows in expected]
    assert whole.begin.tolist() == window.bound[:-1].tolist()
    cuts = sum(row + 1 not in rows for rows in expected for row in rows)
    assert len(window.runs.begin) == cuts


def test_what_says_that_it_is_one_value_stays_that() -> None:
    """Columns of one value take no memory of rows, unless parts differ."""
    alike = [_part([(0, [0, 1])], 7), _part([(1, [0, 1])], 7)]
    window = arranged(alike, [np.array([0]), np.array([1])], 2)
    assert window.columns["correlation"].strides == (0,)
    other = [_part([(0, [0, 1])], 7), _part([(1, [0, 1])], 8)]
    window = arranged(other, [np.array([0]), np.array([1])], 2)
    assert window.columns["correlation"].tolist() == [7, 7, 8, 8]


def test_numbers_as_far_apart_as_they_can_be() -> None:
    """Keys of rows would not fit 64 bits then; they are sorted by two."""
    parts = [_part([(0, [2**63, 3, 0]), (1, [2**62, 1])], 0), _part([(0, [2**62 + 1, 3])], 1)]
    window = arranged(parts, [np.array([0, 1]), np.array([0])], 2)
    assert window.row is not None
    assert window.row.tolist() == [0, 3, 2**62 + 1, 2**63, 1, 2**62]
    assert window.runs.begin.tolist() == [0, 1, 2, 3, 4, 5]
    assert window.columns["correlation"].tolist() == [0, 0, 1, 0, 0, 0]

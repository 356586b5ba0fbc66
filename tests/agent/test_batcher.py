"""Batches: cut at the limit, numbered without a gap, each with all that its rows point at."""

from __future__ import annotations

import numpy as np
import pytest

from spanlite.agent.batcher import BATCH_ROWS, Batcher
from spanlite.contract.batch import ClockAnchor, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, SpanColumns, make_columns
from spanlite.runtime.clock import ManualClock


def _columns(rows: int) -> SpanColumns:
    """Rows of which each has a configuration of its own."""
    configs = np.zeros(rows, CONFIG)
    configs["grid_x"] = np.arange(rows)
    number = np.arange(rows)
    tables = (("",), configs, np.zeros(1, PLACE), np.zeros(1, NODE), np.zeros(0, TRACE))
    return make_columns(number + 1, number + 1, tables=tables, config=number, correlation=number)


def _batcher(clock: ManualClock | None = None) -> Batcher:
    return Batcher(b"p" * 16, 5, {"host.name": "h"}, (Gpu(uuid="GPU-0"),), clock or ManualClock(77))


@pytest.mark.parametrize(
    ("rows", "sizes"), [(0, []), (1, [1]), (65_536, [65_536]), (65_537, [65_536, 1]), (140_000, [65_536, 65_536, 8928])]
)
def test_batches_hold_at_most_65536_rows_in_order(rows: int, sizes: list[int]) -> None:
    """No row is lost or repeated, none is made up."""
    batches = list(_batcher().cut(_columns(rows)))
    assert [len(batch.columns) for batch in batches] == sizes
    assert [n for batch in batches for n in batch.columns.correlation.tolist()] == list(range(rows))
    assert [n for batch in batches for n in batch.columns.configs["grid_x"][batch.columns.config].tolist()] == list(
        range(rows)
    )
    assert [len(batch.columns.configs) for batch in batches] == sizes
    assert BATCH_ROWS == 65_536


def test_numbers_go_on_from_cut_to_cut() -> None:
    """Sequence and first row of a batch follow from those before it; the rest is the batcher's own."""
    clock = ManualClock(100)
    batcher = _batcher(clock)
    batcher.rows = 10
    first = list(batcher.cut(_columns(25)))
    clock.advance_ns(5)
    batcher.anchor = ClockAnchor(1, 2, 3)
    second = list(batcher.cut(_columns(3)))
    assert [(batch.sequence, batch.first_row) for batch in first + second] == [(0, 0), (1, 10), (2, 20), (3, 25)]
    assert [batch.emit_ns for batch in first + second] == [100, 100, 100, 105]
    assert [batch.clock for batch in first + second] == [ClockAnchor()] * 3 + [ClockAnchor(1, 2, 3)]
    assert {(batch.producer, batch.session, batch.resource["host.name"], batch.gpus) for batch in first} == {
        (b"p" * 16, 5, "h", (Gpu(uuid="GPU-0"),))
    }

"""Batches encoded many at a time in C equal those that numpy makes and encodes one by one, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch
from spanlite.contract.columns import ROW_COLUMNS, Table
from spanlite.contract.errors import UsageError
from spanlite.native import bodies
from spanlite.replay import items
from spanlite.replay.identity import Keys, Names
from spanlite.replay.items import Turn
from spanlite.replay.plan import Plan
from spanlite.replay.ports import Position
from spanlite.replay.read import Gathered
from spanlite.replay.tables import Origin, Tables
from spanlite.replay.window import Runs, Window
from tests.contract.columns_strategy import batches, sample_batch
from tests.native.without import numpy_only

KEYS = Keys(0x123456789ABCDEF0, bytes(range(16)), bytes(range(16, 32)))


def gathered(given_batches: Sequence[Batch], tables: Tables) -> Gathered:
    """Batches as a reader gathers them: one behind the other, over tables of all."""
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ROW_COLUMNS}
    traces: list[Table] = []
    for batch in given_batches:
        columns = batch.columns
        texts = np.array([tables.texts.number(text) for text in columns.strings], dtype=np.int32)
        configs = columns.configs.copy()
        for name in ("kernel", "name"):
            configs[name] = texts[configs[name]]
        maps = {
            "config": tables.configs.numbers_of(configs),
            "place": tables.places.numbers_of(columns.places),
            "node": tables.nodes.numbers_of(columns.nodes),
            "stage": texts,
            "trace": np.append(np.arange(len(columns.traces)) + sum(map(len, traces)), -1).astype(np.int32),
        }
        traces.append(columns.traces)
        for name in ROW_COLUMNS:
            values = getattr(columns, name)
            parts[name].append(maps[name][values] if name in maps else values)
    joined = {name: _narrowed(np.concatenate(values)) for name, values in parts.items()}
    bound = np.append(0, np.cumsum([len(batch.columns) for batch in given_batches]))
    rows = np.array([batch.first_row for batch in given_batches], dtype=np.uint64)
    return Gathered(
        0,
        [batch.producer for batch in given_batches],
        [batch.sequence for batch in given_batches],
        [batch.session for batch in given_batches],
        [batch.emit_ns for batch in given_batches],
        [Origin(batch.resource, batch.gpus, batch.clock, batch.sampling) for batch in given_batches],
        Window(joined, np.concatenate(traces), bound, None, Runs(np.arange(len(given_batches)), bound[:-1], rows)),
    )


def _narrowed(values: NDArray[Any]) -> NDArray[Any]:
    """A column of one value, with a stride of 0."""
    return np.broadcast_to(values[:1], len(values)) if (values == values[:1]).all() else values


def emitted(given_batches: Sequence[Batch], keys: Keys | None, offset: int) -> list[object]:
    """What a turn makes of batches, up to what it says is wrong."""
    tables, count = Tables(), len(given_batches)
    zeros: Any = np.zeros(count, dtype=np.int64)
    plan = Plan(*(cast("Any", zeros),) * 11, None, zeros)
    kept = keys is None and not offset
    turn = Turn(plan, tables, 0, "run", keys, offset, Names("run", 1, kept=kept), renumber=False)
    made: list[object] = []
    try:
        made.extend(turn.items(gathered(given_batches, tables), Position(), None))
    except (UsageError, ValueError) as error:  # a clock that was read before 1677 fits no field
        made.append(str(error))
    return made


@given(
    st.lists(batches().filter(lambda batch: len(batch.columns) > 0), min_size=1, max_size=3),
    st.sampled_from([None, KEYS]),
    st.sampled_from([0, 0, 1, -(2**40), 2**62]),
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_any_batches(drawn: list[Batch], keys: Keys | None, offset: int) -> None:
    """Of any values that the contract allows, mapped and moved, and where times do not fit."""
    made = emitted(drawn, keys, offset)
    with numpy_only():
        assert emitted(drawn, keys, offset) == made


def test_alike_and_unlike_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches as they are recorded, larger than a block of the kernels, some at a time; room is found for all."""
    several = [sample_batch(rows, seed) for seed, rows in enumerate((3000, 1, 70, 300, 1500))]
    with numpy_only():
        expected = emitted(several, KEYS, 5)
    assert len(expected) == len(several)
    assert emitted(several, KEYS, 5) == expected
    monkeypatch.setattr(bodies, "_ROOM", 1)
    monkeypatch.setattr(bodies, "_ROOM_OF_A_ROW", 0)
    monkeypatch.setattr(items, "_ROWS_AT_ONCE", 100)
    monkeypatch.setattr(items, "_RUNS_AT_ONCE", 2)
    assert emitted(several, KEYS, 5) == expected


def test_what_comes_out_is_what_went_in() -> None:
    """Decoded, a batch has the values that it had."""
    (made,) = emitted([sample_batch(500, 3)], None, 0)
    before, after = sample_batch(500, 3).columns, decode_batch(cast("Any", made).payload).columns
    for name in ("start_ns", "duration_ns", "kind", "parent", "range_number", "correlation", "bytes", "weight"):
        assert getattr(before, name).tolist() == getattr(after, name).tolist(), name
    assert before.configs["grid_x"][before.config].tolist() == after.configs["grid_x"][after.config].tolist()
    names = [
        [columns.strings[at] for at in columns.configs["name"][columns.config].tolist()] for columns in (before, after)
    ]
    assert names[0] == names[1]

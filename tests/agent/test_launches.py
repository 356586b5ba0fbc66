"""Launches cut and joined, and the dictionaries made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent import launches as launches_module
from spanlite.agent.launches import SHAPE_COLUMNS, Launches, Strings, config_table, node_table, place_table
from spanlite.agent.occupancy import occupancy, sm_limits
from spanlite.contract.batch import Gpu
from spanlite.contract.columns import Kind
from spanlite.contract.names import kernel_id

_H200 = Gpu(uuid="GPU-0", index=0, compute_major=9, compute_minor=0)


def _launches(shape: list[int], **shapes: list[int]) -> Launches:
    rows = np.arange(1, len(shape) + 1, dtype=np.int64)
    columns = {name: np.array(values, dtype=np.int64) for name, values in shapes.items()}
    columns.setdefault("kind", np.full(len(next(iter(columns.values()))), Kind.KERNEL, dtype=np.int64))
    return Launches(rows, rows * 10, rows * 100, rows * 1000, np.array(shape, dtype=np.int32), columns)


def _looked_up(launches: Launches) -> list[tuple[int, ...]]:
    """Every row as a tuple of all its values."""
    plain = (launches.start_ns, launches.duration_ns, launches.correlation, launches.bytes)
    shaped = (launches.of_shape(name)[launches.shape] for name in SHAPE_COLUMNS)
    return list(zip(*(column.tolist() for column in (*plain, *shaped)), strict=True))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1))
def test_taking_rows_keeps_their_values_and_only_their_shapes(rows: list[tuple[int, bool]]) -> None:
    """The rows of a mask look up what they did, and no shape is left that none of them has."""
    launches = _launches([shape for shape, _ in rows], name=[1, 2, 3, 4], stream_id=[5, 6, 7, 8])
    mask = np.array([chosen for _, chosen in rows])
    taken = launches.take(mask)
    assert _looked_up(taken) == [row for row, chosen in zip(_looked_up(launches), mask, strict=True) if chosen]
    assert len(taken.of_shape("kind")) == len({shape for shape, chosen in rows if chosen})


def test_joined_launches_follow_each_other() -> None:
    """A column that one of the two lacks is 0 there."""
    one = _launches([0, 1], name=[1, 2], graph_id=[3, 4])
    two = _launches([1, 0, 1], name=[5, 6], block_x=[7, 8])
    assert _looked_up(one.joined(two)) == _looked_up(one) + _looked_up(two)
    assert one.joined(two).of_shape("block_x").tolist() == [0, 0, 7, 8]


def test_configurations_are_told_apart_by_all_that_makes_them() -> None:
    """Equal shapes at other places share a configuration; another name, block or device gives another."""
    launches = _launches(
        [0, 1, 2, 3, 4, 0],
        name=[7, 7, 8, 7, 7],
        block_x=[128, 128, 128, 64, 128],
        device_id=[0, 0, 0, 0, 1],
        stream_id=[1, 2, 1, 1, 1],
    )
    strings = Strings()
    table, index = config_table(launches, lambda _kind, name: f"k{name}", {0: _H200}, strings)
    assert index.tolist() == [0, 0, 1, 2, 3, 0]
    assert [strings.texts[at] for at in table["name"]] == ["k7", "k8", "k7", "k7"]
    assert table["block_x"].tolist() == [128, 128, 64, 128]
    assert strings.texts == ["", "k7", "k8"]


def test_names_are_bounded_ids_beside_the_full_name() -> None:
    """A mangled name keeps its full form and gets the bounded id; half a surrogate pair is replaced."""
    names = {1: "_ZN3foo3barIiEEvT_", 2: "a\ud800b"}
    strings = Strings()
    table, _ = config_table(_launches([0, 1], name=[1, 2]), lambda _kind, name: names[name], {}, strings)
    assert [strings.texts[at] for at in table["name"]] == ["_ZN3foo3barIiEEvT_", "a?b"]
    assert [strings.texts[at] for at in table["kernel"]] == [kernel_id(name) for name in ("_ZN3foo3barIiEEvT_", "a?b")]


def test_occupancy_is_filled_in_for_kernels_on_known_gpus_alone() -> None:
    """Not for copies, nor on devices that nobody described, nor on capabilities without limits."""
    old = Gpu(uuid="GPU-1", index=1, compute_major=3, compute_minor=5)
    launches = _launches(
        [0, 1, 2, 3],
        kind=[Kind.KERNEL, Kind.KERNEL, Kind.MEMCPY, Kind.KERNEL],
        name=[1, 1, 1, 1],
        device_id=[0, 1, 0, 2],
        **{f"block_{axis}": [size] * 4 for axis, size in (("x", 8), ("y", 4), ("z", 2))},
        registers_per_thread=[128] * 4,
        static_shared_memory=[1000] * 4,
        dynamic_shared_memory=[50_000] * 4,
        shared_memory_executed=[102_400] * 4,
    )
    table, index = config_table(launches, lambda _kind, _name: "k", {0: _H200, 1: old}, Strings())
    model = occupancy(
        sm_limits(9, 0),
        threads_per_block=64,
        registers_per_thread=128,
        static_shared_memory=1000,
        dynamic_shared_memory=50_000,
        shared_memory_config=102_400,
    )
    assert table["active_warps"][index].tolist() == [model.active_warps[0], 0, 0, 0]
    assert table["max_warps"][index].tolist() == [64, 0, 0, 0]
    assert table["limiter"][index].tolist() == [model.limiter[0], 0, 0, 0]


def test_occupancy_is_the_same_when_its_memory_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two configurations, ten of them in overlapping calls still get what the model says."""
    monkeypatch.setattr(launches_module, "_MOST_KNOWN", 2)
    monkeypatch.setattr(launches_module, "_known_occupancies", {})
    for first in range(1, 8):
        registers = list(range(8 * first, 8 * first + 32, 8))
        launches = _launches(
            [0, 1, 2, 3],
            name=[1] * 4,
            block_x=[96] * 4,
            block_y=[1] * 4,
            block_z=[1] * 4,
            registers_per_thread=registers,
        )
        table, index = config_table(launches, lambda _kind, _name: "k", {0: _H200}, Strings())
        model = occupancy(sm_limits(9, 0), threads_per_block=96, registers_per_thread=registers)
        assert table["active_warps"][index].tolist() == model.active_warps.tolist()
        assert table["limiter"][index].tolist() == model.limiter.tolist()


def test_places_name_their_gpu_by_its_number_in_the_batch() -> None:
    """Streams and devices make places; a device without a number is host, 0."""
    launches = _launches([0, 1, 2, 0, 3], name=[1, 1, 1, 2], device_id=[4, 4, 5, 4], stream_id=[1, 2, 1, 1])
    table, index = place_table(launches, {4: 2})
    assert index.tolist() == [0, 1, 2, 0, 0]
    assert table[["gpu", "device_id", "stream_id"]].tolist() == [(2, 4, 1), (2, 4, 2), (0, 5, 1)]


def test_nodes_begin_with_outside_graphs() -> None:
    """Entry 0 is (0, 0) whether or not a row needs it; node ids have 64 bits."""
    table, index = node_table(_launches([1, 0, 1, 2], graph_id=[0, 3, 3], graph_node_id=[0, -1, 5]))
    assert table.tolist() == [(0, 0), (3, 2**64 - 1), (3, 5)]
    assert index.tolist() == [1, 0, 1, 2]
    table, index = node_table(_launches([0, 0], name=[1]))
    assert table.tolist() == [(0, 0)]
    assert index.tolist() == [0, 0]


def test_texts_are_kept_once() -> None:
    """Text 0 is empty; the same text has the same number."""
    strings = Strings()
    assert [strings.add(text) for text in ("", "a", "b", "a", "")] == [0, 1, 2, 1, 0]
    assert strings.texts == ["", "a", "b"]

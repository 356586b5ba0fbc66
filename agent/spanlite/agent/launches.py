"""GPU work as columns, from CUPTI records or a kernel table, and its dictionaries: configurations, places, nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.distinct import distinct
from spanlite.agent.occupancy import occupancy, sm_limits, supported_capabilities
from spanlite.contract.batch import Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, Int32, Int64, Kind, Table
from spanlite.contract.names import clean_text, kernel_id

Column = NDArray[np.integer[Any]]

CONFIG_COLUMNS = CONFIG.names[2:-3] if CONFIG.names else ()
"""What of a configuration the records say; names and occupancy are added."""
PLACE_COLUMNS = ("device_id", "context_id", "stream_id", "channel_id", "channel_type", "priority")


SHAPE_COLUMNS = ("kind", "name", "graph_id", "graph_node_id", *CONFIG_COLUMNS, *PLACE_COLUMNS)
"""What executions have in common: how and where they were launched. A source need not have all of them."""


@dataclass(frozen=True, slots=True)
class Launches:
    """Executions of kernels, copies and memory sets, one a row.

    Attributes:
        start_ns, duration_ns, correlation, bytes: int64 of shape (n,).
        shape: int32 of shape (n,), row of `shapes`.
        shapes: columns of shape (d,) by the names of SHAPE_COLUMNS; those that are left out are 0. `kind` holds values
            of Kind; `name` is what `name_of` of `config_table` is asked for: a CUPTI pointer, a dictionary index;
            graph ids are 0 outside graphs. Two rows may be equal, and some may be of no launch.
    """

    start_ns: Int64
    duration_ns: Int64
    correlation: Int64
    bytes: Int64
    shape: Int32
    shapes: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.start_ns)

    def of_shape(self, name: str) -> Column:
        """A column of `shapes`, shape (d,); zeros where the source has none."""
        known = self.shapes.get(name)
        return np.zeros(len(self.shapes["kind"]), dtype=np.int64) if known is None else known

    def take(self, rows: NDArray[np.bool_]) -> Launches:
        """The rows of a mask, and the shapes that they use."""
        used, shape = np.unique(self.shape[rows], return_inverse=True)
        return Launches(
            self.start_ns[rows],
            self.duration_ns[rows],
            self.correlation[rows],
            self.bytes[rows],
            shape.reshape(-1).astype(np.int32),
            {name: values[used] for name, values in self.shapes.items()},
        )

    def joined(self, later: Launches) -> Launches:
        """These rows, then those of another."""
        names = {**self.shapes, **later.shapes}
        after = np.int32(len(self.shapes["kind"]))
        return Launches(
            np.concatenate((self.start_ns, later.start_ns)),
            np.concatenate((self.duration_ns, later.duration_ns)),
            np.concatenate((self.correlation, later.correlation)),
            np.concatenate((self.bytes, later.bytes)),
            np.concatenate((self.shape, later.shape + after)),
            {name: np.concatenate((self.of_shape(name), later.of_shape(name))) for name in names},
        )


@dataclass(slots=True)
class Strings:
    """Texts of a batch, each once; text 0 is empty."""

    texts: list[str] = field(default_factory=lambda: [""])
    _index: dict[str, int] = field(default_factory=lambda: {"": 0})

    def add(self, text: str) -> int:
        """Index of a text."""
        known = self._index.get(text)
        if known is None:
            known = self._index[text] = len(self.texts)
            self.texts.append(text)
        return known


def config_table(
    launches: Launches, name_of: Callable[[int, int], str], gpus: Mapping[int, Gpu], strings: Strings
) -> tuple[Table, Int32]:
    """Distinct launch configurations with their theoretical occupancy, and each row's index among them.

    Args:
        launches: the rows.
        name_of: full name by (kind, name).
        gpus: by device id; occupancy is left unknown on devices that are not listed.
        strings: takes the names.
    """
    kind, name, device = (launches.of_shape(column) for column in ("kind", "name", "device_id"))
    given = {column: launches.shapes[column] for column in CONFIG_COLUMNS if column in launches.shapes}
    first, index = distinct([kind, name, device, *given.values()])
    table = np.zeros(len(first), dtype=CONFIG)
    for column, values in given.items():
        table[column] = values[first].astype(np.int64).astype(np.uint32)
    texts: dict[tuple[int, int], tuple[int, int]] = {}
    for at, named in enumerate(zip(kind[first].tolist(), name[first].tolist(), strict=True)):
        if named not in texts:
            full = clean_text(name_of(*named))
            texts[named] = strings.add(kernel_id(full)), strings.add(full)
        table["kernel"][at], table["name"][at] = texts[named]
    _add_occupancy(table, kind[first] == Kind.KERNEL, device[first], gpus)
    return table, index[launches.shape]


def place_table(launches: Launches, gpu_index: Mapping[int, int]) -> tuple[Table, Int32]:
    """Distinct places and each row's index among them; `gpu_index` gives PLACE.gpu by device id."""
    given = {column: launches.shapes[column] for column in PLACE_COLUMNS if column in launches.shapes}
    first, index = distinct([launches.of_shape("device_id"), *given.values()])
    table = np.zeros(len(first), dtype=PLACE)
    for name, values in given.items():
        table[name] = values[first]
    table["gpu"] = [gpu_index.get(device, 0) for device in table["device_id"].tolist()]
    return table, index[launches.shape]


def node_table(launches: Launches) -> tuple[Table, Int32]:
    """Distinct graph nodes, entry 0 = outside graphs, and each row's index among them."""
    outside = np.zeros(1, dtype=np.int64)
    graph = np.concatenate([outside, launches.of_shape("graph_id")])
    node = np.concatenate([outside, launches.of_shape("graph_node_id")])
    first, index = distinct([graph, node])
    table = np.zeros(len(first), dtype=NODE)
    table["graph_id"], table["graph_node_id"] = graph[first], node[first].view(np.uint64)
    return table, index[1:][launches.shape]


def _add_occupancy(table: Table, is_kernel: NDArray[np.bool_], device: Column, gpus: Mapping[int, Gpu]) -> None:
    known = supported_capabilities()
    for number in np.unique(device).tolist():
        gpu = gpus.get(number)
        capability = (gpu.compute_major, gpu.compute_minor) if gpu else (0, 0)
        if capability in known:
            rows = np.flatnonzero(is_kernel & (device == number))
            found = _occupancies(capability, np.stack([table[name][rows] for name in _RESOURCES], axis=1))
            for at, name in enumerate(("active_warps", "max_warps", "limiter")):
                table[name][rows] = found[:, at]


_RESOURCES = (
    *("block_x", "block_y", "block_z", "registers_per_thread"),
    *("static_shared_memory", "dynamic_shared_memory", "shared_memory_executed"),
)
_known_occupancies: dict[tuple[int, int], dict[tuple[int, ...], tuple[int, int, int]]] = {}
_MOST_KNOWN = 1 << 16
"""Configurations whose occupancy is remembered for each compute capability, before starting over."""


def _occupancies(capability: tuple[int, int], resources: NDArray[np.uint32]) -> Int64:
    """Active warps, most warps and limiter of launches with _RESOURCES of shape (d, 7); each is worked out once."""
    known = _known_occupancies.setdefault(capability, {})
    if len(known) > _MOST_KNOWN:
        known = _known_occupancies[capability] = {}
    wanted = [tuple(row) for row in resources.tolist()]
    new = [row for row in dict.fromkeys(wanted) if row not in known]
    if new:
        x, y, z, registers, static, dynamic, executed = np.array(new, dtype=np.int64).T
        result = occupancy(
            sm_limits(*capability),
            threads_per_block=x * y * z,
            registers_per_thread=registers,
            static_shared_memory=static,
            dynamic_shared_memory=dynamic,
            shared_memory_config=executed,
        )
        figures = zip(result.active_warps.tolist(), result.max_warps.tolist(), result.limiter.tolist(), strict=True)
        known.update(zip(new, figures, strict=True))
    return np.array([known[row] for row in wanted], dtype=np.int64).reshape(-1, 3)

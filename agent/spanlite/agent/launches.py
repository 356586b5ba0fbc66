"""GPU work as columns, from CUPTI records or a kernel table, and its dictionaries: configurations, places, nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.distinct import distinct
from spanlite.agent.occupancy import occupancy, sm_limits, supported_capabilities
from spanlite.contract.batch import Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, Int32, Int64, Kind, Table, UInt8
from spanlite.contract.names import clean_text, kernel_id

Column = NDArray[np.integer[Any]]

CONFIG_COLUMNS = CONFIG.names[2:-3] if CONFIG.names else ()
"""What of a configuration the records say; names and occupancy are added."""
PLACE_COLUMNS = ("device_id", "context_id", "stream_id", "channel_id", "channel_type", "priority")


@dataclass(frozen=True, slots=True)
class Launches:
    """Executions of kernels, copies and memory sets, one a row, all columns of shape (n,).

    Attributes:
        start_ns, duration_ns, correlation, bytes: int64.
        kind: values of Kind.
        name: what `names` of `Dictionary.add` is asked for: a CUPTI pointer, a dictionary index.
        graph_id, graph_node_id: 0 outside graphs.
        config: the columns of CONFIG_COLUMNS that the source has; the others are 0.
        place: the columns of PLACE_COLUMNS that the source has.
    """

    start_ns: Int64
    duration_ns: Int64
    kind: UInt8
    name: Int64
    correlation: Int64
    bytes: Int64
    graph_id: Column
    graph_node_id: Column
    config: Mapping[str, Column]
    place: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, rows: NDArray[np.bool_]) -> Launches:
        """The rows of a mask."""
        return launches_from(lambda column: column[rows], self)

    def joined(self, later: Launches) -> Launches:
        """These rows, then those of another; a configuration column that one of them lacks is 0 there."""
        names = sorted({*self.config, *later.config})
        return launches_from(np.concatenate, _with_config(self, names), _with_config(later, names))


def launches_from(change: Callable[[Any], Any], *sources: Launches) -> Launches:
    """New launches, each column made from that of the source, or from the tuple of those of several."""

    def made(columns: tuple[Column, ...]) -> Any:
        return change(columns if len(sources) > 1 else columns[0])

    plain = {name: made(tuple(getattr(source, name) for source in sources)) for name in _PLAIN}
    config = {name: made(tuple(source.config[name] for source in sources)) for name in sources[0].config}
    place = {name: made(tuple(source.place[name] for source in sources)) for name in sources[0].place}
    return Launches(**plain, config=config, place=place)


def _with_config(launches: Launches, names: list[str]) -> Launches:
    zeros = np.zeros(len(launches), dtype=np.int64)
    return replace(launches, config={name: launches.config.get(name, zeros) for name in names})


_PLAIN = ("start_ns", "duration_ns", "kind", "name", "correlation", "bytes", "graph_id", "graph_node_id")


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
    device = launches.place["device_id"]
    keys: list[Column] = [launches.kind, launches.name, device, *launches.config.values()]
    first, index = distinct(keys)
    table = np.zeros(len(first), dtype=CONFIG)
    for column, values in launches.config.items():
        table[column] = values[first].astype(np.int64).astype(np.uint32)
    for at, (kind, name) in enumerate(zip(launches.kind[first].tolist(), launches.name[first].tolist(), strict=True)):
        full = clean_text(name_of(kind, name))
        table["kernel"][at] = strings.add(kernel_id(full))
        table["name"][at] = strings.add(full)
    _add_occupancy(table, launches.kind[first] == Kind.KERNEL, device[first], gpus)
    return table, index


def place_table(launches: Launches, gpu_index: Mapping[int, int]) -> tuple[Table, Int32]:
    """Distinct places and each row's index among them; `gpu_index` gives PLACE.gpu by device id."""
    first, index = distinct([launches.place[name] for name in PLACE_COLUMNS if name in launches.place])
    table = np.zeros(len(first), dtype=PLACE)
    for name, values in launches.place.items():
        table[name] = values[first]
    table["gpu"] = [gpu_index.get(device, 0) for device in table["device_id"].tolist()]
    return table, index


def node_table(launches: Launches) -> tuple[Table, Int32]:
    """Distinct graph nodes, entry 0 = outside graphs, and each row's index among them."""
    if not launches.graph_id.any() and not launches.graph_node_id.any():
        return np.zeros(1, dtype=NODE), np.zeros(len(launches), dtype=np.int32)
    outside = np.zeros(1, dtype=np.uint64)
    graph = np.concatenate([outside, launches.graph_id.astype(np.uint64)])
    node = np.concatenate([outside, launches.graph_node_id.astype(np.uint64)])
    first, index = distinct([graph, node])
    table = np.zeros(len(first), dtype=NODE)
    table["graph_id"], table["graph_node_id"] = graph[first], node[first]
    return table, index[1:]


def _add_occupancy(table: Table, is_kernel: NDArray[np.bool_], device: Column, gpus: Mapping[int, Gpu]) -> None:
    known = supported_capabilities()
    for number in np.unique(device).tolist():
        gpu = gpus.get(number)
        capability = (gpu.compute_major, gpu.compute_minor) if gpu else (0, 0)
        if capability not in known:
            continue
        rows = np.flatnonzero(is_kernel & (device == number))
        some = table[rows]
        result = occupancy(
            sm_limits(*capability),
            threads_per_block=_product(some, "block"),
            registers_per_thread=some["registers_per_thread"].astype(np.int64),
            static_shared_memory=some["static_shared_memory"].astype(np.int64),
            dynamic_shared_memory=some["dynamic_shared_memory"].astype(np.int64),
            shared_memory_config=some["shared_memory_executed"].astype(np.int64),
        )
        table["active_warps"][rows] = result.active_warps
        table["max_warps"][rows] = result.max_warps
        table["limiter"][rows] = result.limiter


def _product(table: Table, name: str) -> Int64:
    product = np.ones(len(table), dtype=np.int64)
    for axis in "xyz":
        product *= table[f"{name}_{axis}"].astype(np.int64)
    return product

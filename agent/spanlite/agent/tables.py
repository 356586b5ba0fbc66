"""Kernel tables, Parquet files with one kernel execution a row, to batches: recordings without CUPTI's own bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanlite.agent.batcher import Batcher
from spanlite.agent.distinct import distinct
from spanlite.agent.launches import (
    SHAPE_COLUMNS,
    Launches,
    Strings,
    config_table,
    node_table,
    place_table,
)
from spanlite.agent.validate import validate
from spanlite.contract.batch import Batch, Gpu
from spanlite.contract.columns import TRACE, Int64, Kind, SpanColumns, make_columns
from spanlite.contract.errors import RecordingError
from spanlite.contract.names import clean_text
from spanlite.runtime.clock import Clock

REQUIRED = ("start_ns", "duration_ns", "kernel")
_CAPABILITY_BY_NAME = {
    "V100": (7, 0),
    "T4": (7, 5),
    "A100": (8, 0),
    "A10": (8, 6),
    "L4": (8, 9),
    "L40": (8, 9),
    "H100": (9, 0),
    "H200": (9, 0),
    "GH200": (9, 0),
    "B200": (10, 0),
    "GB200": (10, 0),
}
"""Compute capability by the word in the device's name; a table's metadata says no more than that name."""
_ROWS_AT_A_TIME = 1 << 16
_DAMAGED = (pa.ArrowException, OSError, UnicodeError)
"""What reading a damaged file raises."""


class KernelTable:
    """A kernel table as batches.

    Attributes:
        rejected: rows left out, by reason.
        rows: rows of the file.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file and checks its columns.

        Raises:
            RecordingError: no Parquet, or columns missing.
        """
        self.path = path
        self.rejected: dict[str, int] = {}
        try:
            self._file = pq.ParquetFile(path)
        except _DAMAGED as error:
            raise RecordingError(f"{path}: no readable Parquet file ({error}); copy it again") from error
        self._columns = set(self._file.schema_arrow.names)
        missing = [name for name in REQUIRED if name not in self._columns]
        if missing:
            raise RecordingError(
                f"{path}: not a kernel table: it has no column {', '.join(missing)}; "
                f"a kernel table has at least {', '.join(REQUIRED)}"
            )
        self.rows = int(self._file.metadata.num_rows)
        metadata = self._file.schema_arrow.metadata or {}
        try:
            self.scenario: dict[str, Any] = dict(json.loads(metadata.get(b"scenario", b"{}")))
            self._uuids: dict[str, str] = dict(self.scenario.get("gpu_uuids", {}))
        except (ValueError, TypeError) as error:
            raise RecordingError(f"{path}: the metadata key 'scenario' is no JSON object ({error})") from error

    def gpus(self, devices: list[int]) -> tuple[Gpu, ...]:
        """What the file says of the devices that appear in it."""
        name = str(self.scenario.get("gpu", ""))
        major, minor = next((cc for word, cc in _CAPABILITY_BY_NAME.items() if word in name.split()), (0, 0))
        return tuple(
            Gpu(
                uuid=str(self._uuids.get(str(device), f"GPU-unrecorded-{device}")),
                index=device,
                name=name,
                compute_major=major,
                compute_minor=minor,
            )
            for device in devices
        )

    def batches(self, clock: Clock) -> Iterator[Batch]:
        """The file's rows in their order, validated, in batches; a repeated reading gives the same batches.

        Raises:
            RecordingError: a column has the wrong type, or the file is damaged.
        """
        which = f"{self.path.name}/{self.rows}/{self.path.stat().st_size}"
        identity = hashlib.blake2b(which.encode(), digest_size=24).digest()
        batcher: Batcher | None = None
        wanted = [name for name in self._file.schema_arrow.names if name in _READ]
        try:
            for part in self._file.iter_batches(_ROWS_AT_A_TIME, columns=wanted):
                launches, names = self._launches(part)
                devices = sorted({*np.unique(launches.of_shape("device_id")).tolist(), *(batcher_devices(batcher))})
                gpus = self.gpus(devices)
                if batcher is None:
                    workload = clean_text(str(self.scenario.get("scenario", self.path.stem)))
                    resource = {"host.name": "recorded", "workload": workload}
                    session = int.from_bytes(identity[16:], "little")
                    batcher = Batcher(identity[:16], session, resource, gpus, clock)
                batcher.gpus = gpus
                yield from batcher.cut(_columns(launches, names, gpus))
        except _DAMAGED as error:
            raise RecordingError(f"{self.path}: cannot be read to its end ({error}); copy it again") from error

    def _launches(self, part: pa.RecordBatch) -> tuple[Launches, list[str]]:
        kernel = part.column("kernel")
        names = kernel if pa.types.is_dictionary(kernel.type) else kernel.dictionary_encode()
        texts = names.dictionary
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)) or kernel.null_count:
            raise RecordingError(f"{self.path}: column kernel must hold texts without gaps, it is {kernel.type}")
        numbers = {name: self._numbers(part, name) for name in part.schema.names if name != "kernel"}
        start, duration = numbers["start_ns"], numbers["duration_ns"]
        keep, rejected = validate(start, start + duration, now_ns=None)
        for reason, count in rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count
        rows: Any = slice(None) if keep.all() else keep
        numbers = {name: values[rows] for name, values in numbers.items()}
        zeros = np.zeros(len(numbers["start_ns"]), dtype=np.int64)
        numbers["name"] = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)[rows]
        shaping = [name for name in SHAPE_COLUMNS if name in numbers]
        first, shape = distinct([numbers[name] for name in shaping])
        launches = Launches(
            start_ns=numbers["start_ns"],
            duration_ns=numbers["duration_ns"],
            correlation=numbers.get("correlation_id", zeros),
            bytes=zeros,
            shape=shape,
            shapes={
                "kind": np.full(len(first), Kind.KERNEL, dtype=np.int64),
                **{name: numbers[name][first] for name in shaping},
            },
        )
        return launches, texts.to_pylist()

    def _numbers(self, part: pa.RecordBatch, name: str) -> Int64:
        column = part.column(name)
        if not pa.types.is_integer(column.type) or column.null_count:
            raise RecordingError(
                f"{self.path}: column {name} must hold whole numbers without gaps, it is {column.type}"
            )
        values = column.to_numpy(zero_copy_only=False)
        whole = np.asarray(values.view(np.int64) if values.dtype == np.uint64 else values, dtype=np.int64)
        least, bound = _BOUNDS.get(name, (0, 1 << 32))
        if name not in _WIDE and len(whole) and not (whole.min() >= least and whole.max() < bound):
            raise RecordingError(f"{self.path}: column {name} holds values outside {least} to {bound - 1}")
        return whole


_WIDE = {"start_ns", "duration_ns", "correlation_id", "graph_node_id"}
_BOUNDS = {"device_id": (0, 1 << 16), "channel_type": (-(1 << 31), 1 << 31), "priority": (-(1 << 31), 1 << 31)}
"""Least value, and the first that is too large, of columns with bounds other than those of a uint32."""
_READ = {"start_ns", "duration_ns", "kernel", "correlation_id", *SHAPE_COLUMNS} - {"kind", "name"}


def batcher_devices(batcher: Batcher | None) -> list[int]:
    """Devices that earlier batches of the file named."""
    return [gpu.index for gpu in batcher.gpus] if batcher else []


def _columns(launches: Launches, names: list[str], gpus: tuple[Gpu, ...]) -> SpanColumns:
    strings = Strings()
    by_device = {gpu.index: gpu for gpu in gpus}
    configs, config = config_table(launches, lambda _kind, name: names[name], by_device, strings)
    places, place = place_table(launches, {gpu.index: at + 1 for at, gpu in enumerate(gpus)})
    nodes, node = node_table(launches)
    return make_columns(
        launches.start_ns,
        launches.duration_ns,
        tables=(tuple(strings.texts), configs, places, nodes, np.zeros(0, dtype=TRACE)),
        kind=launches.of_shape("kind")[launches.shape],
        config=config,
        place=place,
        node=node,
        correlation=launches.correlation,
        bytes=launches.bytes,
    )

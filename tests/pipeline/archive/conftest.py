"""Batches to archive: a slice of a recorded H200 serving run, with requests and stages laid over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Kind, make_columns

SLICE = Path(__file__).parents[2] / "data" / "serve_slice.parquet"
PRODUCER = bytes(range(16))
SESSION = 0xFEDC_BA98_7654_3210
BATCH_ROWS = 4000
TRACE_ROWS = 500
CONFIG_FIELDS = tuple(CONFIG.fields or ())
LAUNCH_FIELDS = CONFIG_FIELDS[2:]
Facts = dict[str, list[Any]]


def _batch(table: Any, number: int) -> Batch:
    """Rows 4000 n … of the slice: requests of 500 kernels, each with a range that closes behind its kernels."""
    part = table.slice(number * BATCH_ROWS, BATCH_ROWS)
    kernels, requests = len(part), len(part) // TRACE_ROWS
    names = part["kernel"].to_pylist()
    strings = ("", "prefill", "decode", "request", *dict.fromkeys(names))
    configs = np.zeros(kernels + 1, dtype=CONFIG)
    for name in part.column_names:
        if name in LAUNCH_FIELDS:
            configs[name][:-1] = part[name].to_numpy()
    configs["kernel"][:-1] = configs["name"][:-1] = [strings.index(name) for name in names]
    configs["active_warps"][:-1], configs["max_warps"][:-1], configs["limiter"][:-1] = 48, 64, 3
    configs["kernel"][-1] = configs["name"][-1] = 3
    start, duration = part["start_ns"].to_numpy(), part["duration_ns"].to_numpy().astype(np.int64)
    firsts, lasts = start[::TRACE_ROWS], start[TRACE_ROWS - 1 :: TRACE_ROWS]
    places = np.zeros(2, dtype=PLACE)
    places["gpu"][0], places["stream_id"][0], places["thread_id"][1] = 1, 7, 4711
    traces = np.zeros(requests, dtype=TRACE)
    traces["id"] = np.array([bytes([number, at]) * 8 for at in range(requests)], dtype="V16")
    traces["start_ns"] = firsts - 1000
    mine = np.arange(requests) + 100 * number
    return Batch(
        producer=PRODUCER,
        sequence=number,
        session=SESSION,
        first_row=number * (kernels + requests),
        emit_ns=int(start[-1]) + 1_000_000,
        columns=make_columns(
            np.append(start, firsts - 1000),
            np.append(duration, lasts - firsts + 9000),
            tables=(strings, configs, places, np.zeros(1, dtype=NODE), traces),
            kind=np.append(np.full(kernels, Kind.KERNEL), np.full(requests, Kind.RANGE)),
            config=np.append(np.arange(kernels), np.full(requests, kernels)),
            place=np.append(np.zeros(kernels), np.ones(requests)),
            trace=np.append(np.arange(kernels) // TRACE_ROWS, np.arange(requests)),
            parent=np.append(mine[np.arange(kernels) // TRACE_ROWS], np.full(requests, -1)),
            range_number=np.append(np.full(kernels, -1), mine),
            stage=np.append(1 + np.arange(kernels) % 2, np.zeros(requests)),
            correlation=np.append(np.arange(kernels), np.zeros(requests)),
        ),
        resource={"host.name": "node-1", "process.pid": "4711", "workload": "serve", "driver.version": "580"},
        gpus=(Gpu("GPU-11112222", 0, "NVIDIA H200", 9, 0, 132),),
        clock=ClockAnchor(1, 2, 3),
    )


@pytest.fixture(scope="session")
def batches() -> list[Batch]:
    """Five batches of 4000 kernels and 8 ranges each."""
    table = pq.read_table(SLICE)
    return [_batch(table, number) for number in range(5)]


def facts_of(batch: Batch) -> Facts:
    """The values of a batch, row by row, whatever the numbering of its tables."""
    columns = batch.columns
    facts: Facts = {"head": [(batch.producer, batch.sequence, batch.session, batch.first_row, batch.emit_ns)]}
    facts["rest"] = [(dict(batch.resource), batch.gpus, batch.clock, batch.sampling)]
    for name in ("start_ns", "duration_ns", "kind", "parent", "range_number", "correlation", "bytes", "weight"):
        facts[name] = getattr(columns, name).tolist()
    for name in CONFIG_FIELDS:
        values = columns.configs[name][columns.config].tolist()
        facts[name] = [columns.strings[value] for value in values] if name in ("kernel", "name") else values
    facts["place"] = columns.places[columns.place].tolist()
    facts["node"] = columns.nodes[columns.node].tolist()
    facts["stage"] = [columns.strings[index] for index in columns.stage.tolist()]
    traces = [(entry["id"].tobytes(), *entry.tolist()[1:]) for entry in columns.traces]
    facts["trace"] = [traces[index] if index >= 0 else None for index in columns.trace.tolist()]
    facts["ids"] = [batch.span_ids.tolist(), batch.parent_span_ids.tolist()]
    return facts


@pytest.fixture(scope="session")
def facts() -> Callable[[Batch], Facts]:
    """Reads the values of a batch."""
    return facts_of

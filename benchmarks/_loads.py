"""Loads of any size from the recorded serving run: cut anew, with as many series as asked for, by many processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from spanlite.agent.batcher import Batcher
from spanlite.agent.columns import compact
from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.contract.columns import PLACE, Int64, SpanColumns, Table, make_columns
from spanlite.contract.names import kernel_id, stage_label
from spanlite.pipeline.archive.rows import gather
from spanlite.runtime.clock import ManualClock
from spanlite.v1.batch_pb2 import SpanBatch
from tests.stack import load

_CHUNK = 512


class Message(NamedTuple):
    """A value for the topic of spans, its key, its rows, and those of them that are GPU work."""

    key: bytes
    value: bytes
    rows: int
    work: int


class Sent(NamedTuple):
    """What is in the topic of spans."""

    batches: int = 0
    rows: int = 0
    work: int = 0


def whole_run() -> Batch:
    """The recorded serving run as one batch."""
    batches = load.recorded()
    run = gather(batches)
    assert len(run.gpus) == 1, "the run was recorded on one GPU"
    places = np.zeros(len(run.places), dtype=PLACE)
    for name in PLACE.names or ():
        places[name] = run.places[name]
    columns = make_columns(
        **run.plain,
        tables=(tuple(run.strings), run.configs, places, run.nodes, run.traces),
        config=run.config,
        place=run.place,
        node=run.node,
        stage=run.stage,
        trace=run.trace,
    )
    return replace(batches[0], columns=columns)


def with_series(batch: Batch, series: int) -> Batch:
    """The batch with GPU work of exactly `series` series: at most as many as it has spans of GPU work.

    Where it has more, the rarest take the identity (kind, stage, launch configuration) of the most frequent one. Where
    it has fewer, the executions of each are dealt in turn to variants of it, which differ in the kernel's name, as many
    as is the series' share of all executions.
    """
    columns = batch.columns
    work = np.flatnonzero(~columns.is_range)
    assert series <= len(work), f"{len(work)} spans of GPU work cannot be of {series} series"
    number, first = _recorded_series(columns, work)
    recorded = min(series, len(first))
    number[number >= recorded] = 0
    model = work[first[number]]
    count = np.bincount(number)
    variant = _occurrence(number) % _variants(count, series)[number]
    kinds, configs, stages = columns.kind.copy(), columns.config.copy(), columns.stage.copy()
    kinds[work], stages[work] = columns.kind[model], columns.stage[model]
    made, configs[work] = np.unique(columns.config[model] * np.int64(series) + variant, return_inverse=True)
    strings, table = _renamed(columns, made // series, made % series)
    ranges = np.flatnonzero(columns.is_range)
    configs[ranges] += len(table)
    return replace(
        batch,
        columns=replace(
            columns,
            kind=kinds,
            config=configs,
            stage=stages,
            strings=strings,
            configs=np.concatenate([table, columns.configs]),
        ),
    )


def _recorded_series(columns: SpanColumns, work: Int64) -> tuple[Int64, Int64]:
    """Series of each row of GPU work, the most frequent one being 0, and the first place of each in `work`."""
    labels = {text: at for at, text in enumerate(dict.fromkeys(map(stage_label, columns.strings)))}
    label = np.array([labels[stage_label(text)] for text in columns.strings])
    code = (columns.kind[work].astype(np.int64) * len(columns.configs) + columns.config[work]) * len(labels)
    code += label[columns.stage[work]]
    _, first, number, count = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(-count, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[number], first[order]


def _variants(count: Int64, series: int) -> Int64:
    """Variants of each series, `series` in all: one each, and the others by what executions are left to each."""
    left, more = np.cumsum(count - 1), series - len(count)
    shared = left * more // max(int(left[-1]), 1)
    return 1 + np.diff(shared, prepend=0)


def _occurrence(number: Int64) -> Int64:
    """For each element how many equal ones stand before it."""
    order = np.argsort(number, kind="stable")
    count = np.bincount(number)
    found = np.empty(len(number), dtype=np.int64)
    found[order] = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count)
    return found


def _renamed(columns: SpanColumns, config: Int64, variant: Int64) -> tuple[tuple[str, ...], Table]:
    """Configurations whose kernels are variants of those of others, variant 0 as it was, and the texts of all."""
    table = columns.configs[config]
    known = {text: at for at, text in enumerate(columns.strings)}
    names = [columns.strings[at] for at in table["name"].tolist()]
    for at, (name, number) in enumerate(zip(names, variant.tolist(), strict=True)):
        if number:
            full = f"{name}.v{number}"
            table["name"][at] = known.setdefault(full, len(known))
            table["kernel"][at] = known.setdefault(kernel_id(full), len(known))
    return tuple(known), table


def cut(batch: Batch, rows: int) -> list[Batch]:
    """Batches of at most `rows` spans, each with the tables that it needs, numbered from 0."""
    clock = ManualClock(batch.emit_ns)
    batcher = Batcher(batch.producer, batch.session, batch.resource, batch.gpus, clock, batch.clock, rows=rows)
    return list(batcher.cut(compact(batch.columns)))


def repeated(base: list[Batch], copies: Iterable[int], producers: int) -> Iterator[Message]:
    """The batches again and again (load.repeated), by each of some processes with a GPU of its own.

    A batch is encoded once for all processes: they differ in its header.
    """
    for batch in load.repeated(base, copies):
        yield from _by_each(encode_batch(batch), producers, int((~batch.columns.is_range).sum()))


def _by_each(value: bytes, producers: int, work: int) -> Iterator[Message]:
    """A message as each of some processes would send it."""
    message = SpanBatch.FromString(value)
    session = message.session
    for producer in range(producers):
        uuid = f"GPU-{producer:08d}"
        message.producer = producer.to_bytes(16, "big")
        message.session = session + producer
        for gpu in message.gpus:
            gpu.uuid = uuid
        yield Message(f"host/{uuid}".encode(), message.SerializeToString(deterministic=True), message.rows, work)


def send(bootstrap: str, topic: str, messages: Iterable[Message], before: Sent | None = None) -> Sent:
    """Puts messages into a topic; what is in it then, with what was there `before`."""
    batches, rows, work = before or Sent()
    chunk: list[tuple[bytes, bytes]] = []
    for message in messages:
        batches, rows, work = batches + 1, rows + message.rows, work + message.work
        chunk.append((message.key, message.value))
        if len(chunk) == _CHUNK:
            load.send(bootstrap, topic, chunk)
            chunk = []
    load.send(bootstrap, topic, chunk)
    return Sent(batches, rows, work)

"""Load for a cluster made from a recorded run, and what must come out of it, counted span by span from its columns."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from spanlite.agent.batcher import Batcher
from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import OBSERVATION
from spanlite.agent.observations import Observations
from spanlite.cli.embedded import Embedded, open_source
from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.contract.columns import OBSERVATIONS, Kind
from spanlite.pipeline.embedded import Outputs
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import ManualClock

RECORDING = Path(__file__).parents[1] / "data/h200/serve-cupti130500.bin.xz"
RANGE_BIT = 1 << 63
TEST_ROWS = 8192
"""Rows of a batch here: a quarter of an agent's, so that a load has more of them."""

Span = tuple[int, int, int, int]
"""Session, number within it, start, duration: one row of the archive."""
Kernel = tuple[str, int, str]
"""GPU, kind and full name: what the counts below are by."""


@dataclass(frozen=True)
class Message:
    """One value for the topic of spans, its key, and the batch that it was made from."""

    key: bytes
    value: bytes
    batch: Batch


@dataclass(frozen=True)
class Work:
    """What one kernel did: executions, nanoseconds, and executions by histogram bucket."""

    count: int
    sum_ns: int
    buckets: Mapping[int, int]


@lru_cache(maxsize=4)
def recorded(rows: int = TEST_ROWS) -> tuple[Batch, ...]:
    """The batches that an agent makes of the recorded serving run, cut to at most so many rows."""
    batches: list[Batch] = []
    with Embedded(Outputs(batch=batches.append), policy=WindowPolicy(lateness_ns=None)) as embedded:
        embedded.play(open_source(RECORDING))
    first = batches[0]
    clock = ManualClock(first.emit_ns)
    batcher = Batcher(first.producer, first.session, first.resource, first.gpus, clock, first.clock, rows=rows)
    return tuple(part for batch in batches for part in batcher.cut(batch.columns))


def messages(
    producers: int, copies: int, *, first_producer: int = 0, shift_ns: int = 0, rows: int = TEST_ROWS
) -> Iterator[Message]:
    """The run `copies` times one after the other, by each of `producers` processes with a GPU of its own.

    Args:
        shift_ns: added to all times.
        rows: most rows of a batch.
    """
    for batch in repeated(recorded(rows), range(copies), shift_ns):
        for producer in range(first_producer, first_producer + producers):
            yield _message(batch, producer)


def observed(observations: int = 3000) -> Iterator[Message]:
    """A process that observes custom metrics while the run lasts, in four batches.

    Timings, counters and gauges of a few series each, on the host and on a GPU; no two of one time.
    """
    base = recorded()
    first_ns = min(int(batch.columns.start_ns.min()) for batch in base)
    gap_ns = (max(int(batch.end_ns.max()) for batch in base) - first_ns) // observations
    rng = np.random.default_rng(8)
    kind = rng.choice(np.array([Kind.TIMING, Kind.COUNTER, Kind.GAUGE], dtype=np.uint8), observations)
    layer = rng.integers(0, 3, observations)
    value = rng.integers(1, 10**6, observations)
    time_ns = first_ns + gap_ns * np.arange(observations)
    records = np.zeros(observations, dtype=OBSERVATION)
    records["name"], records["time_ns"], records["kind"] = layer + 3 * kind.astype(np.int64), time_ns, kind
    records["value"] = np.where(kind == Kind.GAUGE, (-value / 7).view(np.int64), value)
    records["device"] = layer % 2
    names = {n + 3 * k: f'{Kind(k).name}{{layer="{n}"}}' for k in sorted(OBSERVATIONS) for n in range(3)}
    batcher = Batcher(b"observed" * 2, 77, {"host.name": "host"}, base[0].gpus, ManualClock(first_ns))
    series = Observations(base[0].gpus, AgentCounts())
    for part in np.array_split(records, 4):
        for columns in series.take(part, names, first_ns):
            for batch in batcher.cut(columns):
                yield Message(b"host/observed", encode_batch(batch), batch)


def repeated(base: Sequence[Batch], copies: Iterable[int], shift_ns: int = 0) -> Iterator[Batch]:
    """A run's batches again and again: times, rows, ranges and sequences go on from copy to copy.

    Args:
        base: in order, the first with row and sequence 0.
        copies: numbers of the copies, ascending.
        shift_ns: added to all times.
    """
    rows = sum(len(batch.columns) for batch in base)
    ranges = 1 + max(int(batch.columns.range_number.max(initial=0)) for batch in base)
    first_ns = min(int(batch.columns.start_ns.min()) for batch in base)
    length_ns = max(int(batch.end_ns.max()) for batch in base) - first_ns + 10**6
    for copy in copies:
        for batch in base:
            columns = batch.columns
            moved = replace(
                columns,
                start_ns=columns.start_ns + copy * length_ns + shift_ns,
                range_number=columns.range_number + columns.is_range * copy * ranges,
                parent=columns.parent + (columns.parent >= 0) * copy * ranges,
            )
            yield replace(
                batch,
                sequence=batch.sequence + copy * len(base),
                first_row=batch.first_row + copy * rows,
                columns=moved,
            )


def _message(batch: Batch, producer: int) -> Message:
    """The batch as another process on another GPU has it."""
    uuid = f"GPU-{producer:08d}"
    made = replace(
        batch,
        producer=producer.to_bytes(16, "big"),
        session=batch.session + producer,
        gpus=tuple(replace(gpu, uuid=uuid) for gpu in batch.gpus),
    )
    return Message(f"host/{uuid}".encode(), encode_batch(made), made)


def expected_spans(sent: Iterable[Message]) -> set[Span]:
    """Rows that the archive must hold, each once."""
    found: set[Span] = set()
    for message in sent:
        batch, columns = message.batch, message.batch.columns
        is_range = columns.kind == Kind.RANGE
        rows = batch.first_row + np.arange(len(columns), dtype=np.uint64)
        number = np.where(is_range, np.uint64(RANGE_BIT) + columns.range_number.astype(np.uint64), rows)
        found.update(
            zip(
                [batch.session] * len(columns),
                number.tolist(),
                columns.start_ns.tolist(),
                columns.duration_ns.tolist(),
                strict=True,
            )
        )
    return found


def expected_work(sent: Iterable[Message]) -> dict[Kernel, Work]:
    """What the metrics must say, by a formula that the code under test does not use: ceil(32 log2(seconds))."""
    durations: dict[Kernel, list[int]] = {}
    for message in sent:
        columns = message.batch.columns
        names = columns.configs["name"].tolist()
        uuids = ["", *(gpu.uuid for gpu in message.batch.gpus)]
        gpu = columns.places["gpu"].tolist()
        for kind, config, place, duration in zip(
            columns.kind.tolist(),
            columns.config.tolist(),
            columns.place.tolist(),
            columns.duration_ns.tolist(),
            strict=True,
        ):
            if kind != Kind.RANGE:
                name = columns.strings[names[config]]
                durations.setdefault((uuids[gpu[place]], kind, name), []).append(duration)
    return {
        kernel: Work(
            len(all_ns), sum(all_ns), dict(Counter(math.ceil(32 * math.log2(max(ns, 1) / 1e9)) for ns in all_ns))
        )
        for kernel, all_ns in durations.items()
    }


def poison(seed: int = 1) -> list[bytes]:
    """Values that are no batch: empty, noise, cut off, of another layout, and one that claims to be huge."""
    rng = random.Random(seed)  # noqa: S311  # noise, no secret
    whole = encode_batch(recorded()[0])
    return [
        b"",
        rng.randbytes(300),
        whole[: len(whole) // 2],
        b"\x08\x63" + whole[2:],
        whole[:-40] + bytes(40),
        rng.randbytes(1_900_000),
    ]


def with_too_many_rows(size: int) -> bytes:
    """A batch of so many bytes that is as it must be, but for its rows: 73,728, and readers take 65,536."""
    base = recorded()[0]
    many = replace(base, columns=base.columns.take(np.tile(np.arange(len(base.columns)), 9)))

    def padded(length: int) -> bytes:
        return encode_batch(replace(many, resource={**many.resource, "padding": "x" * length}))

    length = size - len(padded(0))
    value = padded(length - (len(padded(length)) - size))  # what is longer says its length in more bytes
    assert len(value) == size
    return value


def send(bootstrap: str, topic: str, pairs: Sequence[tuple[bytes, bytes]], *, timeout_s: float = 300) -> None:
    """Puts keys and values into a topic and waits until the broker has them, through an outage too."""
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": int(timeout_s * 1000),
            "message.max.bytes": 2_097_152,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
        }
    )
    for key, value in pairs:
        while True:
            try:
                producer.produce(topic, value, key=key, on_delivery=lambda e, _m: failed.append(str(e)) if e else None)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    open_now = producer.flush(timeout_s)
    assert (open_now, failed) == (0, []), f"{open_now} values have no answer, {failed[:3]}"

"""Who replayed spans say they are: ids kept or mapped one to one, names of batches, and the stamp of the run.

A session is 64 bits from which the ids of its spans follow; `mix64(session ^ number)`. To map them, sessions are XORed
with a key: so the id `mix64(n)` of anything becomes `mix64(n ^ key)`, whatever session it is of, and what refers to a
span by its id, as a trace does to its parent in another process, is mapped alike without knowing the session. Traces
and producers are XORed with keys of their own. Each map is its own inverse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Table
from spanlite.contract.ids import mix64, unmix64

RUN_ATTRIBUTE = "spanlite.replay.run"
"""Resource attribute of each replayed batch: the run's id."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What one turn of one run XORs ids with."""

    session: int
    trace: bytes
    producer: bytes

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, run: str, seed: int, loop: int) -> Keys:
        """The keys of turn `loop`; other runs, seeds and turns have others."""
        digest = hashlib.blake2b(f"{run}/{seed}/{loop}".encode(), digest_size=40, person=b"spanlite replay").digest()
        return cls(int.from_bytes(digest[:8], "little"), digest[8:24], digest[24:])


def remapped(batch: Batch, keys: Keys) -> Batch:
    """A batch of other sessions, spans and traces, in the same relations to each other."""
    columns = batch.columns
    return replace(
        batch,
        session=batch.session ^ keys.session,
        columns=replace(columns, traces=remapped_traces(columns.traces, keys)),
    )


def remapped_traces(traces: Table, keys: Keys) -> Table:
    """Traces of other ids, and their parents in other processes, mapped like those."""
    mapped = traces.copy()
    words = np.ascontiguousarray(traces["id"]).view("<u8").reshape(-1, 2) ^ np.frombuffer(keys.trace, dtype="<u8")
    mapped["id"] = np.ascontiguousarray(words).view("V16").reshape(-1)
    parent = traces["remote_parent"].astype(np.uint64)
    known = parent != 0
    mapped["remote_parent"][known] = mix64(unmix64(parent[known]) ^ np.uint64(keys.session))
    return mapped


class Names:
    """Names (producer, sequence) of the batches that go out.

    A batch that goes out with the rows, ids and times that it had keeps its name: readers that have seen it know it
    again. Any other gets a producer of this run's, whose sequences count from 0: the old name stands for other rows.

    Args:
        counts: sequences given so far, by producer.
    """

    def __init__(self, run: str, seed: int, *, kept: bool, counts: Mapping[bytes, int] | None = None) -> None:
        self._run = run
        self._seed = seed
        self._kept = kept
        self._counts = dict(counts or {})

    def keeps(self, part: int) -> bool:
        """Whether a part of a batch keeps the batch's name."""
        return self._kept and not part

    def named(self, batch: Batch, *, loop: int, part: int) -> Batch:
        """The batch under its name; parts after the first cannot keep it."""
        producer, sequence = self.name(batch.producer, batch.sequence, loop=loop, part=part)
        return batch if self.keeps(part) else replace(batch, producer=producer, sequence=sequence)

    def name(self, producer: bytes, sequence: int, *, loop: int, part: int) -> tuple[bytes, int]:
        """The name of a part of the batch that has a name."""
        if self.keeps(part):
            return producer, sequence
        producer = _xor(producer, Keys.of(self._run, self._seed, loop).producer)
        sequence = self._counts.get(producer, 0)
        self._counts[producer] = sequence + 1
        return producer, sequence


def stamped(batch: Batch, run: str) -> Batch:
    """The batch with the run's id among its resource attributes."""
    return replace(batch, resource=stamp(batch.resource, run))


def stamp(resource: Mapping[str, str], run: str) -> Mapping[str, str]:
    """Resource attributes and the run's id."""
    return {**resource, RUN_ATTRIBUTE: run}


def _xor(value: bytes, key: bytes) -> bytes:
    return (int.from_bytes(value, "little") ^ int.from_bytes(key, "little")).to_bytes(len(key), "little")

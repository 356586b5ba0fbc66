"""What a run did to a batch, undone: the run's stamp off, ids and times as they were.

It is reckoned here once more and not by what replays use, so that a field which those forget shows as changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from spanlite.contract.batch import Batch, ClockAnchor
from spanlite.contract.columns import Int64, Table
from spanlite.contract.ids import mix64, unmix64
from spanlite.replay.compare.told import Told
from spanlite.replay.identity import RUN_ATTRIBUTE, Keys

_WORD = 1 << 64


class Undo:
    """Undoes one run.

    Args:
        told: the run.
        producers: those of the original; only asked for where there are several turns, which they tell apart.
    """

    def __init__(self, told: Told, producers: Iterable[bytes] = ()) -> None:
        self._told = told
        self._keys = [Keys.of(told.run, told.seed, loop) for loop in range(told.loops)]
        self._loops = (
            {_xor(producer, keys.producer): loop for producer in producers for loop, keys in enumerate(self._keys)}
            if told.loops > 1
            else {}
        )

    def of_run(self, batch: Batch) -> bool:
        """Whether the batch says that this run emitted it."""
        return batch.resource.get(RUN_ATTRIBUTE) == self._told.run

    def loop(self, batch: Batch) -> int:
        """The turn that emitted the batch; -1 where none can have."""
        return self._loops.get(batch.producer, -1) if self._told.loops > 1 else 0

    def undone(self, batch: Batch, loop: int) -> Batch:
        """The batch as it was before turn `loop`, but for its number in its producer's sequence."""
        told, keys, columns = self._told, self._keys[loop], batch.columns
        back = told.moved_ns(loop)
        traces = columns.traces.copy()
        if told.remapped:
            _unmap(traces, keys)
        known = traces["start_ns"] != 0
        traces["start_ns"][known] = _earlier(traces["start_ns"][known], back)
        clock = batch.clock
        if clock.unix_ns:
            clock = ClockAnchor(clock.cupti_ns, _wrapped(clock.unix_ns - back), clock.uncertainty_ns)
        return replace(
            batch,
            producer=batch.producer if told.kept else _xor(batch.producer, keys.producer),
            session=batch.session ^ keys.session if told.remapped else batch.session,
            emit_ns=_wrapped(batch.emit_ns - back),
            clock=clock,
            resource={name: value for name, value in batch.resource.items() if name != RUN_ATTRIBUTE},
            columns=replace(columns, start_ns=_earlier(columns.start_ns, back), traces=traces),
        )


def _unmap(traces: Table, keys: Keys) -> None:
    words = np.ascontiguousarray(traces["id"]).view("<u8").reshape(-1, 2) ^ np.frombuffer(keys.trace, dtype="<u8")
    traces["id"] = np.ascontiguousarray(words).view("V16").reshape(-1)
    parents = traces["remote_parent"].astype(np.uint64)
    known = parents != 0
    traces["remote_parent"][known] = mix64(unmix64(parents[known]) ^ np.uint64(keys.session))


def _earlier(times: Int64, by: int) -> Int64:
    """Modulo 2^64, as everything that may have been written by somebody else."""
    return (times.view(np.uint64) - np.uint64(by % _WORD)).view(np.int64)


def _wrapped(value: int) -> int:
    return (value + (_WORD >> 1)) % _WORD - (_WORD >> 1)


def _xor(value: bytes, key: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(value, key, strict=True))

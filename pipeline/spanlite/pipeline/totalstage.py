"""Second stage of the metrics job, keyed by GPU: aggregates in, cumulative points of its series out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spanlite.contract.point_codec import decode_point
from spanlite.contract.point_columns import encode_cumulative
from spanlite.contract.series_codec import series_field, series_key
from spanlite.pipeline.keyed import Log, Table
from spanlite.pipeline.partial import stack
from spanlite.pipeline.pieces import unpack
from spanlite.pipeline.points import Told, Totals
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.topk import TopK

_AT_ONCE = 4096
"""Points that are encoded and written to state together."""


class Update(NamedTuple):
    """The newest cumulative point of a series, encoded, with its key in the compacted topic."""

    key: bytes
    point: bytes


class _Gpu:
    """One GPU's totals in memory."""

    def __init__(self, width_ns: int, top_k: int, epoch: int, kept: list[bytes]) -> None:
        self.registry = SeriesRegistry()
        self.top = TopK(top_k, self.registry)
        self.totals = Totals(width_ns, self.registry, epoch=epoch)
        restored = [decode_point(data) for data in kept]
        self.top.restore(point.series for point in restored)
        self.totals.restore(restored)
        # What is the same in every point of a series, by its number: its key, and how its bytes begin.
        self._keys: dict[int, bytes] = {}
        self._fields: dict[int, bytes] = {}

    def add(self, pieces: list[bytes]) -> Told:
        """Adds pieces to the totals."""
        return self.totals.update(self.top.rename(stack([unpack(piece, self.registry) for piece in pieces])))

    def encode(self, told: Told) -> list[Update]:
        """Key and point of each series."""
        numbers = told.series.tolist()
        for number in set(numbers).difference(self._keys):
            self._keys[number] = series_key(self.registry.series[number])
            self._fields[number] = series_field(self.registry.encoded(number))
        encoded = encode_cumulative([*map(self._fields.__getitem__, numbers)], told.columns, self.totals.epoch)
        return [*map(Update, map(self._keys.__getitem__, numbers), encoded)]


class TotalStage:
    """Adds up what the first stage hands on.

    `take` only keeps a piece; `emit` adds the kept ones to the totals and tells of the series that changed. So however
    fast windows close, a series is told at most once per `emit`.
    """

    def __init__(self, width_ns: int, top_k: int, epoch: int, waiting: Log, kept: Table) -> None:
        """Args: epoch: generation of totals that have no state yet; see contract.points.Point."""
        self._width_ns = width_ns
        self._top_k = top_k
        self._epoch = epoch
        self._waiting = waiting
        self._kept = kept
        self._gpus: dict[str, _Gpu] = {}

    def take(self, piece: bytes) -> None:
        """Keeps a piece of the current GPU until `emit`."""
        self._waiting.append(piece)

    def emit(self, gpu_uuid: str) -> Iterator[Update]:
        """Adds the waiting pieces of the current GPU; the new points of the series that were in them."""
        pieces = self._waiting.read()
        if not pieces:
            return
        gpu = self._gpus.get(gpu_uuid)
        if gpu is None:
            gpu = self._gpus[gpu_uuid] = _Gpu(self._width_ns, self._top_k, self._epoch, list(self._kept.values()))
        for part in gpu.add(pieces).parts(_AT_ONCE):
            updates = gpu.encode(part)
            self._kept.put_all(updates)
            yield from updates
        self._waiting.replace([])

"""Second stage of the metrics job, keyed by GPU: aggregates in, cumulative points of its series out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spanlite.contract.point_codec import decode_point, encode_point, series_key
from spanlite.pipeline.keyed import Log, Table
from spanlite.pipeline.partial import merge
from spanlite.pipeline.pieces import unpack
from spanlite.pipeline.points import Totals
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.topk import TopK


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
        self.keys: dict[int, bytes] = {}


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
        closed = gpu.top.apply(merge([unpack(piece, gpu.registry) for piece in pieces]))
        for point in gpu.totals.add(closed):
            number = gpu.registry.number(point.series)
            key = gpu.keys.get(number)
            if key is None:
                key = gpu.keys[number] = series_key(point.series)
            encoded = encode_point(point)
            self._kept.put(key, encoded)
            yield Update(key, encoded)
        self._waiting.replace([])

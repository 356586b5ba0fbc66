"""First stage of the metrics job, keyed by producer: messages in, aggregates of closed windows out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spanlite.contract.batch import Batch
from spanlite.contract.codec import DEFAULT_LIMITS, Limits, decode_batch
from spanlite.contract.errors import BatchError
from spanlite.contract.point_codec import encode_point, series_key
from spanlite.contract.state import Progress, decode_progress, encode_progress
from spanlite.pipeline.counts import FoldCounts
from spanlite.pipeline.keyed import Log, Value
from spanlite.pipeline.partial import Partial, merge
from spanlite.pipeline.pieces import by_gpu, pack, unpack
from spanlite.pipeline.plausible import check_batch
from spanlite.pipeline.points import points
from spanlite.pipeline.producer import Folded, ProducerFold
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy


class Piece(NamedTuple):
    """Aggregates of some windows of one GPU, packed: input of the second stage."""

    gpu_uuid: str
    partial: bytes


class Late(NamedTuple):
    """What came for a window that was closed, as a point of that window; its spans are in a piece as well."""

    key: bytes
    point: bytes


class Dead(NamedTuple):
    """A message that is no batch, and the word that says why."""

    reason: str
    message: bytes


class FoldStage:
    """Folds the batches of many producers; state is that of the current producer.

    The same messages, in the same order within each producer, give the same pieces, whatever is restarted between.
    """

    def __init__(self, policy: WindowPolicy, progress: Value, pending: Log, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._policy = policy
        self._progress = progress
        self._pending = pending
        self._limits = limits
        self._producers: dict[bytes, ProducerFold] = {}
        self.counts = FoldCounts()

    def take(self, producer: bytes, message: bytes) -> Iterator[Piece | Late | Dead]:
        """Folds a message of the current producer."""
        try:
            batch = self._read(producer, message)
        except BatchError as error:
            self.counts.batches += 1
            self.counts.reject(error.reason)
            yield Dead(error.reason, message)
            return
        fold = self._fold(producer)
        held, given_up = list(fold.windows.pending), fold.taken.given_up
        folded = fold.take(batch)
        self.counts.take(len(batch.columns), folded, fold.taken.given_up - given_up)
        if folded is None:
            return
        yield from self._outputs(folded, fold.registry)
        self._progress.put(encode_progress(fold.progress))
        self._keep(held, fold)

    def drain(self, producer: bytes) -> Iterator[Piece | Late]:
        """Closes the windows of the current producer: it is idle, or the input has ended."""
        fold = self._fold(producer)
        folded = fold.drain()
        if len(folded.closed):
            yield from self._outputs(folded, fold.registry)
            self._progress.put(encode_progress(fold.progress))
            self._pending.replace([])

    def release(self, producer: bytes) -> None:
        """Takes an idle producer out of memory; its state stays."""
        self._producers.pop(producer, None)

    def forget(self, producer: bytes) -> None:
        """Gives up the current producer's state: no batch of it can come any more."""
        self.release(producer)
        self._progress.clear()
        self._pending.replace([])

    def _fold(self, producer: bytes) -> ProducerFold:
        fold = self._producers.get(producer)
        if fold is None:
            registry = SeriesRegistry()
            kept = self._progress.get()
            progress = decode_progress(kept) if kept else Progress()
            pending = [unpack(data, registry) for data in self._pending.read()]
            fold = ProducerFold(self._policy, registry, progress=progress, pending=pending)
            self._producers[producer] = fold
        return fold

    def _read(self, producer: bytes, message: bytes) -> Batch:
        batch = decode_batch(message, self._limits)
        check_batch(batch)
        if batch.producer != producer:
            raise BatchError("producer", "the message names another producer after its first bytes")
        return batch

    def _keep(self, held: list[Partial], fold: ProducerFold) -> None:
        """Writes what is pending now where `held` was: appends, unless windows were closed or merged."""
        pending = fold.windows.pending
        if len(pending) >= len(held) and all(new is old for new, old in zip(pending, held, strict=False)):
            for partial in pending[len(held) :]:
                self._pending.append(pack(partial, fold.registry))
        else:
            self._pending.replace([pack(partial, fold.registry) for partial in pending])

    def _outputs(self, folded: Folded, registry: SeriesRegistry) -> Iterator[Piece | Late]:
        out: Partial = merge([folded.closed, folded.late])
        for gpu_uuid, partial in by_gpu(out, registry):
            yield Piece(gpu_uuid, pack(partial, registry))
        for point in points(folded.late, self._policy.width_ns, registry):
            yield Late(series_key(point.series), encode_point(point))

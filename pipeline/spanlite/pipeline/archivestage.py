"""The archive job's stage, keyed by producer: messages wait until there are enough for a file, each written once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spanlite.contract.batch import Batch
from spanlite.contract.codec import DEFAULT_LIMITS, Limits, decode_batch, decode_header
from spanlite.contract.errors import BatchError
from spanlite.contract.state import Progress, decode_progress, encode_progress
from spanlite.pipeline.counts import ArchiveCounts
from spanlite.pipeline.dedupe import Sequences
from spanlite.pipeline.keyed import Log, Value
from spanlite.pipeline.plausible import check_batch

Write = Callable[[Sequence[Batch]], int]
"""Writes what is new of some batches of one producer to the archive; the number of spans written. Whoever calls it
again with the same batches, grouped in whatever way, writes nothing twice."""


class _Waiting:
    """One producer in memory: what its state says, decoded."""

    def __init__(self, taken: Sequences, messages: list[bytes]) -> None:
        self.taken = taken
        self.messages = messages
        self.spans = sum(decode_header(message).rows for message in messages)
        self.size = sum(map(len, messages))


class ArchiveStage:
    """Buffers each producer's messages in state and writes them as files; state is that of the current producer.

    A message is in the buffer, or in the archive, or, when a failure has set the state back, in both: `write` knows
    what the archive holds.
    """

    def __init__(
        self,
        write: Write,
        progress: Value,
        buffer: Log,
        *,
        most_spans: int = 1 << 20,
        most_bytes: int = 16 << 20,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Args: most_spans, most_bytes: of one producer's buffer; a file is written when it is reached."""
        self._write = write
        self._progress = progress
        self._buffer = buffer
        self._most_spans = most_spans
        self._most_bytes = most_bytes
        self._limits = limits
        self._producers: dict[bytes, _Waiting] = {}
        self.counts = ArchiveCounts()

    def take(self, producer: bytes, message: bytes) -> bool:
        """Takes a message of the current producer; whether any now waits to be written.

        Raises:
            ArchiveError: a file was due and cannot be written.
        """
        self.counts.batches += 1
        try:
            header = decode_header(message, self._limits)
        except BatchError as error:
            self.counts.reject(error.reason)
            return bool(self._waiting(producer).messages)
        waiting = self._waiting(producer)
        self.counts.spans += header.rows
        given_up = waiting.taken.given_up
        if not waiting.taken.first_time(header.sequence):
            self.counts.duplicates += header.rows
            return bool(waiting.messages)
        self.counts.sequences_given_up += waiting.taken.given_up - given_up
        self._buffer.append(message)
        self._progress.put(encode_progress(Progress(waiting.taken.runs)))
        waiting.messages.append(message)
        waiting.spans += header.rows
        waiting.size += len(message)
        if waiting.spans >= self._most_spans or waiting.size >= self._most_bytes:
            self.flush(producer)
        return bool(waiting.messages)

    def flush(self, producer: bytes) -> None:
        """Writes what waits of the current producer.

        Raises:
            ArchiveError: it cannot be written; it still waits.
        """
        waiting = self._waiting(producer)
        batches = []
        for message in waiting.messages:
            try:
                batch = decode_batch(message, self._limits)
                check_batch(batch)
            except BatchError as error:
                self.counts.reject(error.reason)
                continue
            batches.append(batch)
        if batches:
            self.counts.written += self._write(batches)
        self._buffer.replace([])
        waiting.messages, waiting.spans, waiting.size = [], 0, 0

    def release(self, producer: bytes) -> None:
        """Takes a producer out of memory; its state stays."""
        self._producers.pop(producer, None)

    def forget(self, producer: bytes) -> None:
        """Gives up the current producer's state: no batch of it can come any more."""
        self.release(producer)
        self._progress.clear()
        self._buffer.replace([])

    def _waiting(self, producer: bytes) -> _Waiting:
        found = self._producers.get(producer)
        if found is None:
            kept = self._progress.get()
            taken = Sequences(decode_progress(kept).taken if kept else ())
            found = self._producers[producer] = _Waiting(taken, self._buffer.read())
        return found

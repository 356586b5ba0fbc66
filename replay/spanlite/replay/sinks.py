"""Where replayed batches go: a file of SpanBatch messages, JSON lines, or a producer such as Kafka's."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from spanlite.contract.codec import decode_batch
from spanlite.contract.delimited import write_delimited
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.contract.rows import span_rows
from spanlite.replay.checkpoint import sync_folder
from spanlite.replay.moments import Moment, headers_of
from spanlite.replay.ports import Acknowledge, Item
from spanlite.transport.ports import HeaderProducer


class FileSink:
    """SpanBatch messages, each behind its length, as `spanlite ingest --batches` writes them.

    They gather in a hidden file beside the one that is asked for, which appears when all of it is there. What is
    acknowledged is written, and durable after `sync`.

    Args:
        path: the file.
        keep: leave what is there so far when the replay ends early, to be resumed.

    Raises:
        UsageError: the folder is not there or not writable.
    """

    def __init__(self, path: Path, *, keep: bool) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.replay")
        self._keep = keep
        self._stream: Any = None
        self._bytes = 0
        self._whole = False

    def begin(self) -> None:
        """Starts anew."""
        self._open(0)

    def send(
        self,
        item: Item,  # noqa: ARG002  # as all sinks
        payload: bytes,
        on_delivery: Acknowledge,
        moment: Moment | None = None,  # noqa: ARG002  # likewise
    ) -> None:
        try:
            write_delimited(self._stream, payload)
        except OSError as error:
            raise self._unwritable(error) from error
        self._bytes = self._stream.tell()
        on_delivery(None)

    def sync(self) -> Mapping[str, int]:
        if self._whole:
            return {"bytes": self._bytes}
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise self._unwritable(error) from error
        return {"bytes": self._bytes}

    def resume(self, state: Mapping[str, int]) -> None:
        size = state["bytes"]
        if not self._part.exists() and self._path.exists() and self._path.stat().st_size == size:
            self._whole, self._bytes = True, size  # it was stopped after the last step but one
            return
        if not self._part.exists() or self._part.stat().st_size < size:
            raise ReplayError(f"{self._part}: what the checkpoint tells of is not there; start without --resume")
        self._open(size)
        self._bytes = size

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # all is told of before `send` returns
        return 0

    def close(self, *, complete: bool) -> None:
        if self._whole or self._stream is None:
            return
        if complete:
            self.sync()
            try:
                self._part.replace(self._path)
                sync_folder(self._path.parent)
            except OSError as error:
                raise self._unwritable(error) from error
        elif not self._keep:
            self._part.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a disk that is full has said so before
            self._stream.close()

    def _open(self, size: int) -> None:
        try:
            if self._path.is_dir():
                raise UsageError(f"cannot write {self._path}: it is a folder; choose another file")
            self._stream = self._part.open("ab")
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._stream.truncate(size)
            self._stream.seek(size)  # what lay beyond, written after the last checkpoint, is not where we are
        except BlockingIOError as error:
            self._stream.close()
            raise UsageError(f"{self._path}: another replay writes it; wait for its end or choose another") from error
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(f"cannot write {self._path}: {error.strerror}; choose another file or free space")


class LineSink:
    """One JSON line a span, as `spanlite cat` prints them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self) -> None:
        """Nothing to do."""

    def send(
        self,
        item: Item,  # noqa: ARG002  # as all sinks
        payload: bytes,
        on_delivery: Acknowledge,
        moment: Moment | None = None,  # noqa: ARG002  # likewise
    ) -> None:
        for span in span_rows(decode_batch(payload)):
            self._stream.write(json.dumps(span) + "\n")
        on_delivery(None)

    def sync(self) -> Mapping[str, int]:
        self._stream.flush()
        return {}

    def resume(self, state: Mapping[str, int]) -> None:
        """What was printed was printed."""

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002  # likewise
        return 0

    def close(self, *, complete: bool) -> None:  # noqa: ARG002  # likewise
        self._stream.flush()


class TopicSink:
    """Values of a topic; what a pacer let go has its moment in headers beside it.

    Args:
        producer: of any transport; it is its owner who closes it.
        topic: where to.
        by: "source": under the key of host and GPUs, as agents send, so that what shared a partition does again;
            "producer": under that of the emitted batch, so that turns of a loop spread out.
    """

    def __init__(self, producer: HeaderProducer, topic: str, *, by: str = "source") -> None:
        self._producer = producer
        self._topic = topic
        self._by = by

    def begin(self) -> None:
        """Nothing to do."""

    def send(self, item: Item, payload: bytes, on_delivery: Acknowledge, moment: Moment | None = None) -> None:
        key = item.producer if self._by == "producer" else item.key
        newest_ms = max(item.last_ns // 1_000_000, 0)
        headers = headers_of(moment) if moment is not None else ()
        self._producer.send(self._topic, key, payload, newest_ms, on_delivery, headers=headers)

    def sync(self) -> Mapping[str, int]:
        return {}

    def resume(self, state: Mapping[str, int]) -> None:
        """What is acknowledged is stored."""

    def flush(self, timeout_s: float) -> int:
        return self._producer.flush(timeout_s)

    def close(self, *, complete: bool) -> None:
        """Its owner closes the producer."""

"""Where a replay went, read back: a file, a topic up to its present end, batches of another archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from spanlite.contract.batch import Batch
from spanlite.contract.codec import DEFAULT_LIMITS, decode_batch
from spanlite.contract.delimited import read_delimited
from spanlite.contract.errors import BatchError, ReplayError, TransportError, UsageError
from spanlite.replay.compare.sides import Came
from spanlite.replay.moments import moment_of
from spanlite.replay.plan import read_group
from spanlite.replay.ports import Archive
from spanlite.replay.runs import id_codes
from spanlite.runtime.clock import Clock
from spanlite.transport.ports import Record

_POLL_RECORDS, _POLL_S = 1000, 0.5
PATIENCE_S = 30.0
"""How long a topic may give nothing before its end is reached."""


class TopicReader(Protocol):
    """All of a topic from its beginning."""

    @property
    def caught_up(self) -> bool:
        """Whether all is read that was there at the first `poll`."""
        ...

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Up to `most` records; an empty list when none came in time."""
        ...


def came_in_file(path: Path) -> Iterator[Came]:
    """The messages of a file of batches.

    Raises:
        UsageError: there is no such file.
        ReplayError: it is no file of batches, or ends inside one.
    """
    at = 0
    try:
        with path.open("rb") as stream:
            for value in read_delimited(stream, most_bytes=DEFAULT_LIMITS.message_bytes):
                yield Came(decode_batch(value), len(value))
                at += 1
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file, an archive, or kafka:TOPIC") from error
    except BatchError as error:
        raise ReplayError(
            f"{path}: message {at}: {error}; name a file that `spanlite replay run --to file` wrote"
        ) from error


def came_in_topic(reader: TopicReader, clock: Clock, *, stored_times: bool) -> Iterator[Came]:
    """The messages of a topic that are there now.

    Args:
        reader: without a group.
        clock: for the patience.
        stored_times: whether records say when the broker stored them, and not how old their spans are.

    Raises:
        TransportError: nothing comes any more before the end.
    """
    waited_ns = clock.monotonic_ns()
    while True:
        records = reader.poll(_POLL_RECORDS, _POLL_S)
        for record in records:
            time_ms = record.timestamp_ms if stored_times else None
            batch: Batch | None = None
            why = ""
            try:
                batch = decode_batch(record.value)
            except BatchError as error:
                why = f"partition {record.partition}, offset {record.offset}: {error}"
            yield Came(batch, len(record.value), record.partition, time_ms, why, moment_of(record.headers))
        if reader.caught_up:
            return
        if records:
            waited_ns = clock.monotonic_ns()
        elif clock.monotonic_ns() - waited_ns > PATIENCE_S * 1e9:
            raise TransportError(f"nothing came for {PATIENCE_S:g} s before the end of the topic; are the brokers up?")


def came_in_archive(batches: Iterable[Batch]) -> Iterator[Came]:
    """Batches of an archive, which came over no wire and in no order that it could tell."""
    for batch in batches:
        yield Came(batch)


def producers_of(archive: Archive) -> set[bytes]:
    """The producers of an archive, from that column alone.

    Raises:
        ArchiveError: a file cannot be read.
    """
    found: set[bytes] = set()
    for source in archive.sources:
        with archive.open(source) as file:
            for group in range(file.num_row_groups):
                table = read_group(archive, source, file, group, ["producer"])
                found.update(producer.tobytes() for producer in id_codes(table["producer"])[1])
    return found

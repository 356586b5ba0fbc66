"""What a replay asks of the place that it reads from, and of the one that it writes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spanlite.replay.moments import Moment


@dataclass(frozen=True, slots=True)
class Source:
    """One file of an archive.

    Attributes:
        name: relative to the archive; with `size` it says whether an archive is still what it was.
        size: bytes.
    """

    name: str
    size: int


class Archive(Protocol):
    """An archive whose files have been listed.

    Attributes:
        where: the archive as people write it; no credentials.
        sources: the files whose rows count, in the order of time.
    """

    where: str

    @property
    def sources(self) -> Sequence[Source]: ...

    def open(self, source: Source) -> Any:
        """The file as a pyarrow ParquetFile, whose columns have been checked; a context that closes it.

        Raises:
            ArchiveError: gone, unreadable, not Parquet, or foreign.
        """
        ...

    def read(self, file: Any, group: int, columns: Sequence[str], *, runs: bool = False) -> Any:
        """Columns of a row group of a file that `open` gave, as an Arrow table.

        Args:
            file, group, columns: which.
            runs: columns of one value, or null, may come as run-end encoded arrays of one run.

        Raises:
            OSError, pa.ArrowException: it is damaged.
        """
        ...


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where in a replay an item stands.

    Attributes:
        loop: turns before it.
        batch: batches of the plan before it, in this turn.
        part: parts of the same batch before it; more than one where rows are missing between.
    """

    loop: int = 0
    batch: int = 0
    part: int = 0


START = Position()


@dataclass(frozen=True, slots=True)
class Item:
    """What is known of a message to emit, beside its bytes.

    Attributes:
        position: where it stands.
        producer, sequence: the name that it goes out with.
        key: host and GPUs, under which agents send it.
        spans: how many it holds.
        arrival_ns: when the agent handed the original on, Unix nanoseconds as recorded.
        start_ns: first start among its spans as recorded.
        first_ns, last_ns: first start and last end of its spans, as emitted.
    """

    position: Position
    producer: bytes
    sequence: int
    key: bytes
    spans: int
    arrival_ns: int
    start_ns: int
    first_ns: int
    last_ns: int


Acknowledge = Callable[[str | None], None]
"""Told of each value once: None when it is stored for good, else why it is not. It may come on another thread."""


class Sink(Protocol):
    """Where encoded batches go."""

    def begin(self) -> None:
        """Starts anew; or else `resume`.

        Raises:
            SpanliteError: nothing can be written there.
        """
        ...

    def resume(self, state: Mapping[str, int]) -> None:
        """Goes on behind what a `sync` made durable, maybe that of a process which is gone.

        Raises:
            SpanliteError: it is not there any more.
        """
        ...

    def send(self, item: Item, payload: bytes, on_delivery: Acknowledge, moment: Moment | None = None) -> None:
        """Hands a batch on, encoded as `payload`, with the moment at which a pacer let it go, if one did.

        Raises:
            SpanliteError: nothing more can be handed on.
        """
        ...

    def sync(self) -> Mapping[str, int]:
        """Makes durable what has been acknowledged; returns what `resume` needs to go on behind it."""
        ...

    def flush(self, timeout_s: float) -> int:
        """Waits for acknowledgements; returns how many are still to come."""
        ...

    def close(self, *, complete: bool) -> None:
        """Ends: whole if all was sent, else what is left of it is only there to be resumed."""
        ...

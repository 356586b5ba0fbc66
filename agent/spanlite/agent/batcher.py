"""Cuts span columns into numbered, self-contained batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spanlite.agent.columns import compact
from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.columns import SamplingMode, SpanColumns
from spanlite.runtime.clock import Clock

BATCH_ROWS = 65_536
"""A batch costs its readers as much as some thousands of spans, however many it has. So many take 160 KB."""


@dataclass(slots=True)
class Batcher:
    """Makes batches of one traced process.

    Attributes:
        producer: 16 bytes of this agent start; `sequence` and `first_row` count on from where they stand.
        session: base of the process's span ids.
    """

    producer: bytes
    session: int
    resource: Mapping[str, str]
    gpus: tuple[Gpu, ...]
    clock: Clock
    anchor: ClockAnchor = field(default_factory=ClockAnchor)
    sampling: SamplingMode = SamplingMode.FULL
    rows: int = BATCH_ROWS
    sequence: int = field(default=0)
    first_row: int = field(default=0)

    def cut(self, columns: SpanColumns) -> Iterator[Batch]:
        """Batches of at most `rows` spans, in row order."""
        for at in range(0, len(columns), self.rows):
            part = compact(columns.take(slice(at, at + self.rows)))
            yield Batch(
                producer=self.producer,
                sequence=self.sequence,
                session=self.session,
                first_row=self.first_row,
                emit_ns=self.clock.unix_ns(),
                columns=part,
                resource=self.resource,
                gpus=self.gpus,
                clock=self.anchor,
                sampling=self.sampling,
            )
            self.sequence += 1
            self.first_row += len(part)

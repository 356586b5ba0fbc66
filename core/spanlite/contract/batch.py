"""A batch in process: columns of some spans of one traced process, and what a consumer needs to know of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spanlite.contract.columns import Int64, SamplingMode, SpanColumns, UInt64
from spanlite.contract.ids import range_span_ids, row_span_ids


@dataclass(frozen=True, slots=True)
class Gpu:
    """Identity of a GPU or MIG instance; `uuid` joins with DCGM's UUID label."""

    uuid: str
    index: int = 0
    name: str = ""
    compute_major: int = 0
    compute_minor: int = 0
    multiprocessors: int = 0
    pci_bus_id: str = ""
    mig_profile: str = ""
    mig_instance: str = ""


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """One reading of both clocks: CUPTI's, while the host's was unix_ns ± uncertainty_ns."""

    cupti_ns: int = 0
    unix_ns: int = 0
    uncertainty_ns: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """What one SpanBatch message says.

    Attributes:
        producer: 16 bytes; with `sequence` the name of the batch for ever.
        session: 64-bit base of the span ids of one traced process.
        first_row: row number within the session of row 0.
        emit_ns: Unix nanoseconds at which the agent handed the batch on.
        resource: who ran it, by OpenTelemetry's resource names.
        gpus: what `places["gpu"] - 1` indexes.
    """

    producer: bytes
    sequence: int
    session: int
    first_row: int
    emit_ns: int
    columns: SpanColumns
    resource: Mapping[str, str]
    gpus: tuple[Gpu, ...] = ()
    clock: ClockAnchor = ClockAnchor()
    sampling: SamplingMode = SamplingMode.FULL

    @property
    def span_ids(self) -> UInt64:
        """Span id of each row, shape (n,)."""
        return row_span_ids(self.session, self.first_row, self.columns.range_number)

    @property
    def parent_span_ids(self) -> UInt64:
        """Span id of each row's parent, 0 where it has none."""
        return range_span_ids(self.session, self.columns.parent)

    @property
    def end_ns(self) -> Int64:
        """End of each row."""
        return self.columns.start_ns + self.columns.duration_ns

"""Every error that spanlite raises on purpose.

SpanliteError            exit code 1 unless its class says otherwise
├── UsageError           the call is off: flags, missing extra (exit 2)
├── RecordingError       a recording on disk cannot be read: path, what is wrong, what to do
├── LayoutError          CUPTI bytes do not fit the layout of the version that is said to have written them
├── FrameError           a frame of the collector protocol is malformed
├── BatchError           a SpanBatch is rejected: one reason word, one sentence
├── PointError           a MetricPoint is rejected, likewise
├── StateError           kept state of a streaming job cannot be read by this version
├── TransportError       the broker refuses for good: topic missing, not authorised, login or certificate wrong
├── PipelineError        a job cannot be handed to the cluster
├── ArchiveError         a Parquet archive cannot be read or written
├── ReplayError          an archived run cannot be emitted again as asked
├── ExporterError        the metrics endpoint cannot be served (port taken, …)
└── CountersError        a GPU's hardware counters cannot be read: which call said so, its result
"""

from __future__ import annotations


class SpanliteError(Exception):
    """Root of the tree; its text is one line for a person: what, where, what to do."""

    exit_code = 1


class UsageError(SpanliteError):
    """The call itself is wrong."""

    exit_code = 2


class RecordingError(SpanliteError):
    """A recording on disk cannot be read."""


class LayoutError(SpanliteError):
    """CUPTI bytes do not fit the layout of their version."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class FrameError(SpanliteError):
    """A frame of the collector protocol is malformed."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BatchError(SpanliteError):
    """A SpanBatch is rejected before memory is spent on it.

    Attributes:
        reason: one word of a bounded set, fit for a metric label and a dead-letter record.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class PointError(SpanliteError):
    """A MetricPoint is rejected before memory is spent on it, or cannot be put on the wire.

    Attributes:
        reason: one word of a bounded set, fit for a metric label and a dead-letter record.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class StateError(SpanliteError):
    """Kept state of a streaming job cannot be read by this version."""


class TransportError(SpanliteError):
    """The broker refuses for good; trying again will not help before somebody has changed something."""


class PipelineError(SpanliteError):
    """A job cannot be handed to the cluster."""


class ArchiveError(SpanliteError):
    """A Parquet archive cannot be read or written."""


class ReplayError(SpanliteError):
    """An archived run cannot be emitted again as asked."""


class ExporterError(SpanliteError):
    """The metrics endpoint cannot be served."""


class CountersError(SpanliteError):
    """A GPU's hardware counters cannot be read.

    Attributes:
        result: CUPTI's number where it is above 0, else one of the counters library's own.
    """

    def __init__(self, result: int, message: str) -> None:
        super().__init__(message)
        self.result = result

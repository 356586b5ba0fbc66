"""What the stages and runners count, and the metrics that they make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from spanlite.contract import catalogue
from spanlite.pipeline.producer import Folded

Samples = dict[str, list[tuple[Mapping[str, str], float]]]
"""Own metrics: name in the catalogue → (labels, value) pairs."""


@dataclass(slots=True)
class _Counts:
    batches: int = 0
    spans: int = 0
    duplicates: int = 0
    sequences_given_up: int = 0
    rejected: dict[str, int] = field(default_factory=dict)

    def reject(self, reason: str) -> None:
        """A message that is no batch."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def by_name(self) -> dict[str, int]:
        """Names fit for a stream engine's metrics."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rejected"}
        return plain | {f"rejected_{reason}": count for reason, count in self.rejected.items()}


@dataclass(slots=True)
class FoldCounts(_Counts):
    """What was folded since the start; a stream engine starts again from 0 after a failure.

    spans = folded + ranges + duplicates; late ones are among the folded.
    """

    folded: int = 0
    ranges: int = 0
    late: int = 0

    def take(self, rows: int, folded: Folded | None, given_up: int) -> None:
        """A batch of so many rows and what it led to, None for a duplicate; sequences that were given up over it."""
        self.batches += 1
        self.spans += rows
        self.sequences_given_up += given_up
        if folded is None:
            self.duplicates += rows
            return
        self.folded += folded.spans
        self.ranges += folded.ranges
        self.late += int(folded.late.spans.sum())

    def samples(self) -> Samples:
        """The metrics that every runner has."""
        return {
            catalogue.PIPELINE_BATCHES_RECEIVED.name: [({}, self.batches)],
            catalogue.PIPELINE_BATCHES_REJECTED.name: [
                ({"reason": reason}, count) for reason, count in sorted(self.rejected.items())
            ],
            catalogue.PIPELINE_SPANS_RECEIVED.name: [({}, self.spans)],
            catalogue.PIPELINE_SPANS_FOLDED.name: [({}, self.folded)],
            catalogue.PIPELINE_SPANS_IGNORED.name: [
                ({"reason": "range"}, self.ranges),
                ({"reason": "duplicate"}, self.duplicates),
            ],
            catalogue.PIPELINE_LATE_SPANS.name: [({}, self.late)],
            catalogue.PIPELINE_SEQUENCES_GIVEN_UP.name: [({"stage": "fold"}, self.sequences_given_up)],
        }


@dataclass(slots=True)
class ArchiveCounts(_Counts):
    """What was archived since the start: spans = written + duplicates + those that wait."""

    written: int = 0

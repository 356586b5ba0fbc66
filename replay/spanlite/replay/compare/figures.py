"""The figures of a comparison by name: what each says, and its value or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Spans": {
        "missing": "spans that did not come",
        "duplicate": "spans that came again",
        "foreign": "spans that came and are in no original",
        "changed": "spans of which any column differs",
        "lost": "spans that the run says it lost",
    },
    "Relations and times": {
        "topology": "traces with the same spans under the same parents, %",
        "traces_failed": "traces without",
        "timing_error_ns": "largest error of a start or a duration, ns",
        "start_error_max_ns": "largest error of a start, ns",
        "start_error_mean_ns": "mean error of all starts, ns",
        "duration_error_max_ns": "largest error of a duration, ns",
        "duration_error_mean_ns": "mean error of all durations, ns",
    },
    "Messages": {
        "out_of_order": "messages behind one that was to come later",
        "repeated_batches": "messages whose name had come before",
        "other_batches": "messages of other runs, or of none; set aside",
        "unreadable_messages": "messages that are no batches",
    },
    "Emitted": {
        "late": "messages that the run says left late",
        "lateness_mean_ns": "mean lateness as the run says, ns",
        "lateness_p50_ns": "its median, ns",
        "lateness_p99_ns": "its 99th percentile, ns",
        "lateness_max_ns": "its maximum, ns",
        "emitted_late_mean_ns": "from due to emitted, as headers say: mean, ns",
        "emitted_late_p50_ns": "its median, ns",
        "emitted_late_p99_ns": "its 99th percentile, ns",
        "emitted_late_max_ns": "its maximum, ns",
        "emitted_due_spread_ns": "most by which due times in headers differ from those reckoned again, ns",
        "emitted_gap_p50_original_ns": "median gap between due times, ns",
        "emitted_gap_p50_replay_ns": "and between emissions, ns",
        "emitted_gap_p99_original_ns": "99th percentile of the former, ns",
        "emitted_gap_p99_replay_ns": "and of the latter, ns",
        "emitted_ks": "greatest distance between the distributions of those gaps, 0 to 1",
        "emitted_w1_ns": "mean distance between them, ns",
    },
    "Arrived": {
        "stored_late_p50_ns": "from due to stored, beyond the least: median, ns",
        "stored_late_p99_ns": "its 99th percentile, ns",
        "stored_late_max_ns": "its maximum, ns",
        "gap_p50_original_ns": "median gap between messages that were to arrive, ns",
        "gap_p50_replay_ns": "and between those that arrived, ns",
        "gap_p99_original_ns": "99th percentile of the former, ns",
        "gap_p99_replay_ns": "and of the latter, ns",
        "ks": "greatest distance between the distributions of gaps, 0 to 1",
        "w1_ns": "mean distance between them, ns",
        "rate_correlation": "correlation of rates, -1 to 1",
    },
    "Size": {
        "bytes_per_span": "bytes a span on the wire",
        "json_bytes_per_span": "bytes a span as JSON lines",
        "size_percent": "the former in % of the latter",
    },
}
"""Figures by group: what each says. Beside them stand those of both sides, see SIDES."""
SIDES: Mapping[str, str] = {"spans": "spans", "batches": "messages", "traces": "traces"}
"""Figures NAME_original and NAME_replay: how many were to come, and came."""
NAMES = (
    *(f"{name}_{side}" for name in SIDES for side in ("original", "replay")),
    *(name for group in GROUPS.values() for name in group),
)
"""All that a report may hold. Every `changed.COLUMN` is a figure as well: spans whose COLUMN differs."""
GAPS = (
    "gap_p50_original_ns",
    "gap_p50_replay_ns",
    "gap_p99_original_ns",
    "gap_p99_replay_ns",
    "ks",
    "w1_ns",
    "rate_correlation",
)
"""Figures that depend on whose clock says when messages came."""
EMITTED = tuple(name for name in GROUPS["Emitted"] if name.startswith("emitted_"))
"""Figures that the headers of messages tell."""
CHANGED = "changed."


Steps = list[tuple[float, float]]


@dataclass
class Figures:
    """Values, and reasons for those that are not there."""

    values: dict[str, float] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)

    def put(self, **values: float) -> None:
        """Sets figures."""
        self.values.update(values)

    def lack(self, why: str, *names: str) -> None:
        """Says why figures are not there."""
        self.unavailable.update(dict.fromkeys(names, why))

    def value(self, name: str) -> float | None:
        """A figure; 0 for a column in which nothing differs."""
        if name.startswith(CHANGED):
            return self.values.get(name, 0 if "changed" in self.values else None)
        return self.values.get(name)


@dataclass
class Curves:
    """What the plots show.

    Attributes:
        gaps_ns: gap and share of gaps up to it, of the original and the replay.
        rates: spans a second in each bucket, likewise.
        bucket_ns: width of those buckets.
        errors: by name: how many values are off by 0, 1, 2 to 3, 4 to 7, … ns; only where any is.
        stored_late_ns: lateness of what a broker stored, and share up to it.
        emitted_gaps_ns, emitted_late_ns: likewise of due times and emissions, as headers tell them.
    """

    gaps_ns: tuple[Steps, Steps] = field(default_factory=lambda: ([], []))
    rates: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    bucket_ns: int = 0
    errors: dict[str, list[int]] = field(default_factory=dict)
    stored_late_ns: Steps = field(default_factory=list)
    emitted_gaps_ns: tuple[Steps, Steps] = field(default_factory=lambda: ([], []))
    emitted_late_ns: Steps = field(default_factory=list)


@dataclass
class Report:
    """How faithful a replay was.

    Attributes:
        run: its name.
        original, replay: where both sides are, as people write it.
        kind: `file`, `topic` or `archive`.
        figures: by name.
        failed_traces: the first that fail, each with why.
        changed: spans by column that differs.
        emissions: what emissions were told by, and of how many messages; without any, `by` is None.
        arrivals: what arrivals were told by, and their resolution in ns.
        notes: what a reader should know.
        curves: for plots.
        formats: rows of the table of formats, if asked for.
        gates: what was required, and whether it holds.
    """

    run: str
    original: str
    replay: str
    kind: str
    figures: Figures = field(default_factory=Figures)
    failed_traces: list[dict[str, str]] = field(default_factory=list)
    changed: dict[str, int] = field(default_factory=dict)
    emissions: dict[str, Any] = field(default_factory=lambda: {"by": None, "messages": 0})
    arrivals: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    curves: Curves = field(default_factory=Curves)
    formats: list[dict[str, Any]] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """The report as JSON values; names are stable."""
        return {
            "format": 1,
            "run": self.run,
            "original": self.original,
            "replay": {"where": self.replay, "kind": self.kind},
            "figures": {name: self.figures.values.get(name) for name in NAMES},
            "unavailable": self.figures.unavailable,
            "changed": self.changed,
            "failed_traces": self.failed_traces,
            "emissions": self.emissions,
            "arrivals": self.arrivals,
            "notes": self.notes,
            "curves": {
                "gaps_ns": {"original": self.curves.gaps_ns[0], "replay": self.curves.gaps_ns[1]},
                "rates": {"original": self.curves.rates[0], "replay": self.curves.rates[1]},
                "bucket_ns": self.curves.bucket_ns,
                "errors": self.curves.errors,
                "stored_late_ns": self.curves.stored_late_ns,
                "emitted_gaps_ns": {
                    "original": self.curves.emitted_gaps_ns[0],
                    "replay": self.curves.emitted_gaps_ns[1],
                },
                "emitted_late_ns": self.curves.emitted_late_ns,
            },
            "formats": self.formats,
            "gates": self.gates,
            "passed": all(gate["passed"] for gate in self.gates),
        }

"""The part of a report that is about time: the order of messages, when they came, and how late the run was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.replay.compare.arrivals import (
    Messages,
    bucket_ns,
    by_turn,
    correlation,
    distances,
    due,
    lateness_ns,
    out_of_order,
    rates,
    steps,
)
from spanlite.replay.compare.emitted import add_emissions
from spanlite.replay.compare.figures import GAPS, Report
from spanlite.replay.compare.sides import OriginalSide, ReplayedSide
from spanlite.replay.compare.told import Told

_CURVE_POINTS = 400
_STORED_NS = 1_000_000
_LATENESS = ("lateness_mean_ns", "lateness_p50_ns", "lateness_p99_ns", "lateness_max_ns")
_STORED = ("stored_late_p50_ns", "stored_late_p99_ns", "stored_late_max_ns")
_RATE = "rate_correlation"


def add_arrivals(report: Report, told: Told, ours: OriginalSide, theirs: ReplayedSide, original_of: Int64) -> None:
    """Adds it.

    Args:
        report: gets figures and curves.
        told: the run.
        ours, theirs: both sides, read to their ends.
        original_of: original batch of each message that came, -1 where none of its spans is known.
    """
    turn = ours.turn(told.order)
    report.figures.put(batches_original=ours.messages)
    _add_order(report, turn, theirs, original_of)
    _add_told(report, told)
    stored = bool(theirs.times_ms) and all(ms is not None for ms in theirs.times_ms)
    batch = by_turn(original_of, np.array(theirs.loops, dtype=np.int64), len(ours.heads))
    was_due = None
    if told.pace is not None and (stored or any(theirs.moments)):
        was_due = due(told.pace, turn, ours.weights(turn), batches=len(ours.heads)).first(ours.messages)
    add_emissions(report, was_due, theirs, batch)
    if stored:
        report.arrivals = {"by": "broker", "resolution_ns": _STORED_NS}
        _add_stored(report, was_due, theirs.stored(batch))
    else:
        report.arrivals = {"by": "batches", "resolution_ns": 1}
        report.notes.append(
            "nothing tells when messages arrived: arrivals are the times at which agents sent the originals, as "
            "batches carry them"
        )
        _add_distances(report, _turns(ours.turn("arrival"), told).first(ours.messages), theirs.carried(original_of))
        report.figures.lack("no broker says when it stored messages", *_STORED)


def _add_stored(report: Report, was_due: Messages | None, came: Messages) -> None:
    if was_due is None:
        why = "the run had no pace, so its messages had no times to come at"
        report.figures.lack(why, *GAPS, *_STORED)
        return
    report.notes.append(
        "arrivals are told by the broker's clock, in whole milliseconds; what was due is rounded down alike"
    )
    was_due = replace(was_due, times_ns=was_due.times_ns // _STORED_NS * _STORED_NS)
    _add_distances(report, was_due, came)
    _add_stored_lateness(report, was_due, came)


def _turns(turn: Messages, told: Told) -> Messages:
    """All turns, set apart by their period."""
    starts = np.repeat(np.arange(told.loops, dtype=np.int64) * told.period_ns, len(turn))
    batch, times, spans = (np.tile(values, told.loops) for values in (turn.batch, turn.times_ns, turn.spans))
    return Messages(batch, times + starts, spans)


def _add_order(report: Report, turn: Messages, theirs: ReplayedSide, original_of: Int64) -> None:
    if report.kind == "archive":
        report.figures.lack("an archive does not tell in which order messages came", "out_of_order")
        return
    batch, first = np.unique(turn.batch, return_index=True)
    place = np.zeros(int(batch.max()) + 2, dtype=np.int64)
    place[batch] = first
    loops = np.array(theirs.loops, dtype=np.int64)
    places = np.where(original_of >= 0, loops * len(turn) + place[original_of], -1)
    report.figures.put(out_of_order=out_of_order(places, np.array(theirs.partitions, dtype=np.int64)))


def _add_told(report: Report, told: Told) -> None:
    lateness = told.pacing.get("lateness_ns")
    if not lateness:
        report.figures.lack("the run had no pace (--speed max)", "late", *_LATENESS)
        return
    report.figures.put(late=int(told.pacing["late"]))
    report.figures.put(**{name: float(lateness[name.split("_")[1]]) for name in _LATENESS})


def _add_distances(report: Report, expected: Messages, came: Messages) -> None:
    figures, curves = report.figures, report.curves
    found = distances(expected, came)
    if not found:
        figures.lack("gaps take two messages or more on both sides", *GAPS)
        return
    figures.put(**found)
    curves.gaps_ns = (list(steps(expected.gaps_ns, _CURVE_POINTS)), list(steps(came.gaps_ns, _CURVE_POINTS)))
    width = curves.bucket_ns = bucket_ns(expected.length_ns, came.length_ns)
    buckets = max(expected.length_ns, came.length_ns) // width + 1
    both = rates(expected, width, buckets), rates(came, width, buckets)
    curves.rates = (both[0].tolist(), both[1].tolist())
    alike = correlation(*both)
    if alike is None:
        figures.lack(f"rates in buckets of {width / 1e6:g} ms do not vary, or are fewer than three", _RATE)
    else:
        figures.put(rate_correlation=alike)


def _add_stored_lateness(report: Report, was_due: Messages, came: Messages) -> None:
    late = lateness_ns(was_due, came)
    if not len(late):
        report.figures.lack("no message is of a batch that is known", *_STORED)
        return
    p50, p99 = np.quantile(late, (0.5, 0.99)).tolist()
    report.figures.put(stored_late_p50_ns=p50, stored_late_p99_ns=p99, stored_late_max_ns=int(late[-1]))
    report.curves.stored_late_ns = list(steps(late, _CURVE_POINTS))

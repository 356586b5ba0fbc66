"""The part of a report that is about time: the order of messages, when they came, and how late the run was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.replay.compare.arrivals import (
    Messages,
    bucket_ns,
    correlation,
    due,
    ks,
    lateness_ns,
    out_of_order,
    rates,
    steps,
    w1,
)
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
    pace = told.pace
    stored = bool(theirs.times_ms) and all(ms is not None for ms in theirs.times_ms)
    if stored and pace is None:
        why = "the run had no pace, so its messages had no times to come at"
        report.arrivals = {"by": "broker", "resolution_ns": _STORED_NS}
        report.figures.lack(why, *GAPS, *_STORED)
    elif stored and told.pacing.get("qps_of") == "traces":
        report.arrivals = {"by": "broker", "resolution_ns": _STORED_NS}
        report.figures.lack("a limit that counts traces is not reckoned again", *GAPS, *_STORED)
    elif stored and pace is not None:
        report.arrivals = {"by": "broker", "resolution_ns": _STORED_NS}
        report.notes.append(
            "arrivals are told by the broker's clock, in whole milliseconds; what was due is rounded down alike"
        )
        by_spans = told.pacing.get("qps_of") == "spans"
        was_due = due(pace, turn, by_spans=by_spans).first(ours.messages)
        was_due = replace(was_due, times_ns=was_due.times_ns // _STORED_NS * _STORED_NS)
        came = theirs.stored(original_of)
        _add_distances(report, was_due, came)
        _add_stored_lateness(report, told, was_due, came)
    else:
        report.arrivals = {"by": "batches", "resolution_ns": 1}
        report.notes.append(
            "nothing tells when messages left: arrivals are the times at which agents sent the originals, as batches "
            "carry them"
        )
        _add_distances(report, _turns(ours.turn("arrival"), told).first(ours.messages), theirs.carried(original_of))
        report.figures.lack("no broker says when it stored messages", *_STORED)


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
    ours, theirs = expected.gaps_ns, came.gaps_ns
    figures, curves = report.figures, report.curves
    if not len(ours) or not len(theirs):
        figures.lack("gaps take two messages or more on both sides", *GAPS)
        return
    figures.put(
        gap_p50_original_ns=float(np.quantile(ours, 0.5)),
        gap_p50_replay_ns=float(np.quantile(theirs, 0.5)),
        gap_p99_original_ns=float(np.quantile(ours, 0.99)),
        gap_p99_replay_ns=float(np.quantile(theirs, 0.99)),
        ks=ks(ours, theirs),
        w1_ns=w1(ours, theirs),
    )
    curves.gaps_ns = (list(steps(ours, _CURVE_POINTS)), list(steps(theirs, _CURVE_POINTS)))
    width = curves.bucket_ns = bucket_ns(expected.length_ns, came.length_ns)
    buckets = max(expected.length_ns, came.length_ns) // width + 1
    both = rates(expected, width, buckets), rates(came, width, buckets)
    curves.rates = (both[0].tolist(), both[1].tolist())
    found = correlation(*both)
    if found is None:
        figures.lack(f"rates in buckets of {width / 1e6:g} ms do not vary, or are fewer than three", _RATE)
    else:
        figures.put(rate_correlation=found)


def _add_stored_lateness(report: Report, told: Told, was_due: Messages, came: Messages) -> None:
    if told.loops > 1:
        report.figures.lack("turns of a loop share their batches", *_STORED)
        return
    late = lateness_ns(was_due, came)
    if not len(late):
        report.figures.lack("no message is of a batch that is known", *_STORED)
        return
    p50, p99 = np.quantile(late, (0.5, 0.99)).tolist()
    report.figures.put(stored_late_p50_ns=p50, stored_late_p99_ns=p99, stored_late_max_ns=int(late[-1]))
    report.curves.stored_late_ns = list(steps(late, _CURVE_POINTS))

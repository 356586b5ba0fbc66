"""The part of a report that headers tell: when messages were let go, beside when they were to go, in nanoseconds."""

from __future__ import annotations

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.replay.compare.arrivals import Messages, distances, lateness_ns, steps
from spanlite.replay.compare.figures import EMITTED, Report
from spanlite.replay.compare.sides import ReplayedSide

_CURVE_POINTS = 400
_GAPS = tuple(name for name in EMITTED if "gap" in name or name in ("emitted_ks", "emitted_w1_ns"))


def add_emissions(report: Report, was_due: Messages | None, theirs: ReplayedSide, batch: Int64) -> None:
    """Adds it.

    Args:
        report: gets figures and curves.
        was_due: what was to go, when by the schedule reckoned again; None for a run without a pace.
        theirs: what came, read to its end.
        batch: of each message the number of its original batch and turn, -1 where it is not known.
    """
    moments = [moment for moment in theirs.moments if moment is not None]
    if was_due is None or len(moments) < len(theirs.moments):
        why = "no message says when it was let go: only records of a topic do, of a run with a pace"
        if moments:
            why = f"only {len(moments)} of {len(theirs.moments)} messages say when they were let go"
        report.figures.lack("the manifest tells of no pace" if moments and was_due is None else why, *EMITTED)
        return
    report.emissions = {"by": "headers", "messages": len(moments)}
    due_ns, emitted_ns = np.array(moments, dtype=np.int64).T
    rows = np.array(theirs.rows, dtype=np.int64)
    late = np.sort(emitted_ns - due_ns)
    p50, p99 = np.quantile(late, (0.5, 0.99)).tolist()
    report.figures.put(emitted_late_mean_ns=float(late.mean()), emitted_late_max_ns=int(late[-1]))
    report.figures.put(emitted_late_p50_ns=p50, emitted_late_p99_ns=p99)
    report.curves.emitted_late_ns = list(steps(late, _CURVE_POINTS))
    spread = lateness_ns(was_due, Messages(batch, due_ns, rows))
    if len(spread):
        report.figures.put(emitted_due_spread_ns=int(spread[-1]))
    else:
        report.figures.lack("no message is of a batch that is known", "emitted_due_spread_ns")
    came = Messages(batch, emitted_ns, rows)
    found = distances(was_due, came)
    if not found:
        report.figures.lack("gaps take two messages or more on both sides", *_GAPS)
        return
    report.figures.put(**{f"emitted_{name}": value for name, value in found.items()})
    both = [list(steps(messages.gaps_ns, _CURVE_POINTS)) for messages in (was_due, came)]
    report.curves.emitted_gaps_ns = (both[0], both[1])

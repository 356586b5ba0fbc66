"""A comparison from its sides to its report: windows of both, joined until both end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.contract.errors import ReplayError
from spanlite.replay.compare.arrived import add_arrivals
from spanlite.replay.compare.changes import Changes
from spanlite.replay.compare.columns import Columns, Common
from spanlite.replay.compare.figures import CHANGED, Report
from spanlite.replay.compare.formats import json_encoded
from spanlite.replay.compare.match import Matcher
from spanlite.replay.compare.sides import Came, OriginalSide, ReplayedSide
from spanlite.replay.compare.taken import Read
from spanlite.replay.compare.told import Told
from spanlite.replay.compare.topology import Topology

WINDOW_SPANS = 1 << 18
"""Spans of each side that are joined at a time, or as many as wait, if those are more."""


@dataclass(frozen=True)
class Replayed:
    """Where a replay went.

    Attributes:
        where: as people write it.
        kind: `file`, `topic` or `archive`.
        came: its messages.
    """

    where: str
    kind: str
    came: Iterable[Came]


def compare(
    told: Told,
    read: Read,
    replayed: Replayed,
    *,
    where: str,
    producers: Iterable[bytes] = (),
    window_spans: int = WINDOW_SPANS,
) -> Report:
    """Compares a replay with its original.

    Args:
        told: the run.
        read: begins to read the original.
        replayed: what came of it.
        where: the original, as people write it.
        producers: those of the original; needed for runs of several turns.
        window_spans: see WINDOW_SPANS.

    Raises:
        SpanliteError: a side cannot be read.
        ReplayError: nothing of the run is there, or none of it is of the original.
    """
    common = Common()
    ours, theirs = OriginalSide(read, told, common), ReplayedSide(replayed.came, told, common, producers)
    changes, topology = Changes(common, ours.heads, theirs.heads), Topology(common)

    def pairs(original: Columns, came: Columns) -> None:
        changes.add(original, came)
        topology.add(original, came)

    matcher = Matcher(pairs)
    _walk(matcher, topology, ours.columns(), theirs.columns(), window_spans)
    missing, foreign = matcher.left()
    if missing is not None:
        topology.missing(missing)
    if foreign is not None:
        topology.foreign(foreign)
    _check(matcher, theirs, told, replayed.where, where)
    report = Report(told.run, where, replayed.where, replayed.kind)
    report.figures.put(missing=_length(missing), foreign=_length(foreign), lost=sum(told.lost.values()))
    _add_counts(report, matcher, theirs)
    _add_changes(report, changes)
    _add_topology(report, topology)
    original_of: Int64 = np.array([changes.batch_of.get(at, -1) for at in range(len(theirs.heads))], dtype=np.int64)
    add_arrivals(report, told, ours, theirs, original_of)
    _add_sizes(report, theirs)
    _add_notes(report, matcher, theirs)
    return report


def _add_counts(report: Report, matcher: Matcher, theirs: ReplayedSide) -> None:
    counts = matcher.counts
    report.figures.put(
        spans_original=counts.original - counts.repeated,
        spans_replay=counts.replayed,
        batches_replay=len(theirs.heads),
        duplicate=counts.duplicate,
        other_batches=theirs.others,
        unreadable_messages=theirs.unreadable,
    )
    if report.kind == "archive":
        report.figures.lack("an archive does not tell how often messages came", "repeated_batches")
    else:
        report.figures.put(repeated_batches=theirs.repeated)


def _add_changes(report: Report, changes: Changes) -> None:
    report.figures.put(
        changed=changes.changed,
        timing_error_ns=max(changes.start.most, changes.duration.most),
        start_error_max_ns=changes.start.most,
        start_error_mean_ns=changes.start.mean,
        duration_error_max_ns=changes.duration.most,
        duration_error_mean_ns=changes.duration.mean,
        **{f"{CHANGED}{name}": spans for name, spans in changes.by_column.items()},
    )
    report.changed = dict(sorted(changes.by_column.items()))
    for name, errors in (("start", changes.start), ("duration", changes.duration)):
        if errors.differing:
            report.curves.errors[name] = errors.by_bits.tolist()


def _add_topology(report: Report, topology: Topology) -> None:
    ours, theirs, either, failed = topology.counts()
    report.figures.put(traces_original=ours, traces_replay=theirs, traces_failed=failed)
    if either:
        report.figures.put(topology=100 * (either - failed) / either)
    else:
        report.figures.lack("no span is of a trace", "topology")
    report.failed_traces = topology.first_failed()


def _walk(
    matcher: Matcher, topology: Topology, original: Iterator[Columns], replayed: Iterator[Columns], window_spans: int
) -> None:
    """Both sides to their ends, about as far each at any time."""
    sides: list[tuple[Iterator[Columns], Callable[[Columns], None], Callable[[Columns], None]]] = [
        (original, matcher.add_original, topology.saw_original),
        (replayed, matcher.add_replayed, topology.saw_replayed),
    ]
    target, done, ended = 0, [0, 0], [False, False]
    while not all(ended):
        target += max(window_spans, matcher.waiting)
        for at, (columns, add, saw) in enumerate(sides):
            while done[at] < target and not ended[at]:
                part = next(columns, None)
                if part is None:
                    ended[at] = True
                    break
                add(part)
                saw(part)
                done[at] += len(part["group"])
        matcher.join()


def _check(matcher: Matcher, theirs: ReplayedSide, told: Told, replay: str, original: str) -> None:
    if not theirs.heads:
        others = f"; its {theirs.others} batches are of others" if theirs.others else ""
        broken = f"; {theirs.unreadable} messages are no batches" if theirs.unreadable else ""
        raise ReplayError(f"{replay}: nothing of run {told.run} is there{others}{broken}; name where that run went")
    if not matcher.counts.original:
        raise ReplayError(f"{original}: no span is selected as the run selected; name the archive that it read")
    if not matcher.counts.matched:
        raise ReplayError(
            f"none of the {matcher.counts.replayed} spans of run {told.run} is in {original}; name the archive that "
            f"the run read, {told.archive}"
        )


def _length(columns: Columns | None) -> int:
    return 0 if columns is None else len(columns["group"])


def _add_sizes(report: Report, theirs: ReplayedSide) -> None:
    lines = [line for batch in theirs.sample for line in json_encoded(batch)]
    as_json = sum(map(len, lines)) / max(len(lines), 1)
    report.figures.put(json_bytes_per_span=as_json)
    sizes = [size for size in theirs.sizes if size is not None]
    if len(sizes) < len(theirs.sizes) or not sizes:
        report.figures.lack("an archive came over no wire", "bytes_per_span", "size_percent")
        return
    wire = sum(sizes) / sum(theirs.rows)
    report.figures.put(bytes_per_span=wire, size_percent=100 * wire / as_json)


def _add_notes(report: Report, matcher: Matcher, theirs: ReplayedSide) -> None:
    if matcher.counts.repeated:
        report.notes.append(f"the original holds {matcher.counts.repeated} spans more than once; each counts once")
    if theirs.others:
        report.notes.append(f"{theirs.others} batches do not say that they are of this run, and were set aside")
    if theirs.unreadable:
        report.notes.append(f"{theirs.unreadable} messages are no batches, the first: {theirs.first_unreadable}")

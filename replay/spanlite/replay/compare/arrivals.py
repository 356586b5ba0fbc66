"""When batches came, beside when they were to come: gaps, their distributions, rates, lateness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, UInt64
from spanlite.replay.pacing.schedule import Schedule
from spanlite.replay.pacing.settings import Pace

Floats = NDArray[np.float64]
_LEAST_BUCKETS = 10
_MOST_BUCKETS = 100_000
_BUCKETS_NS = (1_000_000_000, 100_000_000, 10_000_000, 1_000_000)
_MOST_NS = 2**63 - 1


@dataclass(frozen=True)
class Messages:
    """Messages that were to come or came, in that order, shape (m,) each.

    Attributes:
        batch: index of the original batch, -1 where none of its spans is known; see `by_turn` where there are several.
        times_ns: when.
        spans: how many each holds.
    """

    batch: Int64
    times_ns: Int64
    spans: Int64

    def __len__(self) -> int:
        return len(self.batch)

    def first(self, most: int) -> Messages:
        """The first ones."""
        return Messages(self.batch[:most], self.times_ns[:most], self.spans[:most])

    def sorted(self) -> Messages:
        """By time."""
        order = np.argsort(self.times_ns, kind="stable")
        return Messages(self.batch[order], self.times_ns[order], self.spans[order])

    @property
    def gaps_ns(self) -> Int64:
        """From each to the next, sorted."""
        gaps = np.diff(self.since_ns(np.sort(self.times_ns)))
        return np.sort(np.minimum(gaps, np.uint64(_MOST_NS)).view(np.int64))

    def since_ns(self, times_ns: Int64) -> UInt64:
        """Times since the first message."""
        return times_ns.view(np.uint64) - times_ns.min().view(np.uint64) if len(times_ns) else times_ns.view(np.uint64)

    @property
    def length_ns(self) -> int:
        """From the first to the last."""
        return int(self.since_ns(self.times_ns).max()) if len(self) else 0


def by_turn(batch: Int64, loops: Int64, batches: int) -> Int64:
    """Numbers that tell the batches of all turns apart, of which there are `batches` in each; -1 stays -1."""
    return np.where((batch >= 0) & (loops >= 0), loops * batches + batch, -1)


def due(pace: Pace, turn: Messages, weights: Int64 | None, *, batches: int) -> Messages:
    """Messages of all turns at the times at which a pace lets them go, from 0 on; batches are numbered `by_turn`.

    Args:
        pace: of so many turns.
        turn: the messages of one turn at their source times, in order.
        weights: of each against a limit; 1 if not given.
        batches: there are in a turn.
    """
    schedule, turns = Schedule(pace), pace.loops
    parts = []
    for loop in range(turns):
        parts.append(schedule.take(turn.times_ns, weights))
        if loop + 1 < turns and not schedule.end_of_pass():
            break
    times = np.concatenate(parts)
    batch, spans = (np.tile(values, turns)[: len(times)] for values in (turn.batch, turn.spans))
    loops = np.repeat(np.arange(turns, dtype=np.int64), len(turn))[: len(times)]
    return Messages(by_turn(batch, loops, batches), times, spans)


def ks(left: Int64, right: Int64) -> float:
    """Greatest distance between two empirical distributions, Kolmogorov and Smirnov's D; both sorted, not empty."""
    points = np.concatenate([left, right])
    ours = np.searchsorted(left, points, side="right") / len(left)
    theirs = np.searchsorted(right, points, side="right") / len(right)
    return float(np.abs(ours - theirs).max())


def w1(left: Int64, right: Int64) -> float:
    """Area between two empirical distributions, in their unit; both sorted, not empty."""
    points = np.sort(np.concatenate([left, right]))
    ours = np.searchsorted(left, points[:-1], side="right") / len(left)
    theirs = np.searchsorted(right, points[:-1], side="right") / len(right)
    return float((np.abs(ours - theirs) * np.diff(points)).sum())


def bucket_ns(*lengths_ns: int) -> int:
    """A second; less where the longest length holds less than ten of them, more where it holds too many."""
    longest = max(lengths_ns, default=0)
    width = next((width for width in _BUCKETS_NS if longest >= _LEAST_BUCKETS * width), _BUCKETS_NS[-1])
    return max(width, longest // _MOST_BUCKETS)


def rates(messages: Messages, width_ns: int, buckets: int) -> Floats:
    """Spans a second in each bucket since the first message."""
    since = messages.since_ns(messages.times_ns) // np.uint64(width_ns)
    return np.bincount(since.view(np.int64), weights=messages.spans, minlength=buckets)[:buckets] * 1e9 / width_ns


def correlation(left: Floats, right: Floats) -> float | None:
    """Pearson's r; None where one of them is constant or there are fewer than three values."""
    if len(left) < 3 or not left.std() or not right.std():
        return None
    return float(np.corrcoef(left, right)[0, 1])


def distances(expected: Messages, came: Messages) -> dict[str, float]:
    """How far gaps are from those that were to come, by the names of figures; empty where a side has none."""
    ours, theirs = expected.gaps_ns, came.gaps_ns
    if not len(ours) or not len(theirs):
        return {}
    return {
        "gap_p50_original_ns": float(np.quantile(ours, 0.5)),
        "gap_p50_replay_ns": float(np.quantile(theirs, 0.5)),
        "gap_p99_original_ns": float(np.quantile(ours, 0.99)),
        "gap_p99_replay_ns": float(np.quantile(theirs, 0.99)),
        "ks": ks(ours, theirs),
        "w1_ns": w1(ours, theirs),
    }


def lateness_ns(was_due: Messages, came: Messages) -> Int64:
    """By how much batches came after they were due, beyond the least late of them; of each its first message."""
    firsts = []
    for messages in (was_due, came):
        known = messages.batch >= 0
        ordered = Messages(messages.batch[known], messages.times_ns[known], messages.spans[known]).sorted()
        batch, at = np.unique(ordered.batch, return_index=True)
        firsts.append((batch, ordered.times_ns[at]))
    shared, ours, theirs = np.intersect1d(firsts[0][0], firsts[1][0], return_indices=True)
    late = firsts[1][1][theirs] - firsts[0][1][ours]
    return np.sort(late - late.min()) if len(shared) else np.zeros(0, dtype=np.int64)


def out_of_order(places: Int64, partitions: Int64) -> int:
    """Messages that come after one of the same partition that was to come later; -1 = unknown, and left out."""
    found = 0
    for partition in np.unique(partitions).tolist():
        own = places[(partitions == partition) & (places >= 0)]
        if len(own):
            found += int((own < np.maximum.accumulate(own)).sum())
    return found


def steps(values: Int64, most: int) -> Iterator[tuple[float, float]]:
    """Points (value, share of values up to it) of an empirical distribution, about `most`; sorted, not empty."""
    for at in np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).astype(np.int64)).tolist():
        yield float(values[at]), (at + 1) / len(values)

"""What one series has counted: a cumulative point that only ever grows, over failures and new beginnings.

Within an epoch each point counts a set of spans. While all goes well the sets grow; a job that goes back to its
checkpoint sends points of earlier sets again, and from there the sets grow in another order, until they have caught up.
Points of two such sets are told apart by what they count, not by their time: one that counts at least as much in every
sum and every bucket may replace the other, any other changes nothing. Since the job's state is exactly-once, a point
that does comes in any case.
"""

from __future__ import annotations

import numpy as np

from spanlite.contract.points import Point
from spanlite.exporters.totals import add_earlier

NEWEST, OLDER, RESTARTED = "newest", "older", "restarted"
REFUSED = "refused"
"""Of points whose series is not held at all."""


class History:
    """A held point, and the sum of what was held before counting began anew.

    Attributes:
        heard_ns: latest window end of a point that was offered, of the held epoch or a later one; Unix nanoseconds.
    """

    __slots__ = ("_earlier", "_held", "heard_ns")

    def __init__(self, first: Point) -> None:
        self._held = first
        self._earlier: Point | None = None
        self.heard_ns = first.window_end_ns

    @property
    def whole(self) -> Point:
        """All that the series has counted; no number in it ever falls."""
        return add_earlier(self._earlier, self._held) if self._earlier else self._held

    def offer(self, point: Point) -> str:
        """Holds the point if it tells of more than the held one; returns NEWEST, OLDER or RESTARTED."""
        if point.epoch < self._held.epoch:
            return OLDER
        self.heard_ns = max(self.heard_ns, point.window_end_ns)
        if point.epoch > self._held.epoch:
            self._earlier = self.whole
            self._held = point
            return RESTARTED
        if point.count == self._held.count or not dominates(point, self._held):
            return OLDER
        self._held = point
        return NEWEST


def dominates(later: Point, held: Point) -> bool:
    """Whether `later` can be of a set of spans that holds all of `held`'s: no sum and no bucket is smaller."""
    if (
        later.count < held.count
        or later.spans < held.spans
        or later.sum_ns < held.sum_ns
        or later.warp_ns < held.warp_ns
        or later.bytes < held.bytes
    ):
        return False
    if held.count and (later.max_ns < held.max_ns or later.min_ns > held.min_ns):
        return False
    index, count = later.bucket_index, later.bucket_count
    if not np.array_equal(index, held.bucket_index):
        at = np.searchsorted(index, held.bucket_index)
        if len(at) and (at[-1] == len(index) or not np.array_equal(index[at], held.bucket_index)):
            return False
        count = count[at]
    return bool((count >= held.bucket_count).all())

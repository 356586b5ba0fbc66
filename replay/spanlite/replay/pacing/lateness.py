"""How late items were: counts by exponential bucket, and what is exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.contract.histogram import LOWEST_INDEX, bounds_ns, bucket_index, quantile_ns


class Lateness:
    """Nanoseconds from due to emitted; quantiles are at most 1.09 % off, count, sum and maximum exact.

    Attributes:
        count: items.
        sum_ns: of all.
        max_ns: 0 without items.
    """

    def __init__(self) -> None:
        bucket_index(np.ones(1, np.int64))  # makes its tables: 20 ms, once, that would make items late in mid-replay
        self._counts = np.zeros(len(bounds_ns()) + 1, np.int64)
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    def add(self, late_ns: Sequence[int]) -> None:
        """Counts some items, each 0 or more late."""
        if not late_ns:
            return
        self._counts += np.bincount(
            bucket_index(np.array(late_ns, np.int64)) - LOWEST_INDEX, minlength=len(self._counts)
        )
        self.count += len(late_ns)
        self.sum_ns += sum(late_ns)
        self.max_ns = max(self.max_ns, *late_ns)

    def merge(self, other: Lateness) -> None:
        """Adds the items of another."""
        self._counts += other._counts
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    @property
    def mean_ns(self) -> float:
        """The bias; 0 without items."""
        return self.sum_ns / self.count if self.count else 0.0

    def quantile_ns(self, q: float) -> float:
        """Quantile, at most the maximum; 0 without items."""
        index, counts = self.buckets()
        return min(quantile_ns(index.astype(np.int32), counts, q), float(self.max_ns)) if self.count else 0.0

    def buckets(self) -> tuple[Int64, Int64]:
        """Indexes (spanlite.contract.histogram) and counts of the buckets that hold something."""
        held = np.flatnonzero(self._counts)
        return held + LOWEST_INDEX, self._counts[held]

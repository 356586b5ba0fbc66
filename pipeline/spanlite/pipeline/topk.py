"""Top-K: the kernels that take the GPU's time keep their series, the rest is summed up as `other`, totals kept.

Observations of custom metrics have nothing to do with it: they take no kernel's place and are never summed up, since a
sum over what people counted, or a newest value of several gauges, would mean nothing. Agents bound their series.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from spanlite.contract.columns import OBSERVATIONS, Int32
from spanlite.contract.points import OTHER, Launch, Series
from spanlite.pipeline.growing import grown
from spanlite.pipeline.partial import Partial, merge
from spanlite.pipeline.series import SeriesRegistry

_UNDECIDED = -1


class TopK:
    """Keeps at most `k` kernels per GPU; what kept a series once keeps it, so that no cumulative series stops short.

    Admission is by GPU time over the windows that close together; from then on a new kernel gets a series only while
    fewer than `k` have one. So what becomes of a series is decided once. `folded` counts the kernels without a series
    of their own, per GPU.
    """

    def __init__(self, k: int, registry: SeriesRegistry) -> None:
        self.k = k
        self._registry = registry
        self._admitted: dict[str, set[str]] = defaultdict(set)
        self._rest: set[tuple[str, str]] = set()
        self._place: Int32 = np.zeros(0, dtype=np.int32)

    @property
    def folded(self) -> int:
        return len(self._rest)

    def restore(self, kept: Iterable[Series]) -> None:
        """Admits the kernels of series that exist already."""
        for series in kept:
            if series.kernel != OTHER and series.kind not in OBSERVATIONS:
                self._admitted[series.gpu_uuid].add(series.kernel)
        self._place[:] = _UNDECIDED

    def apply(self, partial: Partial) -> Partial:
        """The partial with every series that is not admitted merged into its GPU's `other`."""
        renamed = self.rename(partial)
        return merge([renamed]) if renamed is not partial else partial

    def rename(self, partial: Partial) -> Partial:
        """As `apply`, but a window's `other` may have many rows."""
        self._place = grown(self._place, len(self._registry.series), _UNDECIDED)
        new = self._place[partial.series] == _UNDECIDED
        if new.any():
            self._admit(partial.series[new], partial.sum_ns[new].tolist())
            for number in np.unique(partial.series[new]).tolist():
                self._place[number] = self._kept(number)
        renamed = self._place[partial.series]
        return replace(partial, series=renamed) if (renamed != partial.series).any() else partial

    def _kept(self, number: int) -> int:
        """The series itself, or the one that takes its place."""
        series = self._registry.series[number]
        if series.kind in OBSERVATIONS or series.kernel in self._admitted[series.gpu_uuid]:
            return number
        launch = Launch(max_warps=series.launch.max_warps, copy_kind=series.launch.copy_kind)
        return self._registry.number(series._replace(kernel=OTHER, name="", launch=launch))

    def _admit(self, numbers: Int32, sums_ns: list[int]) -> None:
        """Decides on the kernels of series on which nothing was decided."""
        time_ns: dict[tuple[str, str], int] = defaultdict(int)
        for number, sum_ns in zip(numbers.tolist(), sums_ns, strict=True):
            series = self._registry.series[number]
            if series.kind in OBSERVATIONS:
                continue
            time_ns[series.gpu_uuid, series.kernel] += sum_ns
        for gpu, kernel in sorted(time_ns, key=lambda key: (-time_ns[key], key)):
            admitted = self._admitted[gpu]
            if kernel in admitted:
                continue
            if len(admitted) < self.k:
                admitted.add(kernel)
            else:
                self._rest.add((gpu, kernel))

"""Top-K: the kernels that take the GPU's time keep their series, the rest is summed up as `other`, totals kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from spanlite.contract.points import OTHER, Launch, Series
from spanlite.pipeline.partial import Partial, merge
from spanlite.pipeline.series import SeriesRegistry


class TopK:
    """Keeps at most `k` kernels per GPU; what kept a series once keeps it, so that no cumulative series stops short.

    Admission is by GPU time over the windows that close together; from then on a new kernel gets a series only while
    fewer than `k` have one. `folded` counts the kernels without a series of their own, per GPU.
    """

    def __init__(self, k: int, registry: SeriesRegistry) -> None:
        self.k = k
        self._registry = registry
        self._admitted: dict[str, set[str]] = defaultdict(set)
        self._rest: set[tuple[str, str]] = set()

    @property
    def folded(self) -> int:
        return len(self._rest)

    def restore(self, kept: Iterable[Series]) -> None:
        """Admits the kernels of series that exist already."""
        for series in kept:
            if series.kernel != OTHER:
                self._admitted[series.gpu_uuid].add(series.kernel)

    def apply(self, partial: Partial) -> Partial:
        """The partial with every series that is not admitted merged into its GPU's `other`."""
        self._admit(partial)
        distinct, place = np.unique(partial.series, return_inverse=True)
        renamed = np.array([self._kept(number) for number in distinct.tolist()], dtype=np.int32)[place]
        return merge([replace(partial, series=renamed)]) if (renamed != partial.series).any() else partial

    def _kept(self, number: int) -> int:
        """The series itself, or the one that takes its place."""
        series = self._registry.series[number]
        if series.kernel in self._admitted[series.gpu_uuid]:
            return number
        launch = Launch(max_warps=series.launch.max_warps, copy_kind=series.launch.copy_kind)
        return self._registry.number(series._replace(kernel=OTHER, name="", launch=launch))

    def _admit(self, partial: Partial) -> None:
        time_ns: dict[tuple[str, str], int] = defaultdict(int)
        for number, sum_ns in zip(partial.series.tolist(), partial.sum_ns.tolist(), strict=True):
            series = self._registry.series[number]
            time_ns[series.gpu_uuid, series.kernel] += sum_ns
        for gpu, kernel in sorted(time_ns, key=lambda key: (-time_ns[key], key)):
            admitted = self._admitted[gpu]
            if kernel in admitted:
                continue
            if len(admitted) < self.k:
                admitted.add(kernel)
            else:
                self._rest.add((gpu, kernel))

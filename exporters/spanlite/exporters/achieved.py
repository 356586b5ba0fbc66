"""What node agents measured with hardware counters, as families of the catalogue: of GPUs, and of kernels.

A kernel's achieved occupancy is one sum by another, both of whole nanoseconds: however points were merged, folded or
split over agents and restarts, it is the mean of all samples weighted by the time in which SMs were active.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spanlite.contract import catalogue
from spanlite.contract.achieved import KERNEL, KERNEL_ACTIVE, KERNEL_WARPS, MARK, SHOWN
from spanlite.contract.catalogue import MetricSpec
from spanlite.contract.customs import parse_series, write_series
from spanlite.contract.points import Point, Series
from spanlite.exporters.admission import Admission, HotKey
from spanlite.exporters.customs import custom_labels, custom_value
from spanlite.exporters.labels import label_value

Found = tuple[MetricSpec, list[tuple[dict[str, str], float]]]
"""A family: its entry, and labels and value of each sample."""


class AchievedAdmission:
    """Which kernels are shown by their name: the first `cap`, for good; the others are summed up as `other`."""

    def __init__(self, cap: int) -> None:
        self._kernels = Admission(cap)

    @property
    def capped(self) -> int:
        """Kernels folded so far."""
        return self._kernels.capped

    def place(self, series: Series) -> HotKey | None:
        """The label set under which a series is shown; None where no agent's counters made it."""
        if series.stage != MARK:
            return None
        try:
            name, labels = parse_series(series.name)
        except ValueError:
            return None
        if name not in SHOWN or SHOWN[name].kind != series.kind or not labels.keys() <= {KERNEL}:
            return None
        uuid = label_value(series.gpu_uuid)
        kept = {}
        if KERNEL in labels:
            kept[KERNEL] = self._kernels.place(HotKey(uuid, labels[KERNEL], "", "", "")).what
        return HotKey(uuid, write_series(name, kept), "", "", "")


def is_achieved(key: HotKey) -> bool:
    """Whether a label set of an observation is one of those; no other's begins with such a name."""
    return key.what.partition("{")[0] in SHOWN


def achieved(sets: Mapping[HotKey, Sequence[Point]]) -> Iterator[Found]:
    """The families, of the points of each label set."""
    found: dict[str, dict[HotKey, tuple[dict[str, str], float]]] = {name: {} for name in SHOWN}
    for key, points in sets.items():
        name, labels = custom_labels(key)
        value = custom_value(SHOWN[name].kind, points)
        if isinstance(value, (int, float)):
            place = HotKey(key.gpu_uuid, labels.get(KERNEL, ""), "", "", "")
            found[name][place] = (labels, value)
    for name, samples in found.items():
        _, spec, divisor = SHOWN[name]
        yield spec, [(labels, value / divisor if divisor > 1 else value) for labels, value in samples.values()]
    active, warps = found[KERNEL_ACTIVE], found[KERNEL_WARPS]
    known = {place: time for place, (_, time) in active.items() if time and place in warps}
    yield catalogue.KERNEL_ACHIEVED, [(warps[place][0], warps[place][1] / time) for place, time in known.items()]

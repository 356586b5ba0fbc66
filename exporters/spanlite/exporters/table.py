"""The newest cumulative point of each series: all that the exporter knows of GPU work.

Points are cumulative, so the table can be lost and filled again from any store of newest points without a counter
going back, and a point that is put twice, or late, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from spanlite.contract.batch import Gpu
from spanlite.contract.columns import Kind
from spanlite.contract.errors import ExporterError
from spanlite.contract.points import OTHER, Point, Series
from spanlite.exporters.admission import Admission, HotKey
from spanlite.exporters.labels import label_value
from spanlite.exporters.totals import add_earlier

Counters = Mapping[str, Iterable[tuple[Mapping[str, str], float]]]
"""Own metrics: name in the catalogue -> (labels, value) pairs."""

# CUpti_ActivityMemcpyKind of cupti_activity.h, as directions: h host, d device, a array, p peer.
_DIRECTIONS = ("unknown", "h2d", "d2h", "h2a", "a2h", "a2a", "a2d", "d2a", "d2d", "h2h", "p2p")


class Row(NamedTuple):
    """A held point and the label sets under which its family and its stage are counted."""

    key: HotKey
    stage: HotKey
    point: Point


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table at one moment, for the exposition to work on without a lock."""

    rows: list[Row]
    names: Mapping[str, str]
    gpus: Mapping[str, tuple[Gpu, str]]
    counters: Counters
    capped: Mapping[str, int]
    offered: Mapping[str, int]
    scrapes: Mapping[str, int]
    series: int


class PointTable:
    """Newest cumulative point per series; any thread may put, any may take a snapshot."""

    def __init__(self, *, series_cap: int = 2000) -> None:
        """Args: series_cap: label sets per family that get their own series; see Admission for the rest."""
        self._lock = Lock()
        self._newest: dict[Series, Point] = {}
        self._earlier: dict[Series, Point] = {}
        self._keys: dict[Series, tuple[HotKey, HotKey]] = {}
        self._admissions = {
            Kind.KERNEL: Admission(series_cap),
            Kind.MEMCPY: Admission(series_cap, folded=None),
            Kind.MEMSET: Admission(series_cap, folded=None),
        }
        self._stages = Admission(series_cap)
        self._names: dict[str, str] = {}
        self._gpus: dict[str, tuple[Gpu, str]] = {}
        self._offered = {"newest": 0, "older": 0, "restarted": 0}
        self._scrapes: dict[str, int] = {}
        self._counters: Callable[[], Counters] = dict
        self._loaded = False

    @property
    def loaded(self) -> bool:
        """Whether anything was put yet, be it no points at all: a scrape before that would tell of no work."""
        return self._loaded

    def put(self, points: Iterable[Point]) -> None:
        """Takes cumulative points; one that is older than the held one of its series is ignored.

        Newcomers are admitted in order of GPU time. Ranges are no GPU work and are passed over.

        Raises:
            ExporterError: a point is not cumulative; nothing was taken.
        """
        batch = [p for p in points if p.series.kind in self._admissions]
        for point in batch:
            if not point.cumulative:
                raise ExporterError(
                    f"the point of kernel {point.series.kernel[:80]!r} counts one window; "
                    "the table takes cumulative points, so hand on the totals since the series began"
                )
        with self._lock:
            newcomers = [p for p in batch if p.series not in self._keys]
            for point in sorted(newcomers, key=lambda p: p.sum_ns, reverse=True):
                self._admit(point.series)
            for point in batch:
                self._offered[self._put(point)] += 1
            self._loaded = True

    def gpu_info(self, gpus: Iterable[Gpu], host: str = "") -> None:
        """Tells which GPUs there are; a GPU told again replaces what was known of it."""
        with self._lock:
            self._gpus.update({gpu.uuid: (gpu, host) for gpu in gpus})

    def set_counters(self, counters: Callable[[], Counters]) -> None:
        """Sets what is asked at each scrape for spanlite's own metrics; it must be quick and callable by any thread."""
        self._counters = counters

    def count_scrape(self, word: str) -> None:
        """Counts an answer in the format called `word`."""
        with self._lock:
            self._scrapes[word] = self._scrapes.get(word, 0) + 1

    def snapshot(self) -> Snapshot:
        """The table as it is now; the counters are asked outside the lock."""
        counters = self._counters()
        with self._lock:
            capped = {kind.name.lower(): admission.capped for kind, admission in self._admissions.items()}
            return Snapshot(
                rows=[Row(*self._keys[s], self._whole(s, p)) for s, p in self._newest.items()],
                names=dict(self._names),
                gpus=dict(self._gpus),
                counters=counters,
                capped={**capped, "stage": self._stages.capped},
                offered=dict(self._offered),
                scrapes=dict(self._scrapes),
                series=len(self._newest),
            )

    def _whole(self, series: Series, newest: Point) -> Point:
        earlier = self._earlier.get(series)
        return add_earlier(earlier, newest) if earlier else newest

    def _put(self, point: Point) -> str:
        """Holds the point if it is the newest; returns the outcome."""
        held = self._newest.get(point.series)
        outcome = "newest"
        if held is not None:
            grown = point.count - held.count
            if point.window_end_ns < held.window_end_ns or (point.window_end_ns == held.window_end_ns and grown <= 0):
                return "older"
            if grown < 0:
                self._earlier[point.series] = self._whole(point.series, held)
                outcome = "restarted"
        self._newest[point.series] = point
        return outcome

    def _admit(self, series: Series) -> None:
        """Decides once under which label sets a series is counted."""
        if series in self._keys:
            return
        kind = Kind(series.kind)
        uuid, *workload = (label_value(v) for v in (series.gpu_uuid, series.namespace, series.pod, series.container))
        what = {Kind.KERNEL: label_value(series.kernel), Kind.MEMCPY: direction(series.launch.copy_kind)}.get(kind, "")
        key = self._admissions[kind].place(HotKey(uuid, what, *workload))
        stage = HotKey(uuid, label_value(series.stage), *workload)
        if kind is Kind.KERNEL:
            stage = self._stages.place(stage)
            if series.name and key.what != OTHER:
                self._names.setdefault(key.what, label_value(series.name))
        self._keys[series] = key, stage


def direction(copy_kind: int) -> str:
    """Direction of a copy as a label, by CUPTI's number of its kind."""
    return _DIRECTIONS[copy_kind] if 0 <= copy_kind < len(_DIRECTIONS) else _DIRECTIONS[0]

"""What every series has counted: all that the exporter knows of GPU work.

Points are cumulative, so the table can be lost and filled again from a topic that keeps the last one of each series,
and a point that is put twice, late, or out of a past that a failed job went back to, changes nothing.

Several series add to one label set. A series that is not heard of for `expire_ns` therefore keeps counting in it, and
the label set is shown for as long as one of its series is heard of: what is shown never falls, it only goes. A series
that is removed leaves what it had counted behind, likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from spanlite.contract.batch import Gpu
from spanlite.contract.columns import OBSERVATIONS, Kind, Limiter
from spanlite.contract.errors import ExporterError
from spanlite.contract.point_codec import series_key
from spanlite.contract.points import OTHER, Point, Series
from spanlite.exporters.achieved import AchievedAdmission
from spanlite.exporters.admission import Admission, HotKey
from spanlite.exporters.customs import CustomAdmission
from spanlite.exporters.history import NEWEST, OLDER, REFUSED, RESTARTED, History
from spanlite.exporters.labels import direction, label_value
from spanlite.exporters.totals import add_earlier
from spanlite.runtime.clock import Clock, SystemClock

Counters = Mapping[str, Iterable[tuple[Mapping[str, str], float]]]
"""Own metrics: name in the catalogue -> (labels, value) pairs."""

DAY_NS = 86_400 * 10**9

_LIMITERS = {int(limiter): limiter.name.lower() for limiter in Limiter}


class Row(NamedTuple):
    """What a series has counted, the label sets under which its family and its stage are, and whether it is fresh.

    A label set without a fresh row is not shown.
    """

    key: HotKey
    stage: HotKey
    point: Point
    fresh: bool

    @property
    def limited(self) -> tuple[str, str, str]:
        """The label set of its limiter's time: GPU, kernel, limiter."""
        return self.key.gpu_uuid, self.key.what, _LIMITERS.get(self.point.series.launch.limiter, "unknown")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The table at one moment, for the exposition to work on without a lock.

    `rows` are in the order of their labels, so that tables of equal content give equal expositions.
    """

    rows: list[Row]
    names: Mapping[str, str]
    gpus: Mapping[str, tuple[Gpu, str]]
    counters: Counters
    capped: Mapping[str, int]
    refused: Mapping[str, int]
    offered: Mapping[str, int]
    dropped: Mapping[str, int]
    scrapes: Mapping[str, int]
    series: int
    last_event_ns: int | None


@dataclass(slots=True)
class _Entry:
    """A series of the table."""

    history: History
    key: HotKey
    stage: HotKey
    expired: bool = False


_Group = tuple[int, HotKey, HotKey, int, int]
"""What removed series have in common that are kept as one: kind, label sets, limiter, maximum warps."""


class PointTable:
    """Cumulative points by series; any thread may put and remove, any may take a snapshot."""

    def __init__(self, *, series_cap: int = 2000, expire_ns: int = DAY_NS, clock: Clock | None = None) -> None:
        """Creates an empty table.

        Args:
            series_cap: label sets per family that get their own series; see Admission for the rest.
            expire_ns: a series whose last window ended this long before the newest one of all is no longer fresh. It is
                the spans' time, so that a replay or a halt expires nothing, and equal tables say the same.
            clock: windows that end after its time count as ending now, or one wrong point would expire all others.
        """
        self._lock = Lock()
        self._expire_ns = expire_ns
        self._clock = clock or SystemClock()
        self._entries: dict[bytes, _Entry] = {}
        self._removed: dict[_Group, Point] = {}
        self._admissions = {
            Kind.KERNEL: Admission(series_cap),
            Kind.MEMCPY: Admission(series_cap, folded=None),
            Kind.MEMSET: Admission(series_cap, folded=None),
        }
        self._stages = Admission(series_cap)
        self._customs = CustomAdmission(series_cap)
        self._achieved = AchievedAdmission(series_cap)
        self._names: dict[str, str] = {}
        self._gpus: dict[str, tuple[Gpu, str]] = {}
        self._offered = {NEWEST: 0, OLDER: 0, RESTARTED: 0, REFUSED: 0}
        self._dropped = {"expired": 0, "removed": 0}
        self._scrapes: dict[str, int] = {}
        self._counters: Callable[[], Counters] = dict
        self._last_event_ns: int | None = None
        self._loaded = False

    @property
    def loaded(self) -> bool:
        """Whether anything was put yet, be it no points at all: a scrape before that would tell of no work."""
        return self._loaded

    def put(self, points: Iterable[Point]) -> None:
        """Takes cumulative points; one that tells of no more than the held one of its series is ignored.

        Newcomers are admitted in order of GPU time. Ranges are no GPU work and are passed over.

        Raises:
            ExporterError: a point is not cumulative; nothing was taken.
        """
        batch = [(series_key(p.series), p) for p in points if p.series.kind != Kind.RANGE]
        for _, point in batch:
            if not point.cumulative:
                raise ExporterError(
                    f"the point of kernel {point.series.kernel[:80]!r} counts one window; "
                    "the table takes cumulative points, so hand on the totals since the series began"
                )
        with self._lock:
            newcomers = [pair for pair in batch if pair[0] not in self._entries]
            places: dict[bytes, tuple[HotKey, HotKey] | None] = {}
            for key, point in sorted(newcomers, key=lambda pair: pair[1].sum_ns, reverse=True):
                if key not in places:
                    places[key] = self._admit(key, point.series)
            for key, point in batch:
                entry, place = self._entries.get(key), places.get(key)
                if entry is None and place is None:
                    self._offered[REFUSED] += 1
                elif entry is None and place is not None:
                    self._entries[key] = _Entry(History(point), *place)
                    self._offered[NEWEST] += 1
                elif entry is not None:
                    self._offered[entry.history.offer(point)] += 1
            known = [] if self._last_event_ns is None else [self._last_event_ns]
            self._last_event_ns = max([*known, *(point.window_end_ns for _, point in batch)], default=None)
            self._loaded = True

    def remove(self, keys: Iterable[bytes]) -> None:
        """Ends series by their `series_key`; a label set that has no other goes at once. Unknown ones are passed over.

        A series that comes again counts from zero: it adds to what is left of it in the label sets it shares.
        """
        with self._lock:
            for key in keys:
                self._customs.forget(key)
                entry = self._entries.pop(key, None)
                if entry is not None:
                    self._dropped["removed"] += 1
                    point = entry.history.whole
                    launch = point.series.launch
                    group = (point.series.kind, entry.key, entry.stage, launch.limiter, launch.max_warps)
                    left = self._removed.get(group)
                    self._removed[group] = add_earlier(left, point) if left else point

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
            rows = self._rows()
            shown = {row.key.what for row in rows if row.fresh and row.point.series.kind == Kind.KERNEL}
            capped = {kind.name.lower(): admission.capped for kind, admission in self._admissions.items()}
            return Snapshot(
                rows=rows,
                names={kernel: self._names[kernel] for kernel in sorted(shown & self._names.keys())},
                gpus=dict(self._gpus),
                counters=counters,
                capped={**capped, "stage": self._stages.capped, "achieved": self._achieved.capped},
                refused=dict(self._customs.refused),
                offered=dict(self._offered),
                dropped=dict(self._dropped),
                scrapes=dict(self._scrapes),
                series=sum(row.fresh for row in rows),
                last_event_ns=self._last_event_ns,
            )

    def _rows(self) -> list[Row]:
        """Rows of all series in order, and of what removed ones have left in label sets that are still shown."""
        horizon_ns = min(self._last_event_ns or 0, self._clock.unix_ns()) - self._expire_ns
        keyed = []
        for key, entry in self._entries.items():
            fresh = entry.history.heard_ns >= horizon_ns
            self._dropped["expired"] += not (fresh or entry.expired)
            entry.expired = not fresh
            keyed.append((entry.key, entry.stage, key, Row(entry.key, entry.stage, entry.history.whole, fresh)))
        rows = [row for *_, row in sorted(keyed, key=lambda each: each[:3])]
        shown: set[tuple[object, ...]] = {shared for row in rows if row.fresh for shared in _label_sets(row)}
        for group, point in list(self._removed.items()):
            row = Row(group[1], group[2], point, fresh=False)
            if shown.isdisjoint(_label_sets(row)):
                del self._removed[group]
            else:
                rows.append(row)
        return rows

    def _admit(self, key_bytes: bytes, series: Series) -> tuple[HotKey, HotKey] | None:
        """Decides once under which label sets a series is counted: its family's and its stage's; None for none."""
        kind = Kind(series.kind)
        if kind in OBSERVATIONS:
            custom = self._achieved.place(series) or self._customs.place(key_bytes, series)
            return custom and (custom, custom)
        uuid, *workload = (label_value(v) for v in (series.gpu_uuid, series.namespace, series.pod, series.container))
        what = {Kind.KERNEL: label_value(series.kernel), Kind.MEMCPY: direction(series.launch.copy_kind)}.get(kind, "")
        key = self._admissions[kind].place(HotKey(uuid, what, *workload))
        stage = HotKey(uuid, label_value(series.stage), *workload)
        if kind is Kind.KERNEL:
            stage = self._stages.place(stage)
            if series.name and key.what != OTHER:
                self._names.setdefault(key.what, label_value(series.name))
        return key, stage


def _label_sets(row: Row) -> tuple[tuple[object, ...], ...]:
    """The label sets that a row adds to, told apart by family."""
    kind = row.point.series.kind
    own = (kind, row.key)
    return (own, ("stage", row.stage), ("limiter", *row.limited)) if kind == Kind.KERNEL else (own,)

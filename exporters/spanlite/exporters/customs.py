"""Custom metrics as families of their own: names and labels that every exposition takes, whatever a program chose.

`rope.cosine_compute_ms{layer="3"}` of timings becomes `spanlite_custom_rope_cosine_compute_seconds`, a histogram; a
counter's name ends in `_total`; a gauge's stays. A family keeps the kind that its name had first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from spanlite.contract.catalogue import MetricSpec, MetricType
from spanlite.contract.columns import COUNTER, GAUGE, TIMING
from spanlite.contract.customs import LABEL_CHARS, parse_series, write_series
from spanlite.contract.points import Point, Series
from spanlite.exporters.admission import HotKey
from spanlite.exporters.labels import label_value
from spanlite.exporters.totals import Total, total

PREFIX = "spanlite_custom_"
MOST_FAMILIES = 200
UNITS = ("_ms", "_us", "_ns", "_s", "_milliseconds", "_microseconds", "_nanoseconds", "_seconds")
_OWN = ("UUID", "hostname", "namespace", "pod", "container")
_RESERVED = frozenset((*map(str.lower, _OWN), "le", "quantile", "job", "instance"))
"""Labels that say where a series is from, or that formats and scrapers give."""
_ENDINGS = {
    TIMING: ("", "_bucket", "_count", "_sum", "_created"),
    COUNTER: ("", "_total", "_created"),
    GAUGE: ("",),
}
"""What a family's samples are called, by kind, after its bare name."""
_TELLING = ("_total", "_info", "_bucket", "_count", "_sum", "_created")
_UNFIT = re.compile("[^A-Za-z0-9_]")
_TYPES = {TIMING: MetricType.HISTOGRAM, COUNTER: MetricType.COUNTER, GAUGE: MetricType.GAUGE}
_WORDS = {TIMING: "Timings", COUNTER: "Sum of the increments", GAUGE: "Newest value"}


class CustomAdmission:
    """Which custom series are shown: the first `cap` label sets of each of the first MOST_FAMILIES families, for good.

    What is refused is not folded into anything: a sum of what people counted under other labels would mean nothing.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._families: dict[str, tuple[int, str]] = {}
        self._label_sets: dict[str, set[HotKey]] = {}
        self._taken: set[str] = set()
        self._refused: dict[bytes, str] = {}
        self.refused: Counter[str] = Counter()
        """Series refused so far, by reason."""

    def place(self, key: bytes, series: Series) -> HotKey | None:
        """The label set under which a series is shown; `what` is its family and labels as one text.

        Args:
            key: the series' `series_key`, by which a refusal is counted once.
        """
        if key in self._refused:
            return None
        made = self._place(series)
        if isinstance(made, HotKey):
            return made
        self.refused[made] += 1
        self._refused[key] = made
        return None

    def forget(self, key: bytes) -> None:
        """A series has ended."""
        self._refused.pop(key, None)

    def _place(self, series: Series) -> HotKey | str:
        """The label set, or why there is none."""
        try:
            name, given = parse_series(series.name)
        except ValueError:
            return "name"
        labels = {sanitised_label(label): value for label, value in given.items()}
        if len(labels) < len(given):
            return "labels"
        family = family_name(name, series.kind)
        refused = self._admit(family, name, series.kind)
        return refused or self._label_set(family, labels, series)

    def _admit(self, family: str, name: str, kind: int) -> str:
        """Why a metric has no family, empty where it has."""
        # The metric's own name decides as well: `a.b` and `a_b` are two metrics, whatever becomes of their names.
        if family in self._families:
            return "" if self._families[family] == (kind, name) else "collision"
        bare = family.removesuffix("_total") if kind == COUNTER else family
        samples = [f"{bare}{ending}" for ending in _ENDINGS[kind]]
        if not self._taken.isdisjoint(samples):
            return "collision"
        if len(self._families) >= MOST_FAMILIES:
            return "cap"
        self._families[family] = (kind, name)
        self._taken.update(samples)
        return ""

    def _label_set(self, family: str, labels: dict[str, str], series: Series) -> HotKey | str:
        if series.host and not series.gpu_uuid:
            labels["hostname"] = series.host
        values = {label: label_value(value) for label, value in labels.items() if value}
        place = (label_value(text) for text in (series.namespace, series.pod, series.container))
        key = HotKey(label_value(series.gpu_uuid), write_series(family, values), *place)
        shown = self._label_sets.setdefault(family, set())
        if key not in shown and len(shown) >= self._cap:
            return "cap"
        shown.add(key)
        return key


def family_name(name: str, kind: int) -> str:
    """The family of a metric, with the ending that its kind has in Prometheus."""
    bare = PREFIX + _UNFIT.sub("_", name)
    if kind == TIMING:
        unit = next((unit for unit in UNITS if bare.endswith(unit)), "")
        return f"{bare.removesuffix(unit)}_seconds"
    if kind == COUNTER:
        return f"{bare.removesuffix('_total')}_total"
    return f"{bare}_value" if bare.endswith(_TELLING) else bare


def sanitised_label(label: str) -> str:
    """A label's name; those with a meaning of their own are led by `user_`."""
    made = _UNFIT.sub("_", label)
    return f"user_{made}"[:LABEL_CHARS] if made.lower() in _RESERVED or made.startswith("__") else made


def custom_labels(key: HotKey) -> tuple[str, dict[str, str]]:
    """Family and labels of a label set."""
    family, labels = _read(key.what)
    own = zip(("UUID", "namespace", "pod", "container"), (key.gpu_uuid, *key[2:]), strict=True)
    return family, {**labels, **{label: value for label, value in own if value}}


@lru_cache(maxsize=1024)
def custom_spec(family: str, kind: int) -> MetricSpec:
    """A family as a catalogue entry."""
    unit = "seconds" if kind == TIMING else ""
    return MetricSpec(family, _TYPES[kind], unit, (), f"{_WORDS[kind]} that programs have observed.", "custom")


def custom_value(kind: int, points: Sequence[Point]) -> float | Total | None:
    """What the series of one label set have observed together; None where it is not told."""
    if kind == TIMING:
        return total(points)
    if kind == COUNTER:
        return sum(point.bytes for point in points)
    told = [point for point in points if point.exemplar is not None]
    newest = max(told, key=lambda point: point.exemplar.start_ns if point.exemplar else 0, default=None)
    return None if newest is None else newest.value


@lru_cache(maxsize=8192)
def _read(what: str) -> tuple[str, Mapping[str, str]]:
    return parse_series(what, name_chars=len(what), most_labels=len(what))

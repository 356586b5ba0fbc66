"""Metric families from a snapshot of the table: what every exposition format is written from."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from spanlite.contract import catalogue
from spanlite.contract.batch import Gpu
from spanlite.contract.catalogue import CATALOGUE, MetricSpec
from spanlite.contract.columns import OBSERVATIONS, Kind
from spanlite.contract.errors import ExporterError
from spanlite.exporters.achieved import achieved, is_achieved
from spanlite.exporters.admission import HotKey
from spanlite.exporters.customs import custom_labels, custom_spec, custom_value
from spanlite.exporters.labels import label_value
from spanlite.exporters.table import Counters, Row, Snapshot
from spanlite.exporters.totals import Key, Total, group, total

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of a family: a number, or, in histograms, a total."""

    labels: Labels
    value: float | Total


@dataclass(frozen=True, slots=True)
class Family:
    """A catalogue entry with its samples."""

    spec: MetricSpec
    samples: list[Sample]


def families(snapshot: Snapshot) -> Iterator[Family]:
    """All families that have a sample, in a fixed order; label sets are unique within each.

    Custom metrics come last, by name; what they are is not in the catalogue.

    Raises:
        ExporterError: an own metric is not as the catalogue says.
    """
    rows = group(snapshot.rows, lambda row: row.point.series.kind)
    found = [
        *_kernels(rows.get(Kind.KERNEL, [])),
        *_copies(rows.get(Kind.MEMCPY, []), rows.get(Kind.MEMSET, [])),
        *_achieved(rows),
        *_identity(snapshot),
        *_own(_exporter_counters(snapshot)),
        *_own(snapshot.counters),
        *_customs(rows),
    ]
    return (family for family in found if family.samples)


def _kernels(rows: list[Row]) -> Iterator[Family]:
    sums = _totals(rows)
    labels = {key: _labels(catalogue.KERNEL_DURATION, key) for key in sums}
    yield Family(catalogue.KERNEL_DURATION, [Sample(labels[k], t) for k, t in sums.items()])
    yield Family(catalogue.KERNEL_LAUNCHES, [Sample(labels[k], t.count) for k, t in sums.items()])
    known = [(k, t.occupancy) for k, t in sums.items()]
    yield Family(catalogue.KERNEL_OCCUPANCY, [Sample(labels[k], o) for k, o in known if o is not None])
    limited = _shown(rows, lambda row: row.limited)
    yield Family(
        catalogue.KERNEL_LIMITER_TIME,
        [
            Sample({"UUID": uuid, "kernel": kernel, "limiter": limiter}, _seconds(members))
            for (uuid, kernel, limiter), members in limited.items()
        ],
    )
    stages = _shown(rows, lambda row: row.stage)
    yield Family(
        catalogue.STAGE_TIME, [Sample(_labels(catalogue.STAGE_TIME, k), _seconds(m)) for k, m in stages.items()]
    )


def _copies(copies: list[Row], sets: list[Row]) -> Iterator[Family]:
    pairs = (
        (copies, catalogue.MEMCPY_DURATION, catalogue.MEMCPY_BYTES),
        (sets, catalogue.MEMSET_DURATION, catalogue.MEMSET_BYTES),
    )
    for rows, duration, moved in pairs:
        sums = _totals(rows)
        labels = {key: _labels(duration, key) for key in sums}
        yield Family(duration, [Sample(labels[k], t) for k, t in sums.items()])
        yield Family(moved, [Sample(labels[k], t.bytes) for k, t in sums.items()])


def _achieved(rows: Mapping[int, list[Row]]) -> Iterator[Family]:
    own = [row for kind in sorted(OBSERVATIONS) for row in rows.get(kind, []) if is_achieved(row.key)]
    sets = {key: [row.point for row in members] for key, members in _shown(own, lambda row: row.key).items()}
    for spec, samples in achieved(sets):
        yield Family(spec, [Sample(labels, value) for labels, value in samples])


def _customs(rows: Mapping[int, list[Row]]) -> Iterator[Family]:
    found: dict[str, Family] = {}
    for kind in sorted(OBSERVATIONS):
        theirs = (row for row in rows.get(kind, []) if not is_achieved(row.key))
        for key, members in _shown(theirs, lambda row: row.key).items():
            name, labels = custom_labels(key)
            family = found.setdefault(name, Family(custom_spec(name, kind), []))
            value = custom_value(kind, [row.point for row in members])
            if value is not None:
                family.samples.append(Sample(labels, value))
    yield from (found[name] for name in sorted(found))


def _identity(snapshot: Snapshot) -> Iterator[Family]:
    yield Family(catalogue.GPU_INFO, [Sample(_gpu_labels(gpu, host), 1) for gpu, host in snapshot.gpus.values()])
    yield Family(
        catalogue.KERNEL_INFO, [Sample({"kernel": kernel, "name": name}, 1) for kernel, name in snapshot.names.items()]
    )
    yield Family(catalogue.BUILD_INFO, [Sample(dict(_build_labels()), 1)])


def _own(counters: Counters) -> Iterator[Family]:
    """Own metrics, held to the catalogue: a name or label that it lacks would be missing from docs and alerts too."""
    for name, samples in counters.items():
        spec = CATALOGUE.get(name)
        if spec is None:
            raise ExporterError(f"metric {name} is not in the catalogue; enter it in spanlite.contract.catalogue")
        yield Family(spec, [Sample(_checked(spec, labels), value) for labels, value in samples])


def _checked(spec: MetricSpec, labels: Mapping[str, str]) -> Labels:
    foreign = set(labels) - set(spec.labels)
    if foreign:
        raise ExporterError(f"metric {spec.name} has no label {sorted(foreign)[0]}; the catalogue gives {spec.labels}")
    return _filled({name: label_value(value) for name, value in labels.items()})


def _exporter_counters(snapshot: Snapshot) -> Counters:
    return {
        catalogue.SERIES_CAPPED.name: [({"family": family}, count) for family, count in snapshot.capped.items()],
        catalogue.EXPORTER_CUSTOM_REFUSED.name: [({"reason": word}, n) for word, n in snapshot.refused.items()],
        catalogue.EXPORTER_SERIES.name: [({}, snapshot.series)],
        catalogue.EXPORTER_POINTS.name: [({"outcome": outcome}, n) for outcome, n in snapshot.offered.items()],
        catalogue.EXPORTER_DROPPED.name: [({"reason": reason}, n) for reason, n in snapshot.dropped.items()],
        catalogue.EXPORTER_LAST_EVENT.name: [({}, ns / 10**9) for ns in (snapshot.last_event_ns,) if ns is not None],
        catalogue.EXPORTER_SCRAPES.name: [({"format": word}, n) for word, n in snapshot.scrapes.items()],
    }


def _totals(rows: Iterable[Row]) -> dict[HotKey, Total]:
    return {key: total([row.point for row in members]) for key, members in _shown(rows, lambda row: row.key).items()}


def _shown(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Rows by label set, without the label sets that no fresh row is in."""
    return {found: members for found, members in group(rows, key).items() if any(row.fresh for row in members)}


def _seconds(rows: list[Row]) -> float:
    return sum(row.point.sum_ns for row in rows) / 10**9


def _labels(spec: MetricSpec, key: HotKey) -> Labels:
    """Labels of a hot series; a family without a label of its own (memory sets) has none for `what`."""
    what = [key.what] if len(spec.labels) == len(key) else []
    return _filled(dict(zip(spec.labels, [key.gpu_uuid, *what, key.namespace, key.pod, key.container], strict=True)))


def _filled(labels: Labels) -> Labels:
    """Without the empty ones, which to Prometheus are the same as none."""
    return {name: value for name, value in labels.items() if value}


def _gpu_labels(gpu: Gpu, host: str) -> Labels:
    values = {
        "UUID": gpu.uuid,
        "gpu": str(gpu.index),
        "hostname": host,
        "pci_bus_id": gpu.pci_bus_id,
        "device": f"nvidia{gpu.index}",
        "model_name": gpu.name,
        "GPU_I_PROFILE": gpu.mig_profile,
        "GPU_I_ID": gpu.mig_instance,
    }
    return _filled({name: label_value(value) for name, value in values.items()})


@lru_cache(maxsize=1)
def _build_labels() -> Labels:
    """Version of the installed package, and its commit where pip took it from a repository (PEP 610)."""
    try:
        package = metadata.distribution("spanlite")
    except metadata.PackageNotFoundError:  # run from source roots on PYTHONPATH
        return {"version": "unknown", "python": platform.python_version()}
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    revision = str(origin.get("vcs_info", {}).get("commit_id", ""))
    return _filled({"version": package.version, "revision": revision, "python": platform.python_version()})

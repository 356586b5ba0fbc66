"""What metric points must say of executions: one by one, in whole numbers, sharing no code with the pipeline."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.cli.recorded import CONFIG, Work

_NUMBER = re.compile(r"\s*[:#=]\s*\d+$")


def _bounds() -> NDArray[np.int64]:
    """floor(2^(i/32) * 10^9) for i = -960 … 320: five square roots of whole numbers are the 32nd root."""
    made = []
    for index in range(-960, 321):
        root = 10**288 << index if index >= 0 else 10**288 >> -index
        for _ in range(5):
            root = math.isqrt(root)
        made.append(root)
    return np.array(made, dtype=np.int64)


BOUNDS = _bounds()


class Sums(NamedTuple):
    """What a point must say."""

    executions: int
    sum_ns: int
    min_ns: int
    max_ns: int
    bytes: int
    buckets: tuple[tuple[int, int], ...]


Key = tuple[Any, ...]


def brute_force(all_works: Iterable[Work], width_ns: int) -> dict[Key, Sums]:
    """Groups by window, kind, name, stage, launch and copy kind; the number behind a stage is no label."""
    groups: dict[Key, list[Work]] = {}
    for work in all_works:
        stage = _NUMBER.sub("", work.stage)
        key = (work.start_ns // width_ns, work.kind, work.name, stage, work.launch, work.copy_kind)
        groups.setdefault(key, []).append(work)
    return {key: _sums(group) for key, group in groups.items()}


def _sums(group: list[Work]) -> Sums:
    durations = [work.duration_ns for work in group]
    index, count = np.unique(np.searchsorted(BOUNDS, np.array(durations), side="left") - 960, return_counts=True)
    return Sums(
        len(group),
        sum(durations),
        min(durations),
        max(durations),
        sum(work.bytes for work in group),
        tuple(zip(index.tolist(), count.tolist(), strict=True)),
    )


def points_by_key(lines: Iterable[str], width_ns: int) -> dict[Key, Sums]:
    """Points as `ingest --points` writes them, in the form of `brute_force`; fails where a key comes twice."""
    found: dict[Key, Sums] = {}
    for line in lines:
        point = json.loads(line)
        labels, window = point["labels"], point["window"]
        assert window["end_ns"] - window["start_ns"] == width_ns
        assert window["start_ns"] % width_ns == 0
        launch = (*labels["grid"], *labels["block"], *labels["cluster"], *(labels[name] for name in CONFIG[9:]))
        place = (window["start_ns"] // width_ns, labels["kind"], labels["name"])
        key = (*place, labels["stage"], launch, labels["copy_kind"])
        assert key not in found
        assert (point["schema"], point["spans"], point["sum"]) == (5, point["count"], point["sum_ns"] / 1e9)
        buckets = tuple((index, count) for index, count in point["buckets"])
        found[key] = Sums(point["count"], point["sum_ns"], point["min_ns"], point["max_ns"], point["bytes"], buckets)
    return found

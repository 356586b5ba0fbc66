"""Observations of custom metrics, as a program's own connection sends them, to span columns.

A record names its series by a number of the client's, whose text came in a NAMES frame. What cannot be is dropped and
counted by reason: an unknown kind, a time more than a day off, a value beyond its limit, a series that has no name or
is one too many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import OBSERVATION
from spanlite.agent.validate import DEFAULT_HORIZON_NS
from spanlite.contract import catalogue
from spanlite.contract.batch import Gpu
from spanlite.contract.columns import (
    CONFIG,
    COUNTER,
    GAUGE,
    NODE,
    PLACE,
    TIMING,
    TRACE,
    Int64,
    SpanColumns,
    UInt64,
    empty_table,
    make_columns,
)
from spanlite.contract.customs import parse_series, write_series
from spanlite.contract.errors import FrameError
from spanlite.contract.names import kernel_id

MOST_SERIES = 10_000
"""Of one connection; the client's own cap is lower."""
MOST_TIMING_NS = 1 << 47
"""A day and a half."""
MOST_INCREMENT = 1 << 53
"""What a float64 holds exactly, which is what metrics end as."""
_CUT_NS, _CUT = 1 << 47, 1 << 55
"""Sums at which columns are cut, so that no batch claims more than pipeline.plausible accepts."""


def unpack_observations(payload: bytes) -> NDArray[np.void]:
    """Records of dtype OBSERVATION.

    Raises:
        FrameError: reason observations.
    """
    if len(payload) % OBSERVATION.itemsize:
        raise FrameError(
            "observations", f"{len(payload)} bytes are not a whole number of {OBSERVATION.itemsize}-byte records"
        )
    return np.frombuffer(payload, dtype=OBSERVATION)


class Observations:
    """The series of one connection."""

    def __init__(self, gpus: tuple[Gpu, ...], counts: AgentCounts) -> None:
        self._places = {gpu.index: at + 1 for at, gpu in enumerate(gpus)}
        self._counts = counts
        self._series: dict[int, tuple[str, str] | None] = {}

    def take(self, records: NDArray[np.void], names: Mapping[int, str], now_ns: int) -> Iterator[SpanColumns]:
        """Columns of the sound records, cut where a batch of them would claim too much.

        Args:
            names: text of each series by its number.
            now_ns: Unix time, which is the client's as well.
        """
        self._counts.add(catalogue.AGENT_SPANS_RECEIVED, len(records))
        self._counts.add(catalogue.AGENT_OBSERVATIONS_RECEIVED, len(records))
        sound = records[self._sound(records, names, now_ns)]
        if len(sound):
            columns = self._columns(sound)
            for rows in _cuts(columns):
                yield columns.take(rows)

    def _sound(self, records: NDArray[np.void], names: Mapping[int, str], now_ns: int) -> NDArray[np.bool_]:
        kind, value = records["kind"], records["value"]
        most = np.where(kind == TIMING, MOST_TIMING_NS, MOST_INCREMENT)
        named, room = self._named(records["name"], names)
        keep = np.ones(len(records), dtype=np.bool_)
        for reason, unfit in (
            ("kind", ~np.isin(kind, (TIMING, COUNTER, GAUGE))),
            (
                "time",
                (records["time_ns"] < now_ns - DEFAULT_HORIZON_NS) | (records["time_ns"] > now_ns + DEFAULT_HORIZON_NS),
            ),
            ("value", (kind != GAUGE) & ((value < 0) | (value > most))),
            ("name", ~named),
            ("series_cap", ~room),
        ):
            count = int(np.count_nonzero(unfit & keep))
            if count:
                self._counts.add(catalogue.AGENT_SPANS_DROPPED, count, f"observation_{reason}")
                self._counts.add(catalogue.AGENT_OBSERVATIONS_DROPPED, count, reason)
                keep &= ~unfit
        return keep

    def _named(self, numbers: UInt64, names: Mapping[int, str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which records' series have a name, and which fit the cap."""
        distinct, index = np.unique(numbers, return_inverse=True)
        named, room = np.ones(len(distinct), dtype=np.bool_), np.ones(len(distinct), dtype=np.bool_)
        for at, number in enumerate(distinct.tolist()):
            if number not in self._series:
                if len(self._series) >= MOST_SERIES:
                    room[at] = False
                    continue
                if number not in names:  # its name may still come
                    named[at] = False
                    continue
                self._series[number] = _read(names[number])
            named[at] = self._series[number] is not None
        return named[index.reshape(-1)], room[index.reshape(-1)]

    def _columns(self, records: NDArray[np.void]) -> SpanColumns:
        distinct, config = np.unique(records["name"], return_inverse=True)
        strings = {"": 0}
        configs = empty_table(CONFIG, len(distinct))
        for at, number in enumerate(distinct.tolist()):
            kernel, name = self._series[number] or ("", "")
            configs["kernel"][at] = strings.setdefault(kernel, len(strings))
            configs["name"][at] = strings.setdefault(name, len(strings))
        devices, place = np.unique(records["device"], return_inverse=True)
        places = empty_table(PLACE, len(devices))
        for at, device in enumerate(devices.tolist()):
            if device:
                places["gpu"][at], places["device_id"][at] = self._places.get(device - 1, 0), device - 1
        is_timing = records["kind"] == TIMING
        return make_columns(
            records["time_ns"].astype(np.int64),
            np.where(is_timing, records["value"], 0),
            tables=(tuple(strings), configs, places, empty_table(NODE, 1), empty_table(TRACE)),
            kind=records["kind"],
            config=config.reshape(-1),
            place=place.reshape(-1),
            bytes=np.where(is_timing, 0, records["value"]),
        )


def _read(text: str) -> tuple[str, str] | None:
    """Bounded id and full name of a series; None where the text is none."""
    try:
        name, labels = parse_series(text)
    except ValueError:
        return None
    return kernel_id(name), write_series(name, labels)


def _cuts(columns: SpanColumns) -> Iterator[slice]:
    """Rows whose time and increments, each within its limit, stay below the limits of a batch together."""
    moved: Int64 = np.where(columns.is_gauge, 0, columns.bytes)
    number = np.zeros(len(columns), dtype=np.int64)
    for values, limit in ((columns.duration_ns, _CUT_NS), (moved, _CUT)):
        number += (np.cumsum(values, dtype=np.float64) // limit).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(columns)]
    for begin, end in pairwise(edges):
        yield slice(begin, end)

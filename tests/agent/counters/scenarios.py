"""What the tests have the library do against the imitation, each in a process of its own.

python -m tests.agent.counters.scenarios NAME LIBRARY LIBCUPTI
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spanlite.agent.counters.library import CountersLibrary, Sampling
from spanlite.agent.counters.samples import METRICS
from spanlite.contract.errors import CountersError

BASE_NS = 1_790_000_000_000_000_000


class Mock:
    """The imitation's other side."""

    def __init__(self, path: Path) -> None:
        self._c = ctypes.CDLL(str(path))

    def set(self, key: str, value: int) -> None:
        self._c.mock_set(key.encode(), ctypes.c_long(value))

    def get(self, key: str) -> int:
        self._c.mock_get.restype = ctypes.c_long
        return int(self._c.mock_get(key.encode()))

    def sample(self, start_ns: int, end_ns: int, *values: float) -> None:
        """One sample into the hardware buffer."""
        array = (ctypes.c_double * len(values))(*values)
        self._c.mock_sample(ctypes.c_uint64(start_ns), ctypes.c_uint64(end_ns), array, ctypes.c_size_t(len(values)))

    def told(self, *keys: str) -> dict[str, int]:
        return {key: self.get(key) for key in keys}


def opened(library: CountersLibrary, **other: Any) -> Sampling:
    """Of device 1, a millisecond a sample, 8 samples a decoding."""
    chosen = {"interval": 1_000_000, "hardware_bytes": 1 << 20, "capacity": 8, **other}
    return library.open(1, METRICS, **chosen)


def refusal(call: Callable[[], object]) -> list[Any]:
    """Number and text of the error that a call raises."""
    try:
        call()
    except CountersError as error:
        return [error.result, str(error)]
    raise AssertionError("nothing was refused")


def possible(mock: Mock, load: Callable[[], CountersLibrary]) -> dict[str, Any]:
    library = load()
    device = library.probe(1)
    mock.set("availability_result", 35)
    mock.set("vgpu", 2)
    mock.set("supported", 1)
    refused = library.probe(0)
    return {
        "versions": [library.versions.cupti, library.versions.driver, library.versions.devices],
        "device": [device.uuid, device.chip, device.levels, device.permission, device.why],
        "refused": [refused.levels["supported"], refused.levels["vgpu"], refused.permission, refused.why],
        "no device": refusal(lambda: library.probe(7)),
        **mock.told("hosts", "enabled"),
    }


def decoding(mock: Mock, load: Callable[[], CountersLibrary]) -> dict[str, Any]:
    sampling = opened(load())
    for at in range(20):
        start = BASE_NS + at * 10**6
        mock.sample(start, start + 10**6, *(at + metric / 10 for metric in range(len(METRICS))))
    mock.set("unfinished", 1)
    decoded = [sampling.decode() for _ in range(4)]
    configured = mock.told("device", "interval", "trigger", "hardware_bytes", "append_mode", "metrics")
    sampling.close()
    sampling.close()
    return {
        "samples": [len(one.samples) for one in decoded],
        "more": [one.more for one in decoded],
        "unfinished": [one.unfinished for one in decoded],
        "starts": [int(start) - BASE_NS for one in decoded for start in one.samples.start_ns],
        "ends": [int(end) - BASE_NS for one in decoded for end in one.samples.end_ns],
        "values": [row for one in decoded for row in one.samples.values.tolist()],
        "configured": configured,
        **mock.told("evaluations", "enabled", "hosts", "violations"),
    }


def refusals(mock: Mock, load: Callable[[], CountersLibrary]) -> dict[str, Any]:
    """Every step that may say no, one after the other; nothing is left behind by any."""
    library = load()
    said: dict[str, Any] = {}
    steps = {
        "availability_result": 35,
        "host_result": 46,
        "metrics_result": 17,
        "passes": 3,
        "enable_result": 35,
        "config_result": 27,
        "start_result": 26,
    }
    for key, value in steps.items():
        before = mock.get(key)
        mock.set(key, value)
        said[key] = [*refusal(lambda: opened(library)), mock.get("enabled"), mock.get("hosts")]
        mock.set(key, before)
    said["argument"] = refusal(lambda: opened(library, capacity=0))
    said["metric"] = refusal(lambda: library.passes(0, ("none_such",)))
    mock.set("passes", -4)
    said["passes"] = [*said["passes"], library.passes(0, METRICS[:4]), library.passes(0, METRICS[:5])]
    mock.set("passes", 1)
    first = opened(library)
    said["twice"] = refusal(lambda: opened(library))
    first.close()
    opened(library).close()
    return {**said, **mock.told("enabled", "hosts", "violations")}


def by_cycles(mock: Mock, load: Callable[[], CountersLibrary]) -> dict[str, Any]:
    library = load()
    mock.set("time_result", 27)
    by_time = refusal(lambda: opened(library))
    opened(library, cycles=True, interval=1_500_000).close()
    return {"by time": by_time, **mock.told("trigger", "interval", "enabled", "hosts")}


def faults(mock: Mock, load: Callable[[], CountersLibrary]) -> dict[str, Any]:
    """A full buffer, a decoding that fails, a value that fails, a device that is gone."""
    library = load()
    said: dict[str, Any] = {}
    for name, fault in (
        ("overflow", {"overflow": 1, "decode_result": 8}),
        ("evaluate", {"evaluate_result": 999}),
        ("gone", {"decode_result": 999, "stop_result": 999, "disable_result": 999}),
    ):
        sampling = opened(library)
        mock.sample(BASE_NS, BASE_NS + 1, 1, 2, 3, 4, 5, 6)
        for key, value in fault.items():
            mock.set(key, value)
        said[name] = refusal(sampling.decode)
        if name == "gone":
            said["gone, close"] = refusal(sampling.close)
        else:
            sampling.close()
        for key in fault:
            mock.set(key, 0)
    sampling = opened(library)
    mock.set("overflow", 1)
    said["told"] = sampling.decode().overflow
    sampling.close()
    return {**said, **mock.told("enabled", "hosts", "violations")}


SCENARIOS = {one.__name__: one for one in (possible, decoding, refusals, by_cycles, faults)}


def main(name: str, library: Path, cupti: Path) -> None:
    """Prints what a scenario found."""
    found = SCENARIOS[name](Mock(cupti), lambda: CountersLibrary(library, cupti))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

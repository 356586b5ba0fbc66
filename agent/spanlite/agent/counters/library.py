"""The counters library by ctypes: its functions and nothing of its own (agent/native/counters)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanlite.agent.counters.samples import Samples
from spanlite.agent.native import PLACES, find_built
from spanlite.contract.errors import CountersError

LIBRARY = "libspanlite_counters.so"
"""Beside the agent's modules, where a package has it, and in the source tree."""
_ERROR_BYTES = 512
_LEVELS = ("unknown", "no", "off", "yes")


class _Device(ctypes.Structure):
    """struct spanlite_counters_device."""

    _fields_ = (
        ("uuid", ctypes.c_char * 48),
        ("chip", ctypes.c_char * 32),
        *((name, ctypes.c_int32) for name in ("supported", "architecture", "sli", "vgpu")),
        *((name, ctypes.c_int32) for name in ("confidential", "cmp", "wsl", "permission")),
    )


class _Decoded(ctypes.Structure):
    """struct spanlite_counters_decoded."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("samples", "unfinished", "decode_ns", "evaluate_ns", "reset_ns")),
        *((name, ctypes.c_int32) for name in ("overflow", "more")),
    )


@dataclass(frozen=True, slots=True)
class Versions:
    """As CUPTI and CUDA number them: 130000, 13000; and how many devices CUDA shows."""

    cupti: int
    driver: int
    devices: int


@dataclass(frozen=True, slots=True)
class Device:
    """What is possible on a device, before anything is enabled.

    Attributes:
        uuid: of the whole GPU.
        levels: unknown, no, off or yes for each of: supported (all of the others together), architecture, sli, vgpu,
            confidential, cmp, wsl.
        permission: CUptiResult of asking which counters there are; 0 is allowed, and `why` the text of another one.
    """

    uuid: str
    chip: str
    levels: dict[str, str]
    permission: int
    why: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoding.

    Attributes:
        overflow: the hardware buffer was full, and samples are missing.
        more: it was not emptied; decode again at once.
        unfinished: samples that had begun.
    """

    samples: Samples
    overflow: bool
    more: bool
    unfinished: int
    decode_ns: int
    evaluate_ns: int
    reset_ns: int


def find_library(named: Path | None = None, *, places: Iterable[Path] = PLACES) -> Path:
    """The library's path.

    Raises:
        UsageError: it was not built, or the file that was named is not there.
    """
    return find_built(LIBRARY, named, places)


class CountersLibrary:
    """The library, loaded, with CUPTI and the driver behind it. It is never unloaded.

    Args:
        path: of find_library.
        cupti: libcupti, where somebody says which.

    Raises:
        CountersError: there is no driver, no CUPTI, or none that samples.
    """

    def __init__(self, path: Path, cupti: Path | None = None) -> None:
        try:
            self._c = ctypes.CDLL(str(path))
        except OSError as error:  # of another machine
            raise CountersError(-1, f"{path}: {error}") from error
        version, driver, devices = ctypes.c_uint32(), ctypes.c_int32(), ctypes.c_int32()
        name = None if cupti is None else str(cupti).encode()
        self._call("load", name, *map(ctypes.byref, (version, driver, devices)))
        self.versions = Versions(version.value, driver.value, devices.value)

    def probe(self, device: int) -> Device:
        """What is possible on a device, by its number.

        Raises:
            CountersError: there is no such device, or it could not be asked.
        """
        about = _Device()
        why = self._call("probe", ctypes.c_int32(device), ctypes.byref(about))
        levels = {
            name: _LEVELS[getattr(about, name)]
            for name in ("supported", "architecture", "sli", "vgpu", "confidential", "cmp", "wsl")
        }
        return Device(about.uuid.decode(), about.chip.decode(), levels, about.permission, why)

    def passes(self, device: int, metrics: Sequence[str]) -> int:
        """How many passes metrics need together; sampling takes one.

        Raises:
            CountersError: the chip lacks one of them.
        """
        found = ctypes.c_size_t()
        self._call("passes", ctypes.c_int32(device), *_names(metrics), ctypes.byref(found))
        return found.value

    def open(
        self,
        device: int,
        metrics: Sequence[str],
        *,
        interval: int,
        cycles: bool = False,
        hardware_bytes: int,
        capacity: int,
    ) -> Sampling:
        """Begins to sample.

        Args:
            interval: nanoseconds between samples, or cycles of the system clock.
            hardware_bytes: of the buffer that the GPU writes.
            capacity: samples of one decoding, at most.

        Raises:
            CountersError: it is not allowed, not possible, or somebody else samples.
        """
        handle = ctypes.c_void_p()
        self._call(
            "open",
            ctypes.c_int32(device),
            *_names(metrics),
            ctypes.c_uint64(interval),
            ctypes.c_int32(cycles),
            ctypes.c_size_t(hardware_bytes),
            ctypes.c_uint32(capacity),
            ctypes.byref(handle),
        )
        return Sampling(self._call, handle, len(metrics), capacity)

    def _call(self, name: str, *arguments: Any) -> str:
        """Calls a function; the text that it left, if any.

        Raises:
            CountersError: it says no.
        """
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        result = getattr(self._c, f"spanlite_counters_{name}")(*arguments, error, ctypes.c_size_t(_ERROR_BYTES))
        text = error.value.decode("utf-8", "replace")
        if result:
            raise CountersError(result, text)
        return text


class Sampling:
    """A device that is being sampled. One thread at a time."""

    def __init__(self, call: Callable[..., str], handle: ctypes.c_void_p, metrics: int, capacity: int) -> None:
        self._call = call
        self._handle = handle
        self._start = np.empty(capacity, dtype=np.uint64)
        self._end = np.empty(capacity, dtype=np.uint64)
        self._values = np.empty((capacity, metrics), dtype=np.float64)

    def decode(self) -> Decoded:
        """What has been sampled since the last call, as copies.

        Raises:
            CountersError: CUPTI says no; close and open again.
        """
        what = _Decoded()
        rooms = (ctypes.c_void_p(array.ctypes.data) for array in (self._start, self._end, self._values))
        capacity = ctypes.c_size_t(len(self._start))
        self._call("decode", self._handle, capacity, *rooms, ctypes.byref(what))
        rows = slice(0, what.samples)
        samples = Samples(
            self._start[rows].astype(np.int64), self._end[rows].astype(np.int64), self._values[rows].copy()
        )
        return Decoded(
            samples,
            bool(what.overflow),
            bool(what.more),
            what.unfinished,
            what.decode_ns,
            what.evaluate_ns,
            what.reset_ns,
        )

    def close(self) -> None:
        """Ends it; a second call does nothing.

        Raises:
            CountersError: CUPTI did not end it as it should; the handle is gone all the same.
        """
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle.value:
            self._call("close", handle)


def _names(metrics: Sequence[str]) -> tuple[Any, Any]:
    """An array of C strings and its length."""
    return (ctypes.c_char_p * len(metrics))(*(name.encode() for name in metrics)), ctypes.c_size_t(len(metrics))

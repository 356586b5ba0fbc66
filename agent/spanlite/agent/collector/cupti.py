"""Finding CUPTI, and the GPUs as libcuda numbers them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from spanlite.agent.collector.abi import SUCCESS, Cuda, Cupti, open_library
from spanlite.agent.collector.finding import packaged_cupti

_NAMES = ("libcupti.so.13", "libcupti.so.12")
_PLACES = (
    "usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1[23]",
    "usr/local/cuda/targets/*/lib/libcupti.so.1[23]",
    "usr/local/cuda-1[23]*/extras/CUPTI/lib64/libcupti.so.1[23]",
    "usr/local/cuda-1[23]*/targets/*/lib/libcupti.so.1[23]",
)
"""Below the root."""
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
"""Values of CUdevice_attribute."""
_MOST_GPUS = 64


def find_cupti(named: str) -> tuple[Cupti | None, str, int]:
    """CUPTI, or the state that says why there is none, and its version.

    Searched in this order: `named`; what the process has loaded; the framework's package; the loader's path;
    /usr/local/cuda.
    """
    found = _open(named)
    if found is None:
        return None, "no_cupti", 0
    try:
        cupti = Cupti(found)
    except AttributeError:  # it lacks a function: no libcupti that we know
        return None, "no_cupti", 0
    result, version = cupti.version()
    if result != SUCCESS:  # some releases refuse where there is no driver
        return None, f"cupti_error_{result}", 0
    return (cupti, "", version) if _is_known(version) else (None, "unknown_cupti_version", version)


def _open(named: str) -> Any:
    loaded = ((name, True) for name in _NAMES)
    packaged = ((str(path), False) for path in [packaged_cupti(sys.path)] if path)
    placed = (str(path) for place in _PLACES for path in sorted(Path("/").glob(place), reverse=True))
    later = ((name, False) for name in (*_NAMES, *placed))
    for name, already in [(named, False)] if named else (*loaded, *packaged, *later):
        library = open_library(name, loaded=already)
        if library is not None:
            return library
    return None


def _is_known(version: int) -> bool:
    """Versions whose kernel records the agent can read."""
    return version == 24 or 26 <= version <= 28 or 130000 <= version <= 130599


def find_cuda() -> Cuda | None:
    """libcuda, if the program uses it."""
    library = open_library("libcuda.so.1", loaded=True)
    return None if library is None else Cuda(library)


def gpus(cuda: Cuda | None) -> dict[str, str]:
    """What HELLO says of each device; nothing while libcuda does not tell."""
    said: dict[str, str] = {}
    count = cuda.number("cuDeviceGetCount") if cuda else None
    for ordinal in range(min(count or 0, _MOST_GPUS)):
        device = cuda.number("cuDeviceGet", ordinal) if cuda else None
        if cuda is not None and device is not None:
            said |= {f"gpu.{ordinal}.{key}": value for key, value in _gpu(cuda, device).items()}
    return said


def _gpu(cuda: Cuda, device: int) -> dict[str, str]:
    whole = cuda.uuid("cuDeviceGetUuid", device)
    if whole is None:
        return {}
    part = cuda.uuid("cuDeviceGetUuid_v2", device) or whole  # that of the MIG instance, where there is one
    digits = part.hex()
    spelt = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    texts = {"name": cuda.text("cuDeviceGetName", device), "pci_bus_id": cuda.text("cuDeviceGetPCIBusId", device)}
    attributes = {"compute_major": _MAJOR, "compute_minor": _MINOR, "multiprocessors": _MULTIPROCESSORS}
    numbers = {key: cuda.number("cuDeviceGetAttribute", number, device) for key, number in attributes.items()}
    return {
        "uuid": f"{'GPU' if part == whole else 'MIG'}-{spelt}",
        **{key: value for key, value in texts.items() if value is not None},
        **{key: str(value) for key, value in numbers.items() if value is not None and value >= 0},
    }

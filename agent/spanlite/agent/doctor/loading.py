"""Opens foreign libraries and asks the kernel about its clock: the doctor's one place for ctypes.

It is run as a script in a process of its own, since a library that does not fit the driver may crash or hang whoever
loads it:

    python -I loading.py cupti /path/to/libcupti.so.13

It prints one JSON object. `error` says why the rest is missing.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any

NEEDED = (
    "cuptiGetVersion",
    "cuptiGetTimestamp",
    "cuptiSubscribe",
    "cuptiUnsubscribe",
    "cuptiEnableCallback",
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
    "cuptiActivityDisable",
    "cuptiActivityFlushAll",
    "cuptiActivityGetNextRecord",
    "cuptiActivityGetNumDroppedRecords",
)
"""What the collector looks up; without one of them it does nothing."""
_UUID_BYTES, _NAME_BYTES = 96, 96
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


class _Timex(ctypes.Structure):
    """struct timex of linux/timex.h, 64-bit."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "second", "fraction", "tick")),
        *((name, ctypes.c_long) for name in ("ppsfreq", "jitter")),
        ("shift", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("spare", ctypes.c_int * 11),
    )


def cupti(library: str) -> dict[str, Any]:
    """Whether it opens, as which file, what it lacks, and cuptiGetVersion with its result."""
    opened = ctypes.CDLL(library, mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    version = ctypes.c_uint32()
    asked = getattr(opened, "cuptiGetVersion", None)
    result = asked(ctypes.byref(version)) if asked else -1
    lacking = [name for name in NEEDED if not hasattr(opened, name)]
    return {"file": _mapped("libcupti") or library, "lacking": lacking, "result": result, "version": version.value}


def cuda(library: str) -> dict[str, Any]:
    """libcuda's version of CUDA, what cuInit says, and compute capability times ten of each device that it shows."""
    opened = ctypes.CDLL(library)
    version, count = ctypes.c_int(), ctypes.c_int()
    told = opened.cuDriverGetVersion(ctypes.byref(version))
    init = opened.cuInit(0)
    if init == 0:
        opened.cuDeviceGetCount(ctypes.byref(count))
    shown = version.value if told == 0 else 0
    chips = [_capability(opened, index) for index in range(count.value)]
    return {"file": _mapped("libcuda.so"), "version": shown, "init": init, "devices": count.value, "chips": chips}


def _capability(opened: ctypes.CDLL, index: int) -> int:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    opened.cuDeviceGet(ctypes.byref(device), index)
    opened.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    opened.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return major.value * 10 + minor.value


def nvml(library: str) -> dict[str, Any]:
    """Name, UUID and MIG mode of each GPU that libnvidia-ml shows, and the driver's version."""
    opened = ctypes.CDLL(library)
    if result := opened.nvmlInit_v2():
        return {"error": f"nvmlInit_v2 gives {result}"}
    version, count = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_uint()
    opened.nvmlSystemGetDriverVersion(version, _NAME_BYTES)
    opened.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = [_gpu(opened, index) for index in range(count.value)]
    return {"driver": version.value.decode("utf-8", "replace"), "gpus": gpus}


def _gpu(opened: ctypes.CDLL, index: int) -> dict[str, Any]:
    device, now, pending = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
    if result := opened.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
        return {"error": f"nvmlDeviceGetHandleByIndex_v2 gives {result}"}
    name, uuid = ctypes.create_string_buffer(_NAME_BYTES), ctypes.create_string_buffer(_UUID_BYTES)
    opened.nvmlDeviceGetName(device, name, _NAME_BYTES)
    opened.nvmlDeviceGetUUID(device, uuid, _UUID_BYTES)
    mig = opened.nvmlDeviceGetMigMode(device, ctypes.byref(now), ctypes.byref(pending))
    texts = {"name": name.value.decode("utf-8", "replace"), "uuid": uuid.value.decode("utf-8", "replace")}
    return {**texts, "mig": bool(now.value) if mig == 0 else False}


def clock(_: str) -> dict[str, Any]:
    """adjtimex(2), which reads when `modes` is 0: its state, status bits, errors in microseconds."""
    about = _Timex()
    ctypes.set_errno(0)
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(about))
    if state < 0:
        return {"error": f"adjtimex: {os.strerror(ctypes.get_errno())}"}
    return {"state": state, "status": about.status, "maxerror_us": about.maxerror, "esterror_us": about.esterror}


def _mapped(name: str) -> str:
    """The file of a library of that name in this process; empty where none is mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123  # the script imports little
        paths = [line.split(maxsplit=5)[-1].strip() for line in maps if line.count("/")]
    return next((path for path in paths if path.rpartition("/")[2].startswith(name)), "")


ASKED: dict[str, Callable[[str], dict[str, Any]]] = {"cupti": cupti, "cuda": cuda, "nvml": nvml, "clock": clock}


def main(words: list[str]) -> None:
    """Answers one question."""
    what, library = words
    try:
        said = ASKED[what](library)
    except OSError as error:  # dlopen says why
        said = {"error": str(error)}
    except AttributeError as error:
        said = {"error": f"a function is missing: {error}"}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])

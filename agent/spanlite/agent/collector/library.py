"""The native collector, called from Python: its exported functions and nothing of its own."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_CUPTI_NAMES = ("libcupti.so.13", "libcupti.so.12")


def cupti_is_loaded() -> bool:
    """Whether the process has a libcupti already, as it has once a framework was imported."""
    return any(_is_loaded(name) for name in _CUPTI_NAMES)


def _is_loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
    except OSError:  # the loader's way of saying no
        return False
    return True


def cuda_is_in_use() -> bool:
    """Whether the program has a CUDA context: of a device, or current on this thread."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
        count, device, active = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        flags, context = ctypes.c_uint(), ctypes.c_void_p()
        if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:  # not initialised
            return False
        if cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value:
            return True
        for ordinal in range(count.value):
            asked = cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0 and (
                cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0
            )
            if asked and active.value:
                return True
    except (OSError, AttributeError):  # no libcuda, or none that we know
        return False
    return False


def load(path: Path) -> bool:
    """Loads a library for good, so that whoever asks for its name gets this one; False where it cannot be loaded."""
    try:
        ctypes.CDLL(str(path))
    except OSError:  # of another machine, or it needs what is not here
        return False
    return True


class NativeCollector:
    """The library, loaded and started. It is never unloaded.

    Raises:
        OSError: it cannot be loaded here; the text is the loader's.
        AttributeError: it is no collector, or one of another release.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        library.spanlite_attach.argtypes = [ctypes.c_int]
        library.spanlite_state.restype = ctypes.c_char_p
        library.spanlite_push.argtypes = [ctypes.c_char_p]
        self._library = library

    def start(self) -> None:
        """What libcuda does in cuInit, at whatever time; nothing the second time."""
        self._library.spanlite_attach(int(cuda_is_in_use()))

    def state(self) -> str:
        said: bytes = self._library.spanlite_state()
        return said.decode()

    def pause(self) -> None:
        self._library.spanlite_pause()

    def resume(self) -> None:
        self._library.spanlite_resume()

    def push(self, name: str) -> None:
        # A zero would end the text early, and ctypes refuses what it cannot pass on.
        self._library.spanlite_push(name.replace("\0", "?").encode("utf-8", "replace"))

    def pop(self) -> None:
        self._library.spanlite_pop()

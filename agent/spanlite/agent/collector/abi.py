"""CUPTI's and libcuda's functions through ctypes, and memory by address.

Types and numbers as in agent/native/cupti_abi.h, written down from the headers of CUDA 12.9 and 13.5.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

SUCCESS, MAX_LIMIT_REACHED, MULTIPLE_SUBSCRIBERS = 0, 12, 39
MEMCPY, MEMSET, KERNEL, CONCURRENT_KERNEL = 1, 2, 3, 10
DRIVER_API, RESOURCE = 1, 3
CONTEXT_CREATED, CTX_GET_CURRENT, ENTER = 1, 304, 0
_NAME_THREAD = 15
"""PR_SET_NAME of prctl."""

_REQUESTED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)

Requested = Callable[[], tuple[int, int]]
"""Gives address and bytes of a buffer."""
Completed = Callable[[int | None, int, int, int, int], None]
"""Takes context, stream, address, bytes and valid bytes of a buffer."""
Called = Callable[[int, int, int, int], None]
"""Takes domain, callback id, site and correlation id; the last two are 0 outside the driver's domain."""


class _CallbackData(ctypes.Structure):
    _fields_ = (
        ("site", ctypes.c_int),
        ("function_name", ctypes.c_void_p),
        ("function_params", ctypes.c_void_p),
        ("function_return_value", ctypes.c_void_p),
        ("symbol_name", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("context_uid", ctypes.c_uint32),
        ("correlation_data", ctypes.c_void_p),
        ("correlation_id", ctypes.c_uint32),
    )


def open_library(name: str, *, loaded: bool = False) -> ctypes.CDLL | None:
    """A library by name or path; with `loaded` only one that the process has already."""
    mode = os.RTLD_LAZY | (os.RTLD_NOLOAD if loaded else 0)
    try:
        return ctypes.CDLL(name, mode=mode)
    except OSError:  # the loader's way of saying no
        return None


def memory_at(address: int, length: int) -> memoryview:
    """Bytes at an address, not copied."""
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")


def text_at(address: int) -> bytes:
    """The text there, up to its zero."""
    return ctypes.string_at(address)


def address_of(memory: Any) -> int:
    """Where a writable buffer (an mmap) begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def name_thread(name: bytes) -> None:
    """Names the calling thread, for whoever looks at the process."""
    ctypes.CDLL(None).prctl(_NAME_THREAD, name, 0, 0, 0)


class _About(ctypes.Structure):
    """Dl_info."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def path_of(function: Any) -> str:
    """The file of the library that a function is in."""
    about = _About()
    found = ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(about))
    return os.fsdecode(about.path) if found and about.path else ""


class Cupti:
    """A loaded libcupti. Every method returns CUPTI's result, or what it says.

    Raises:
        AttributeError: the library lacks a function.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.path = path_of(library.cuptiGetVersion)
        self._handle = ctypes.c_void_p()
        self._kept: list[Any] = []  # ctypes' functions, which CUPTI calls for as long as the process lives
        u32, size, pointer = ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p
        for name, arguments in {
            "cuptiGetVersion": [pointer],
            "cuptiGetTimestamp": [pointer],
            "cuptiSubscribe": [pointer, pointer, pointer],
            "cuptiUnsubscribe": [pointer],
            "cuptiEnableCallback": [u32, pointer, ctypes.c_int, u32],
            "cuptiActivityRegisterCallbacks": [pointer, pointer],
            "cuptiActivityEnable": [ctypes.c_int],
            "cuptiActivityDisable": [ctypes.c_int],
            "cuptiActivityFlushAll": [u32],
            "cuptiActivityGetNextRecord": [pointer, size, pointer],
            "cuptiActivityGetNumDroppedRecords": [pointer, u32, pointer],
        }.items():
            getattr(library, name).argtypes = arguments

    def version(self) -> tuple[int, int]:
        """Result and version."""
        found = ctypes.c_uint32()
        return int(self._library.cuptiGetVersion(ctypes.byref(found))), found.value

    def timestamp(self) -> int | None:
        """CUPTI's clock in ns."""
        found = ctypes.c_uint64()
        return found.value if self._library.cuptiGetTimestamp(ctypes.byref(found)) == SUCCESS else None

    def subscribe(self, called: Called) -> int:
        def on_callback(_userdata: int | None, domain: int, cbid: int, data: int | None) -> None:
            if domain == DRIVER_API and data:
                call = _CallbackData.from_address(data)
                called(domain, cbid, call.site, call.correlation_id)
            else:
                called(domain, cbid, 0, 0)

        function = _CALLBACK(on_callback)
        self._kept.append(function)
        return int(self._library.cuptiSubscribe(ctypes.byref(self._handle), function, None))

    def unsubscribe(self) -> int:
        return int(self._library.cuptiUnsubscribe(self._handle))

    def enable_callback(self, domain: int, cbid: int) -> int:
        return int(self._library.cuptiEnableCallback(1, self._handle, domain, cbid))

    def register(self, requested: Requested, completed: Completed) -> int:
        def on_request(buffer: int, size: int, most: int) -> None:
            address, length = requested()
            ctypes.c_void_p.from_address(buffer).value = address
            ctypes.c_size_t.from_address(size).value = length
            ctypes.c_size_t.from_address(most).value = 0  # as many as fit

        functions = _REQUESTED(on_request), _COMPLETED(completed)
        self._kept.append(functions)
        return int(self._library.cuptiActivityRegisterCallbacks(*functions))

    def register_nobody(self) -> int:
        """From now on CUPTI calls no Python: it outlives the interpreter, and hands over at its own end what it has.

        A function of libc that takes no notice of arguments stands in our place. No kind may be on, for a request
        would be answered with nothing.
        """
        nobody = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        return int(self._library.cuptiActivityRegisterCallbacks(nobody, nobody))

    def enable(self, kind: int) -> int:
        return int(self._library.cuptiActivityEnable(kind))

    def disable(self, kind: int) -> int:
        return int(self._library.cuptiActivityDisable(kind))

    def flush(self) -> int:
        """Plainly: a forced flush tears kernels that still run."""
        return int(self._library.cuptiActivityFlushAll(0))

    def record_after(self, buffer: int, valid: int, record: int) -> tuple[int, int]:
        """Result, and the address of the record that follows one."""
        place = ctypes.c_void_p(record)
        result = int(self._library.cuptiActivityGetNextRecord(buffer, valid, ctypes.byref(place)))
        return result, place.value or 0

    def dropped(self, context: int | None, stream: int) -> int:
        """Records that CUPTI lost since the last question."""
        count = ctypes.c_size_t()
        result = self._library.cuptiActivityGetNumDroppedRecords(context, stream, ctypes.byref(count))
        return count.value if result == SUCCESS else 0


class Cuda:
    """The libcuda that the process has loaded."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def draw(self) -> None:
        """A call that does nothing but draw a correlation id."""
        self._library.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p()))

    def number(self, function: str, *arguments: int) -> int | None:
        """What a function writes as an int to its first argument."""
        found = ctypes.c_int()
        return found.value if getattr(self._library, function)(ctypes.byref(found), *arguments) == 0 else None

    def text(self, function: str, device: int) -> str | None:
        found = ctypes.create_string_buffer(256)
        return (
            found.value.decode("ascii", "replace")
            if getattr(self._library, function)(found, 255, device) == 0
            else None
        )

    def uuid(self, function: str, device: int) -> bytes | None:
        found = (ctypes.c_ubyte * 16)()
        known = getattr(self._library, function, None)
        return bytes(found) if known is not None and known(found, device) == 0 else None

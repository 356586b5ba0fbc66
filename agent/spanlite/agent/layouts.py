"""Which bytes an activity record has, by the CUPTI version that wrote it.

CUPTI lays records back to back and says nowhere how long one is: the reader has to know, for every kind, the C
structure that the *writing* library uses, and NVIDIA lengthens those between releases. The table below was read from
the headers of each release (the enumeration ``CUpti_ActivityKind`` names the structure of a kind; a C compiler gave
its size); the field layouts of the kinds that are decoded are those of cupti-python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from cupti import cupti

from spanlite.contract.errors import LayoutError

KIND_LIMIT = 256
"""Kinds lie below this; any larger number where a kind is due means that the bytes are no records."""

ALIGNMENT = 8
"""Every record starts on, and is as long as, a multiple of this many bytes (``ACTIVITY_RECORD_ALIGNMENT``)."""


class Kind(IntEnum):
    """The activity kinds that are decoded (``CUpti_ActivityKind``)."""

    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    MARKER = 12
    SYNCHRONIZATION = 38
    EXTERNAL_CORRELATION = 39


# Versions of the CUPTI API by release: 24 is CUDA 12.6, 26 is 12.8, 27 is 12.9, 28 is 12.9 update 1; from CUDA 13.0 on
# the number is xxyyzz. An update zz that is not listed has the layouts of the update before it.
_VERSIONS_12 = (24, 26, 27, 28)
_FIRST_13, _LAST_13 = 130000, 130599
KNOWN_VERSIONS = "24, 26, 27, 28 (CUDA 12.6, 12.8, 12.9) and 130000 to 130599 (CUDA 13.0 to 13.5)"

# Decoded kinds: the cupti-python dtype from the version on that stands before it.
_Steps = tuple[tuple[int, str], ...]
_KERNEL: _Steps = (
    (24, "activity_kernel9_dtype"),
    (130000, "activity_kernel10_dtype"),
    (130100, "activity_kernel11_dtype"),
    (130300, "activity_kernel12_dtype"),
    (130400, "activity_kernel13_dtype"),
)
_API: _Steps = ((24, "activity_api_dtype"),)
_DECODED: Mapping[Kind, _Steps] = {
    Kind.MEMCPY: ((24, "activity_memcpy5_dtype"), (26, "activity_memcpy6_dtype"), (130400, "activity_memcpy7_dtype")),
    Kind.MEMSET: ((24, "activity_memset4_dtype"), (130400, "activity_memset5_dtype")),
    Kind.KERNEL: _KERNEL,
    Kind.CONCURRENT_KERNEL: _KERNEL,
    Kind.DRIVER: _API,
    Kind.RUNTIME: _API,
    Kind.MARKER: ((24, "activity_marker2_dtype"),),
    Kind.SYNCHRONIZATION: ((24, "activity_synchronization_dtype"), (26, "activity_synchronization2_dtype")),
    Kind.EXTERNAL_CORRELATION: ((24, "activity_external_correlation_dtype"),),
}

# Every other kind: how long a record is from a version on, so that it can be stepped over and counted.
_SKIPPED: Mapping[int, tuple[tuple[int, int], ...]] = {
    6: ((24, 24),),  # event
    7: ((24, 24),),  # metric
    8: ((24, 184), (130200, 192)),  # device
    9: ((24, 32), (130100, 40)),  # context
    11: ((24, 32),),  # name
    13: ((24, 32), (130000, 40)),  # marker data
    14: ((24, 24),),  # source locator
    15: ((24, 56),),  # global access
    16: ((24, 40),),  # branch
    17: ((24, 56),),  # overhead
    18: ((24, 144),),  # kernel launched by a kernel
    19: ((24, 40),),  # preemption
    20: ((24, 40),),  # environment
    21: ((24, 32),),  # event instance
    22: ((24, 96),),  # peer-to-peer copy
    23: ((24, 32),),  # metric instance
    24: ((24, 48),),  # instruction execution
    25: ((24, 64), (26, 104)),  # unified memory counter
    26: ((24, 32),),  # function
    27: ((24, 24),),  # module
    28: ((24, 24),),  # device attribute
    29: ((24, 56),),  # shared access
    30: ((24, 40),),  # PC sampling
    31: ((24, 32),),  # PC sampling record info
    32: ((24, 24),),  # instruction correlation
    33: ((24, 152),),  # OpenACC data
    34: ((24, 152),),  # OpenACC launch
    35: ((24, 120),),  # OpenACC other
    36: ((24, 24), (26, 56), (130500, 80)),  # CUDA event
    37: ((24, 24),),  # stream
    40: ((24, 136), (130200, 88)),  # NVLink
    41: ((24, 32),),  # instantaneous event
    42: ((24, 32),),  # instantaneous event instance
    43: ((24, 32),),  # instantaneous metric
    44: ((24, 32),),  # instantaneous metric instance
    45: ((24, 80),),  # memory
    46: ((24, 168),),  # PCIe
    47: ((24, 40),),  # OpenMP
    48: ((24, 40),),  # internal launch API
    49: ((24, 128),),  # memory, second kind
    50: ((24, 72), (130000, 80)),  # memory pool
    51: ((24, 56),),  # graph trace
    52: ((24, 64), (130100, 72)),  # JIT
    53: ((26, 56),),  # device graph trace
    54: ((26, 64),),  # memory decompression
    55: ((130100, 32),),  # confidential-compute rotation
    56: ((130100, 56),),  # host node of a graph
    57: ((130100, 24),),  # compute-engine context switch
    58: ((130100, 48),),  # host launch
    59: ((130200, 152), (130201, 168), (130400, 304)),  # green context
}


NO_CUPTI = 0
"""The version that a client without CUPTI states: its layout knows no record, so none can be read."""
_NOTHING = {int(kind): np.dtype([("kind", "<u4")]) for kind in _DECODED}


@dataclass(frozen=True, slots=True)
class Layout:
    """The record layouts of one CUPTI version.

    Attributes:
        version: as ``cuptiGetVersion`` gives it.
        dtypes: decoded kind → structured dtype, its field names those of cupti-python.
        sizes: kind → bytes of a record, for every kind whose size is known.
        words: bytes / 4 by kind, int64 of ``KIND_LIMIT`` + 1 entries; 0 where a kind has no known size. The last entry
            is always 0: larger numbers are clipped to it.
    """

    version: int
    dtypes: Mapping[int, np.dtype[np.void]]
    sizes: Mapping[int, int]
    words: npt.NDArray[np.int64] = field(compare=False, repr=False)


def layout_for(version: int, sizes: Mapping[int, int] | None = None) -> Layout:
    """The layout of a CUPTI version.

    Args:
        version: as ``cuptiGetVersion`` gives it, or NO_CUPTI.
        sizes: kind → bytes as seen by the writer. Known kinds must agree; unknown kinds are taken over from here.

    Raises:
        LayoutError: the version is unknown, or ``sizes`` contradict it.
    """
    if version == NO_CUPTI:
        return Layout(version, _NOTHING, {}, np.zeros(KIND_LIMIT + 1, np.int64))
    if version not in _VERSIONS_12 and not _FIRST_13 <= version <= _LAST_13:
        raise LayoutError(
            f"CUPTI version {version} is unknown; known are {KNOWN_VERSIONS}: "
            "update spanlite, or record with one of these"
        )
    dtypes: dict[int, np.dtype[np.void]] = {int(kind): _dtype(_at(version, steps)) for kind, steps in _DECODED.items()}
    known = {kind: size for kind, steps in _SKIPPED.items() if (size := _at(version, steps)) is not None}
    known.update({kind: dtype.itemsize for kind, dtype in dtypes.items()})
    for kind, size in (sizes or {}).items():
        _check_size(version, kind, size, known.get(kind))
        known.setdefault(kind, size)
    words = np.zeros(KIND_LIMIT + 1, np.int64)
    for kind, size in known.items():
        words[kind] = size // 4
    words.setflags(write=False)
    return Layout(version, MappingProxyType(dtypes), MappingProxyType(known), words)


def _at(version: int, steps: tuple[tuple[int, Any], ...]) -> Any:
    """The value of the last step at or before ``version``, None where the kind came later."""
    value = None
    for since, candidate in steps:
        if since <= version:
            value = candidate
    return value


def _dtype(name: str) -> np.dtype[np.void]:
    dtype: np.dtype[np.void] | None = getattr(cupti, name, None)
    if dtype is None:
        raise LayoutError(f"the installed cupti-python has no {name}: install cupti-python 13.4 or newer")
    return dtype


def _check_size(version: int, kind: int, size: int, known: int | None) -> None:
    """Refuses a size that contradicts the version, or that no record can have."""
    if known is not None and size != known:
        raise LayoutError(
            f"wrong CUPTI version: the file says {version}, whose {_name(kind)} records are {known} bytes, "
            f"its records are {size}; correct the version it states"
        )
    if not 0 < kind < KIND_LIMIT or size < ALIGNMENT or size % ALIGNMENT or size > 2**16:
        raise LayoutError(
            f"kind {kind} of {size} bytes: kinds are 1 to {KIND_LIMIT - 1} and records a multiple of {ALIGNMENT} bytes "
            "up to 64 KiB; correct the sizes given"
        )


def _name(kind: int) -> str:
    if kind in (Kind.KERNEL, Kind.CONCURRENT_KERNEL):
        return "kernel"
    return Kind(kind).name.lower() if kind in Kind._value2member_map_ else f"kind-{kind}"

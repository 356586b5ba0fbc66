"""The compiled kernels.c beside this file, if it is there and fits."""

from __future__ import annotations

import ctypes
import logging
import sys
from functools import lru_cache
from pathlib import Path

Library = ctypes.CDLL
log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.c")
BUILT = Path(__file__).with_name("_kernels.so")
REVISION = 6
_P, _I64, _U64, _I32, _U32, _U8 = (
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_uint64,
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_uint8,
)
_FUNCTIONS: dict[str, tuple[type | None, list[type]]] = {
    "spanlite_unpack": (None, [_P, _I64, _I64, _U64, _P]),
    "spanlite_unpack_index": (_U64, [_P, _I64, _I64, _U32, _P]),
    "spanlite_unzigzag": (None, [_P, _I64, _I64, _P]),
    "spanlite_unzigzag_sums": (None, [_P, _I64, _I64, _U64, _P]),
    "spanlite_starts": (None, [_P, _P, _P, _U8, _I64, _U64]),
    "spanlite_table": (_I64, [_P, _P, _P, _P, _P, _P, _P, _I64, _I64, _P, _I64]),
    "spanlite_count_fields": (_I64, [_P, _I64, _I64]),
    "spanlite_claims": (None, [_P, _P, _P, _P, _P, _U8, _I64, _P, _P]),
    "spanlite_take": (None, [_P, _I64, _P, _I64, _P]),
    "spanlite_extent": (_I64, [_P, _P, _P]),
    "spanlite_groups": (_I64, [_P, _P, _P, _I64, _P, _P]),
    "spanlite_sums": (None, [_P, _P, _U64, _U64, _P, _P, _I64, _I32, _P, _P, _P]),
    "spanlite_span_ids": (None, [_P, _P, _I64, _U64, _U64]),
    "spanlite_pack": (_I64, [_P, _I64, _I64, _I64, _I64, _I64, _P, _P]),
    "spanlite_pack_table": (None, [_P, _I64, _I64, _P, _P, _P, _I64, _P, _P, _P]),
    "spanlite_bodies": (_I64, [_P, _P, _I64, _P, _P, _P, _I64]),
    "spanlite_constant": (_I64, [_P, _I64, _I64]),
    "spanlite_joint_codes": (_I64, [_P, _P, _I64, _I64, _P, _P]),
    "spanlite_buckets": (_I64, [_P, _P, _P, _I64, _I32, _I64, _P, _P, _P, _P]),
}
"""Result and arguments of each function. Calls give up the interpreter lock: subtasks of one process work at once."""


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The library; None where it was not built (a warning says so once) or cannot be used here."""
    if sys.byteorder != "little":
        return None
    return load(BUILT)


def load(path: Path) -> ctypes.CDLL | None:
    """The library at a path; None with a warning where there is none or it does not fit this version."""
    if not path.exists():
        log.warning("%s is not built, numpy takes its place: slower; install a C compiler and spanlite again", path)
        return None
    try:
        found = ctypes.CDLL(str(path))
        revision = found.spanlite_revision
        revision.restype = _I64
        fits = revision() == REVISION
    except (OSError, AttributeError) as error:
        log.warning("%s cannot be used (%s), numpy takes its place; install spanlite again", path, error)
        return None
    if not fits:
        log.warning("%s is of another version, numpy takes its place; install spanlite again", path)
        return None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found

"""How a long-running process treats freed memory: an agent gives it back, a job keeps it to use again."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of glibc's malloc.h."""
_MOST_MMAP = 1 << 25
"""The largest threshold that glibc takes on 64-bit machines."""
_ARENAS = 1


def bound_arenas() -> bool:
    """Makes all threads share one heap; False where the C library has no such thing (musl).

    glibc gives each thread a heap of its own, up to eight a core, and what a thread's largest buffer took stays there:
    an agent that served sixteen processes one after the other held 500 MB of freed memory. Works for heaps that are not
    there yet, so it is called before threads are started.
    """
    return _mallopt((_M_ARENA_MAX, _ARENAS))


def keep_freed() -> bool:
    """Keeps freed memory for the next batch; False where the C library has no such thing (musl).

    By default glibc gives arrays of 128 KiB and more back to the system as soon as they are freed. Columns of a
    batch are of that size: each would be mapped, cleared by the kernel and faulted in page by page again. Memory stays
    at what the largest batches or files took.
    """
    return _mallopt((_M_MMAP_THRESHOLD, _MOST_MMAP), (_M_TRIM_THRESHOLD, 2**31 - 1))


def _mallopt(*settings: tuple[int, int]) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(name, value) == 1 for name, value in settings)

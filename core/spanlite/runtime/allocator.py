"""Keeps a long-running process of many threads from growing for no reason."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""
_ARENAS = 1


def bound_arenas() -> bool:
    """Makes all threads share one heap; False where the C library has no such thing (musl).

    glibc gives each thread a heap of its own, up to eight a core, and what a thread's largest buffer took stays there:
    an agent that served sixteen processes one after the other held 500 MB of freed memory. Works for heaps that are not
    there yet, so it is called before threads are started.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_ARENA_MAX, _ARENAS) == 1

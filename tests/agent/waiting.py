"""Waiting for a condition."""

from __future__ import annotations

import threading
from collections.abc import Callable

WAIT_S = 60.0
"""Reached only when a test fails."""


def until(met: Callable[[], bool]) -> None:
    """Waits until it is met."""
    pause = threading.Event()
    for _ in range(round(WAIT_S / 0.002)):
        if met():
            return
        pause.wait(0.002)
    raise AssertionError(f"it was not met within {WAIT_S:.0f} s")

"""A process in which nothing gets in the pacer's way that can be kept out of it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SLACK = Path("/proc/self/timerslack_ns")
_SWITCH_S = 50e-6
"""How long another thread's Python may go on before the pacer has its turn; 5 ms otherwise."""


@dataclass(frozen=True)
class Granted:
    """What the kernel has let be set.

    Attributes:
        slack_ns: the slack of timers that holds; None where it may not be set, sleeps are then that much later.
        realtime: whether no ordinary thread takes this one's processor.
    """

    slack_ns: int | None
    realtime: bool


@contextmanager
def quiet(*, realtime: bool = False) -> Iterator[Granted]:
    """No garbage collection, short turns between threads, timers that do not wait for company; as before afterwards.

    The kernel may end a sleep up to its slack (50 µs unless set) late to wake less often; the slack is set to 1 ns for
    the main thread. What lives when it begins is taken for good and never looked at again by a collection inside.

    Args:
        realtime: also puts the calling thread before all ordinary ones (SCHED_FIFO, the lowest priority of it; wants
            CAP_SYS_NICE). For precise waiting on a machine with other work, and a core to spare: it is the other work
            that waits then.
    """
    before_s, collected = sys.getswitchinterval(), gc.isenabled()
    slack_before = _read_slack()
    gc.disable()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_S)
    slack = _set_slack(1) if slack_before is not None else None
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    first = realtime and _schedule(os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
    try:
        yield Granted(slack, first)
    finally:
        if first:
            _schedule(policy, parameter)
        if slack is not None and slack_before is not None:
            _set_slack(slack_before)
        sys.setswitchinterval(before_s)
        gc.unfreeze()
        if collected:
            gc.enable()


def _schedule(policy: int, parameter: os.sched_param) -> bool:
    try:
        os.sched_setscheduler(0, policy, parameter)
    except PermissionError:
        return False
    return True


def _read_slack() -> int | None:
    try:
        return int(_SLACK.read_text())
    except (OSError, ValueError):
        return None


def _set_slack(ns: int) -> int | None:
    try:
        _SLACK.write_text(str(ns))
    except OSError:
        return None
    return ns

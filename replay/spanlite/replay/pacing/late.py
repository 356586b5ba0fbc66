"""What happens to an item whose time has passed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spanlite.contract.errors import UsageError
from spanlite.runtime.durations import parse_duration_ns


class Late(Enum):
    """How to go on.

    CATCH_UP emits at once, and all that follows, until the schedule is kept again. DROP leaves the item out. SHIFT
    moves all that follows by as much. ABORT ends the replay.
    """

    CATCH_UP = "catchup"
    DROP = "drop"
    SHIFT = "shift"
    ABORT = "abort"


@dataclass(frozen=True)
class LatePolicy:
    """Attributes: over_ns: an item is late if it could be emitted only more than this after its time."""

    action: Late = Late.CATCH_UP
    over_ns: int = 10_000_000


def parse_late(text: str) -> LatePolicy:
    """`catchup`, `drop`, `shift=1ms`, `abort=100ms`; 10ms unless given.

    Raises:
        UsageError: another form.
    """
    name, given, over = text.strip().partition("=")
    if name not in {action.value for action in Late}:
        raise UsageError(f"{text!r} is no way with late items; write catchup, drop, shift or abort, or drop=5ms")
    return LatePolicy(Late(name), parse_duration_ns(over)) if given else LatePolicy(Late(name))

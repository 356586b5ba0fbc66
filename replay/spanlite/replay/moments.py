"""When a message was due and when it was let go, as two headers of a Kafka record tell it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

DUE, EMITTED = "spanlite.due_ns", "spanlite.emitted_ns"
_NS = struct.Struct(">q")
"""Eight bytes, as Kafka's LongSerializer writes them."""


class Moment(NamedTuple):
    """Unix nanoseconds: the host's clock is read once, at the start of the run; from there the monotonic one counts.

    Attributes:
        due_ns: when the schedule wanted it, moved by what `--late shift` had moved it so far.
        emitted_ns: when the pacer let it go: what it saw on the clock last.
    """

    due_ns: int
    emitted_ns: int


def headers_of(moment: Moment) -> list[tuple[str, bytes]]:
    """The headers of a record."""
    return [(DUE, _NS.pack(moment.due_ns)), (EMITTED, _NS.pack(moment.emitted_ns))]


def moment_of(headers: Iterable[tuple[str, bytes]]) -> Moment | None:
    """What headers tell; None where one of both is not there, or is no eight bytes."""
    found = dict(headers)
    due, emitted = found.get(DUE, b""), found.get(EMITTED, b"")
    if len(due) != _NS.size or len(emitted) != _NS.size:
        return None
    return Moment(*_NS.unpack(due), *_NS.unpack(emitted))

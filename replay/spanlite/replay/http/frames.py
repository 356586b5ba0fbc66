"""What the process that paces tells the one that sends, as frames in one pipe: a fixed head, then so many bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from spanlite.replay.http.requests import Origin, Request

_HEAD = struct.Struct("<BqII16sI")


class Frame(IntEnum):
    """REQUEST: to be sent. LOOK: say how it stands, and when nothing is on its way any more. GIVE_UP: what waits.
    GIVE_UP_ALL: what is open, too. END: send no more. PLACE: where later requests go, numbered as they come."""

    REQUEST = 0
    LOOK = 1
    GIVE_UP = 2
    GIVE_UP_ALL = 3
    END = 4
    PLACE = 5


class Told(NamedTuple):
    """One frame.

    Attributes:
        number: of a REQUEST its due time, monotonic nanoseconds; of a LOOK which it is.
        request: of a REQUEST.
    """

    frame: Frame
    number: int
    request: Request | None


class Writer:
    """Makes frames."""

    def __init__(self) -> None:
        self._places: dict[Origin, int] = {}

    def request(self, request: Request, due_ns: int) -> bytes:
        """A request, behind its place where that is new."""
        place = self._places.get(request.origin)
        if place is None:
            place = self._places[request.origin] = len(self._places)
            said = json.dumps(request.origin).encode()
            return self.told(Frame.PLACE, said=said) + self.request(request, due_ns)
        payload = request.payload
        head = _HEAD.pack(Frame.REQUEST, due_ns, place, request.body_bytes, request.trace, len(payload))
        return head + payload

    def told(self, frame: Frame, number: int = 0, said: bytes = b"") -> bytes:
        """Any other frame."""
        return _HEAD.pack(frame, number, 0, 0, b"", len(said)) + said


class Reader:
    """Takes frames apart, whatever pieces they come in."""

    def __init__(self) -> None:
        self._data = b""
        self._places: list[Origin] = []

    def feed(self, data: bytes) -> Iterator[Told]:
        """The frames that are whole now."""
        data = self._data + data if self._data else data
        at, end = 0, len(data)
        while end - at >= _HEAD.size:
            kind, number, place, body_bytes, trace, size = _HEAD.unpack_from(data, at)
            begin = at + _HEAD.size
            if end - begin < size:
                break
            at = begin + size
            if kind == Frame.REQUEST:
                request = Request(trace, 0, self._places[place], data[begin:at], body_bytes)
                yield Told(Frame.REQUEST, number, request)
            elif kind == Frame.PLACE:
                self._places.append(Origin(*json.loads(data[begin:at])))
            else:
                yield Told(Frame(kind), number, None)
        self._data = data[at:]

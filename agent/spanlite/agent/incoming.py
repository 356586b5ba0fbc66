"""Frames of a connection, read one at a time within the agent's bounds."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import suppress

import numpy as np

from spanlite.agent.counts import AgentCounts
from spanlite.agent.framememory import FrameMemory
from spanlite.agent.frames import HEADER, Frame, Header, unpack_header
from spanlite.agent.layouts import Kind, Layout
from spanlite.agent.quota import Bucket, Quotas
from spanlite.agent.walk import walk
from spanlite.contract import catalogue
from spanlite.contract.errors import FrameError
from spanlite.runtime.clock import Clock

QUOTA = "quota"
"""Reason of spans dropped for it."""
_SPANS = [Kind.KERNEL, Kind.CONCURRENT_KERNEL, Kind.MEMCPY, Kind.MEMSET]
_LONGEST_PAUSE_S = 1.0


def frames(peer: socket.socket, memory: FrameMemory) -> Generator[tuple[Header, bytes], None, None]:
    """Headers and payloads, until the stream ends between two frames.

    A frame's room is held until the next one is asked for.

    Raises:
        FrameError: a header is malformed, or the stream ends inside a frame.
        OSError: the socket.
    """

    def hang_up() -> None:
        with suppress(OSError):  # it was faster
            peer.shutdown(socket.SHUT_RD)

    with peer.makefile("rb") as stream:
        while head := stream.read(HEADER.size):
            if len(head) < HEADER.size:
                raise FrameError("truncated", f"the stream ends inside a header of {HEADER.size} bytes")
            header = unpack_header(head)
            with memory.room(header.length, hang_up) as read:
                payload = stream.read(header.length)
                if len(payload) < header.length:
                    missing = header.length - len(payload)
                    raise FrameError("truncated", f"the stream ends {missing} bytes inside a frame")
                read()
                yield header, payload
                del payload


class PeerQuota:
    """Holds one connection to its quotas.

    Buffers over quota are dropped and their spans counted. Other frames, such as names and range boundaries, cannot be:
    what comes later means nothing without them. They are taken, and their connection alone waits.
    """

    def __init__(self, quotas: Quotas, layout: Layout, clock: Clock, counts: AgentCounts) -> None:
        self._bytes = Bucket(quotas.bytes_per_s, clock)
        self._spans = Bucket(quotas.spans_per_s, clock)
        self._by_spans = quotas.spans_per_s > 0
        self._layout = layout
        self._clock = clock
        self._counts = counts

    def pass_on(self, header: Header, payload: bytes) -> tuple[Header, bytes]:
        """The frame, or in place of a buffer over quota an empty one of the same number.

        Raises:
            LayoutError: a buffer whose spans were to be counted is malformed.
        """
        if header.type == Frame.BUFFER:
            within = self._bytes.take(len(payload))
            if within and not self._by_spans:
                return header, payload
            spans = self._spans_in(payload)
            if within and self._spans.take(spans):
                return header, payload
            self._counts.add(catalogue.AGENT_SPANS_RECEIVED, spans)
            self._counts.add(catalogue.AGENT_SPANS_DROPPED, spans, QUOTA)
            return header._replace(length=0), b""
        pause_s = self._bytes.charge(len(payload))
        if pause_s:
            self._counts.add(catalogue.AGENT_QUOTA_PAUSES)
            self._clock.sleep_s(min(pause_s, _LONGEST_PAUSE_S))
        return header, payload

    def _spans_in(self, payload: bytes) -> int:
        return int(np.isin(walk(payload, self._layout).kinds, _SPANS).sum())

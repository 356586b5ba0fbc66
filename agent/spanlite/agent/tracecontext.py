"""Ranges whose text is a W3C traceparent: what is launched inside them belongs to that distributed trace.

A traced process says so by a range like any other, `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`, so any
program that can mark NVTX ranges can hand its trace context over.
"""

from __future__ import annotations

import re

import numpy as np

from spanlite.contract.columns import Table, UInt64

CONTEXT = np.dtype([("high", "<u8"), ("low", "<u8"), ("remote_parent", "<u8")])
"""The trace id as two big-endian words, and the span id; `remote_parent` 0 = no context."""
MOST = 1 << 17
"""Texts that one process may have told and not pushed again, at most; half of them, the oldest, go then."""

_FORM = re.compile("(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def parse_traceparent(text: str) -> tuple[bytes, int] | None:
    """Trace id, 16 bytes, and span id of a traceparent; None of any other text.

    As the W3C's recommendation has it: lower case, neither id all zeros, version ff is none. Of versions to come only
    those of the same form are read; the flags mean nothing here.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    trace, span = bytes.fromhex(found[1]), int(found[2], 16)
    return (trace, span) if any(trace) and span else None


def trace_id(context: np.void) -> bytes:
    """The 16 bytes of one entry."""
    return int(context["high"]).to_bytes(8, "big") + int(context["low"]).to_bytes(8, "big")


class Contexts:
    """The contexts among the texts that a process told, by pointer."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}

    def learn(self, pointer: int, text: str) -> bool:
        """Takes a text in if it is a traceparent; a pointer that now has another text is forgotten.

        Returns:
            Whether it is one.
        """
        parsed = parse_traceparent(text)
        if parsed is None:
            if self._known:
                self._known.pop(pointer, None)
            return False
        trace, span = parsed
        self._known[pointer] = trace + span.to_bytes(8, "big")
        if len(self._known) > MOST:
            self._known = dict(list(self._known.items())[MOST // 2 :])
        return True

    def of(self, pointers: UInt64) -> Table | None:
        """A table of dtype CONTEXT with a row for each pointer; None while there is no context at all.

        Args:
            pointers: shape (m,), of openings; 0 of closings.
        """
        if not self._known:
            return None
        distinct, index = np.unique(pointers, return_inverse=True)
        none = bytes(CONTEXT.itemsize)
        packed = b"".join(self._known.get(pointer, none) for pointer in distinct.tolist())
        return np.frombuffer(packed, dtype=">u8").astype("<u8").view(CONTEXT)[index.reshape(-1)]

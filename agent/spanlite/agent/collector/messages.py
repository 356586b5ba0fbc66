"""What the twin says to the agent, frame by frame. Used by the sender's thread alone.

Each returns SENT without doing anything, or closes the connection and says how it ended.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from spanlite.agent.collector import wire
from spanlite.agent.collector.abi import Cupti, memory_at
from spanlite.agent.collector.buffers import Buffers, Filled
from spanlite.agent.collector.cupti import find_cuda, gpus
from spanlite.agent.collector.link import Link, Sent
from spanlite.agent.collector.losses import Losses
from spanlite.agent.collector.names import Names
from spanlite.agent.collector.options import Options
from spanlite.agent.collector.stamps import Stamps
from spanlite.agent.collector.state import State
from spanlite.runtime.clock import Clock

_CLOCK_TRIES = 8
_STAMPS_AT_ONCE = 4096
_NAMES_AT_ONCE = 1024
_UNKNOWN = 0xFFFFFFFF


class Messages:
    """Frames of one connection after another; each is a session of its own."""

    def __init__(
        self,
        link: Link,
        cupti: Cupti,
        *,
        version: int,
        buffers: Buffers,
        stamps: Stamps,
        losses: Losses,
        state: State,
        options: Options,
        clock: Clock,
    ) -> None:
        self._link, self._cupti, self._version = link, cupti, version
        self._buffers, self._stamps, self._losses = buffers, stamps, losses
        self._state, self._options, self._clock = state, options, clock
        self._names_sent = self._range_names_sent = 0
        self._state_told = ""
        self._named_gpus = False

    def hello(self) -> Sent:
        """The first frame."""
        self._state_told = self._state.word
        devices = gpus(find_cuda())
        self._named_gpus = bool(devices)
        self._names_sent = self._range_names_sent = 0
        said = {
            "cupti_version": str(self._version),
            "session": secrets.token_hex(8),
            **{f"size.{kind}": str(size) for kind, size in sorted(self._buffers.walker.sizes.items())},
            **devices,
            **resource(self._options),
            "resource.cupti.path": self._cupti.path,
            "resource.spanlite.collector.state": self._state_told,
            "resource.spanlite.collector.sampling": "full",
        }
        return self._link.send(wire.HELLO, wire.text(said))

    def lack_gpus(self) -> bool:
        """The last HELLO named none because libcuda did not tell yet, and it would now."""
        return not self._named_gpus and bool(gpus(find_cuda()))

    def clock(self) -> Sent:
        """Both clocks, read as closely together as they can be."""
        best: tuple[int, int, int] | None = None
        for _ in range(_CLOCK_TRIES):
            before = self._clock.unix_ns()
            cupti_ns = None if self._state.inert else self._cupti.timestamp()
            if cupti_ns is None:
                return Sent.SENT
            half = (self._clock.unix_ns() - before) // 2
            if 0 <= half < (best[2] if best else _UNKNOWN):  # else somebody set the clock, or it took longer
                best = cupti_ns, before + half, half
        return self._link.send(wire.CLOCK, wire.clock(*best)) if best else Sent.SENT

    def ranges(self) -> Sent:
        """Stamps since the last call, their names before them; without a connection they are thrown away."""
        while not self._state.inert and (stamps := self._stamps.take(_STAMPS_AT_ONCE)):
            if not self._link.is_open:
                continue  # the spans between them are counted where they are lost
            log = self._stamps.names
            self._range_names_sent, sent = self._send_names(log, self._range_names_sent, len(log.log))
            if sent is Sent.SENT:
                sent = self._link.send(wire.RANGES, stamps)
            if sent is not Sent.SENT:
                return sent
        return Sent.SENT

    def buffer(self, filled: Filled) -> Sent:
        """What has to come before a buffer, and the buffer. SENT: the agent has read all of it."""
        steps: tuple[Callable[[], Sent], ...] = (
            self.ranges,
            lambda: self._kernel_names(filled.names),
            lambda: self._link.deliver(wire.BUFFER, memory_at(filled.address, filled.valid)),
        )
        return next((sent for step in steps if (sent := step()) is not Sent.SENT), Sent.SENT)

    def stats(self) -> Sent:
        """Losses since the last one, and the state if it changed. Nothing where there is nothing to tell."""
        self._losses.fold()
        if not self._link.is_open:
            return Sent.SENT
        taken = self._losses.take()
        said = {key if key == "stamps_dropped" else f"dropped.{key}": str(count) for key, count in taken.items()}
        if self._state.word != self._state_told:
            self._state_told = said["state"] = self._state.word
        if not said:
            return Sent.SENT
        sent = self._link.deliver(wire.STATS, wire.text(said))
        if sent is not Sent.SENT:
            for reason, count in taken.items():
                self._losses.add(reason, count)
        return sent

    def goodbye(self, reason: str) -> None:
        """The last frame; closes the connection."""
        self._link.send(wire.BYE, wire.text({"reason": reason}))
        self._link.close()

    def _kernel_names(self, upto: int) -> Sent:
        self._names_sent, sent = self._send_names(self._buffers.names, self._names_sent, upto)
        return sent

    def _send_names(self, names: Names, first: int, upto: int) -> tuple[int, Sent]:
        """Entries of the log up to one; how many were sent, and how that went."""
        while first < upto:
            entries = names.log[first : min(first + _NAMES_AT_ONCE, upto)]
            sent = self._link.send(wire.NAMES, wire.names(entries))
            if sent is not Sent.SENT:
                return first, sent
            first += len(entries)
        return first, Sent.SENT


def resource(options: Options) -> dict[str, str]:
    """Resource attributes as HELLO has them."""
    said = {"resource.process.executable.name": Path("/proc/self/exe").readlink().name}
    for pair in options.resource.split(","):
        key, equals, value = pair.partition("=")
        if key and equals:
            said[f"resource.{key}"] = value
    if options.service:
        said["resource.service.name"] = options.service
    return said

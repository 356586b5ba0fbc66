"""The node agent's socket: one thread a traced process reads frames and hands batches to an outlet."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import count
from pathlib import Path

from spanlite.agent.access import Access
from spanlite.agent.admission import Admission
from spanlite.agent.connected import SAMPLING, STATE, Connected, Samples
from spanlite.agent.counts import AgentCounts
from spanlite.agent.framememory import FrameMemory
from spanlite.agent.frames import DONE, Frame
from spanlite.agent.headsampling import HeadSampler
from spanlite.agent.hello import Hello
from spanlite.agent.identity.identifier import Identifier
from spanlite.agent.identity.peer import Credentials, Hold, credentials
from spanlite.agent.incoming import PeerQuota, frames
from spanlite.agent.kernelsource import SourceTable
from spanlite.agent.layouts import NO_CUPTI, layout_for
from spanlite.agent.listening import inode_of, listen
from spanlite.agent.outlet import Direct, Item, Outlet, item_of
from spanlite.agent.process import TracedProcess
from spanlite.agent.quota import Quotas
from spanlite.agent.sources import ProcessSources
from spanlite.agent.speakers import BUDGET, Speakers
from spanlite.agent.tracing import Note, NoTracing, Tracing
from spanlite.agent.turns import Turns
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.errors import FrameError, LayoutError
from spanlite.runtime.clock import Clock
from spanlite.transport.ports import Producer
from spanlite.transport.topics import SPANS

log = logging.getLogger(__name__)

SPANS_TOPIC = SPANS.name
_MOST_FAILURES = 100


class AgentServer:
    """Listens on a unix socket until it is stopped.

    A peer that breaks the protocol is told off in the log and hung up on; the others are not disturbed.

    Args:
        producer: where batches go: an outlet, or a producer, to which they go straight.
        topic: and under which name.
        quotas: what a peer may do, and what all of them together may take.
        identifier: who they are; without it they are who they say.
        access: who may connect.
        tracing: where a span for each connection goes.
        look: is shown each batch before it is encoded; it must be quick.
        sampler: which traces are kept.
    """

    def __init__(
        self,
        path: Path,
        producer: Producer | Outlet,
        clock: Clock,
        counts: AgentCounts,
        *,
        topic: str = SPANS_TOPIC,
        quotas: Quotas | None = None,
        identifier: Identifier | None = None,
        access: Access | None = None,
        tracing: Tracing | None = None,
        look: Callable[[Batch], None] | None = None,
        sampler: HeadSampler | None = None,
    ) -> None:
        self._path = path
        self._topic = topic
        self._outlet = producer if isinstance(producer, Outlet) else Direct(producer, counts)
        self._clock = clock
        self._counts = counts
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._quotas = quotas or Quotas()
        self._identifier = identifier
        self._access = access or Access()
        self._tracing = tracing or NoTracing()
        self._look = look
        self._sampler = sampler
        self._admission = Admission(self._quotas, clock)
        self.memory = FrameMemory(self._quotas.memory_bytes, clock)
        self._speakers = Speakers()
        self.connected = Connected(counts, self._speakers)
        self.turns = Turns()
        self._numbers = count()
        self._sources = SourceTable()
        self._stopping = False
        self._inode: int | None = None
        self._threads: list[threading.Thread] = []
        self._peers: set[socket.socket] = set()
        self._accepting: threading.Thread | None = None
        self.failures: list[Exception] = []
        """What ended a peer's thread early, the last hundred; a caller that feeds files looks here."""

    def start(self) -> None:
        """Binds the socket and begins to accept; a socket that an agent left behind is swept.

        Raises:
            UsageError: the path is taken or too long for a unix socket.
        """
        self._inode = listen(self._listener, self._path, self._access)
        self._accepting = threading.Thread(target=self._accept, name="spanlite-accept", daemon=True)
        self._accepting.start()

    def stop(self, grace_s: float = 30.0) -> None:
        """Stops accepting, lets the connected peers finish, and removes the socket.

        A peer that is still there after `grace_s` is hung up on; what it has sent until then is worked off.
        """
        self._stopping = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._accepting:
            self._accepting.join()
        impatience = threading.Timer(grace_s, self._hang_up)
        impatience.daemon = True
        impatience.start()
        for thread in self._threads:
            thread.join()
        impatience.cancel()
        if inode_of(self._path) == self._inode:
            self._path.unlink(missing_ok=True)

    def problem(self) -> str:
        """Why traced processes cannot connect, in one sentence, or nothing."""
        if self._stopping or self._accepting is None or not self._accepting.is_alive():
            return "the agent does not listen"
        found = inode_of(self._path)
        if found is None:
            return f"{self._path} is gone; restart the agent"
        return "" if found == self._inode else f"another file stands at {self._path}; restart the agent"

    def gauges(self) -> Samples:
        """What the connected collectors told of themselves, and the memory that their frames take."""
        return {
            **self.connected.gauges(),
            catalogue.AGENT_FRAME_MEMORY.name: [({}, float(self.memory.held_bytes))],
        }

    def _hang_up(self) -> None:
        for peer in list(self._peers):
            with suppress(OSError):  # it was faster
                peer.shutdown(socket.SHUT_RD)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError as error:
                if self._stopping:
                    return
                log.warning("a connection cannot be accepted: %s", error)  # no descriptors left: they will come back
                self._clock.sleep_s(0.1)
                continue
            who = credentials(peer)
            reason = self._admission.admit(who.uid)
            if reason:
                self._counts.add(catalogue.AGENT_CONNECTIONS_REFUSED, 1, reason)
                log.info("process %d of user %d is hung up on: %s", who.pid, who.uid, reason)
                peer.close()
                continue
            self._peers.add(peer)
            thread = threading.Thread(target=self._serve, args=(peer, who), name="spanlite-peer", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads: this process is refused, those connected go on
                self._counts.add(catalogue.AGENT_CONNECTIONS_REFUSED, 1, "threads")
                log.warning("process %d of user %d is hung up on: %s", who.pid, who.uid, error)
                self._admission.leave(who.uid)
                self._peers.discard(peer)
                peer.close()
            else:
                self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _serve(self, peer: socket.socket, who: Credentials) -> None:
        key = next(self._numbers)
        attributes = {"process.pid": who.pid, "process.user.id": who.uid}
        try:
            with self._tracing.span("connection", attributes) as note, peer, Hold(peer, who.pid) as hold:
                self._read(peer, who, hold, key, note)
        finally:
            self._speakers.leave(key)
            self.connected.leave(key)
            self._admission.leave(who.uid)
            self._peers.discard(peer)

    def _read(self, peer: socket.socket, who: Credentials, hold: Hold, key: int, note: Note) -> None:
        process: TracedProcess | None = None
        sources = ProcessSources(self._sources, who.pid)
        quota: PeerQuota | None = None
        said_goodbye = False

        def identify(said: Hello) -> Hello:
            nonlocal quota
            quota = PeerQuota(self._quotas, layout_for(said.cupti_version, said.sizes), self._clock, self._counts)
            return self._greet(said, peer, who, hold, key)

        peer.settimeout(self._quotas.hello_s)
        try:
            with closing(frames(peer, self.memory)) as arriving:
                for header, payload in arriving:
                    if process is None or quota is None:
                        process = TracedProcess.from_hello(
                            header,
                            payload,
                            who.pid,
                            self._clock,
                            self._counts,
                            identify=identify,
                            sources=sources,
                            sampler=self._sampler,
                        )
                        peer.settimeout(None)
                        continue
                    if header.type == Frame.BUFFER:
                        process.stands_for(self._speakers.stands_for(key))
                    self._send(process.take(*quota.pass_on(header, payload)))
                    self.connected.saw(key, header, payload)
                    if header.type == Frame.BYE:
                        said_goodbye = True
                        break
        except (FrameError, LayoutError, OSError) as error:
            log.warning("process %d: %s; its connection is closed", who.pid, error)
            self._failed(error, note)
        except Exception as error:  # a fault of ours: no caller may take the peer's silence for success
            self._failed(error, note)
            raise
        if process is not None:
            self._send(process.finish())
        if said_goodbye:
            with suppress(OSError):  # it does not wait for the answer
                peer.sendall(DONE)

    def _greet(self, said: Hello, peer: socket.socket, who: Credentials, hold: Hold, key: int) -> Hello:
        """Enters a collector; what is known of it besides what it says."""
        if said.cupti_version != NO_CUPTI:
            self.connected.enter(key, said.resource.get(STATE), said.resource.get(SAMPLING))
        known = said if self._identifier is None else self._identifier.identify(said, who, hold)
        if BUDGET in said.resource:
            self._speakers.join(key, known.resource, partial(_tell, peer))
        return known

    def _failed(self, error: Exception, note: Note) -> None:
        note("error.type", type(error).__name__)
        self.failures.append(error)
        del self.failures[:-_MOST_FAILURES]

    def _send(self, batches: Iterator[Batch]) -> None:
        """Passes on a frame's batches.

        One frame is worked off at a time: peers that share the interpreter only slow each other down, and hold their
        tables in memory meanwhile.
        """
        items: list[Item] = []
        try:
            with self.turns.turn():
                items.extend(self._item(batch) for batch in batches)
        finally:  # what came of a frame before its fault
            for item in items:
                self._outlet.put(item)

    def _item(self, batch: Batch) -> Item:
        if self._look is not None:
            self._look(batch)
        return item_of(batch, self._topic)


def _tell(peer: socket.socket, word: bytes) -> None:
    with suppress(OSError):  # it is gone, or takes nothing in: then it has heard nothing, and asks for nothing
        peer.send(word, socket.MSG_DONTWAIT)

"""What a program observes, in a buffer until a thread sends it to the agent: for agent/observe.py.

A call appends 32 bytes to the buffer, which is one operation under the interpreter's lock, and nothing else. Whatever
cannot be kept is dropped and counted by reason, and the next agent that listens is told. It imports nothing but the
standard library.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import struct
import threading
from collections.abc import Callable, Mapping
from itertools import count

from spanlite.agent.collector import wire
from spanlite.agent.collector.link import Link, Sent
from spanlite.agent.collector.options import Options
from spanlite.contract.customs import LABELS, fit_label, fit_name, fit_value, write_series
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.runtime.settings import inherited

OBSERVATIONS = 8
"""The frame's type; see docs/frames.md."""
INTEGER, NUMBER = struct.Struct("<QqqII"), struct.Struct("<QqdII")
"""A record whose value is whole, and one whose value is a float64."""
SIZE = INTEGER.size
MOST_BYTES = 65_536 * SIZE
"""Of the buffer."""
MOST_SERIES = 1000
EVERY_S = 0.2
_LEAVE_S = 0.2
"""A program that ends waits no longer."""
_RETRY_NS = 1_000_000_000
_FRAME_BYTES = 32_768 * SIZE


class Tally:
    """Counts from any thread without a lock: the next of an `itertools.count` is one operation."""

    __slots__ = ("_taken", "add")

    def __init__(self) -> None:
        self.add: Callable[[], int] = count().__next__
        self._taken = 0

    def take(self) -> int:
        """How often it was added to since the last time; one thread alone."""
        now = self.add()  # counts itself as well
        found, self._taken = now - self._taken, now + 1
        return found


class Recorder:
    """A process's buffer, series and sender."""

    def __init__(self, *, variables: Callable[[], Mapping[str, str]] = inherited, clock: Clock | None = None) -> None:
        """Args: variables: those of the environment, asked when the first observation comes."""
        self._variables = variables
        self._clock = clock or SystemClock()
        self.now = self._clock.unix_ns
        self.buffer = bytearray()
        self.before_sending: list[Callable[[], None]] = []
        """Called by the sender's thread each time, e.g. to look what a GPU has finished."""
        self._numbers: dict[str, int] = {}
        self._texts: list[bytes] = []
        self._begin()
        os.register_at_fork(after_in_child=self._after_fork)

    def _begin(self) -> None:
        """As it is before the first observation, but for the series."""
        self.room = 0
        """Bytes that the buffer may take; 0 until the sender runs, so that the first call goes to `make_room`."""
        self.value, self.full, self.series_cap = Tally(), Tally(), Tally()
        self._lock = threading.RLock()  # a finalizer may observe while this thread holds it
        self._wake, self._sent = threading.Event(), threading.Event()
        self._leaving = False
        self._disabled: bool | None = None
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._lost: dict[str, int] = {}
        self._names_sent = 0
        self._retry_ns = 0
        self._with_devices = self._named_devices = False

    def number(self, name: object, labels: Mapping[str, object], *, device: int | None) -> int | None:
        """The number of a series, new or known; None where there are too many.

        Whatever a name or label is, it becomes a fit text.
        """
        made = {fit_label(str(label)): fit_value(str(value)) for label, value in list(labels.items())[:LABELS]}
        text = write_series(fit_name(str(name)), made)
        with self._lock:
            self._with_devices |= device is not None
            known = self._numbers.get(text)
            if known is None and len(self._texts) < MOST_SERIES:
                self._texts.append(text.encode())
                known = self._numbers[text] = len(self._texts)
            return known

    def make_room(self) -> bool:
        """Whether a record may be appended, asked where the buffer seems full: at first it only has no sender."""
        if self._thread is None and not self._disabled:
            with self._lock:
                self._start()
        if self._disabled:
            return False
        if len(self.buffer) < self.room:
            return True
        self.full.add()
        return False

    def flush(self, timeout_s: float = 1.0) -> None:
        """Has everything sent now that was observed, and waits for it."""
        for _ in range(2):  # one round may be under way already
            if self._thread is None:
                return
            self._sent.clear()
            self._wake.set()
            self._sent.wait(timeout_s)

    def close(self) -> None:
        """Sends what is there and ends the sender, within 200 ms; observations after that begin another."""
        thread = self._thread
        if thread is not None:
            self._leaving = True
            self._wake.set()
            thread.join(_LEAVE_S)
            if not thread.is_alive():
                self.room, self._thread, self._leaving = 0, None, False

    def _start(self) -> None:
        if self._thread is not None:
            return
        self._options = Options.of(self._variables())
        self._disabled = self._options.disabled
        if self._disabled:
            return
        thread = threading.Thread(target=self._run, name="spanlite-observe", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no threads to be had, or the interpreter is ending: this process stays silent
            self._disabled = True
            return
        self._thread = thread
        self.room = MOST_BYTES
        atexit.unregister(self.close)
        atexit.register(self.close)

    def _after_fork(self) -> None:
        """The child has no sender and another session; what the parent had not sent is the parent's to send."""
        link = self._link
        del self.buffer[:]
        self._begin()
        if link is not None:
            link.close()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())  # they are the program's
        link = self._link = Link(self._options.sockets, self._clock, hung_ns=self._options.hung_ns, inert=lambda: False)
        while not self._leaving:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            if self._leaving:
                link.hurry_ns = self._clock.monotonic_ns() + round(_LEAVE_S * 0.7e9)
            for look in self.before_sending:
                look()
            self._send(link)
            self._sent.set()
        if link.is_open:
            link.send(wire.BYE, wire.text({"reason": "exit"}))
        link.close()

    def _send(self, link: Link) -> None:
        size = len(self.buffer)
        records = memoryview(bytes(self.buffer[:size]))
        del self.buffer[:size]  # others may have appended meanwhile
        self._fold_losses()
        if not records and not self._lost:
            return
        if not self._connect(link):
            self._lose("no_agent", len(records) // SIZE)
            return
        for at in range(0, size, _FRAME_BYTES):
            part = records[at : at + _FRAME_BYTES]
            sent = self._send_names(link)
            if sent is not Sent.SENT or link.deliver(OBSERVATIONS, part) is not Sent.SENT:
                self._lose("lost", (size - at) // SIZE)
                return
        if self._lost:
            said = {f"dropped.observation_{reason}": str(number) for reason, number in self._lost.items()}
            if link.deliver(wire.STATS, wire.text(said)) is Sent.SENT:
                self._lost.clear()

    def _connect(self, link: Link) -> bool:
        """Whether there is a connection whose HELLO names the devices that observations name."""
        if link.check() and (self._named_devices or not self._with_devices or not self._devices()):
            return True
        if link.is_open:
            link.send(wire.BYE, wire.text({"reason": "devices"}))
            link.close()
        now = self._clock.monotonic_ns()
        if now < self._retry_ns:
            return False
        self._retry_ns = now + _RETRY_NS
        if not link.open() or link.send(wire.HELLO, wire.text(self._hello())) is not Sent.SENT:
            return False
        self._names_sent = self._retry_ns = 0
        return True

    def _hello(self) -> dict[str, str]:
        from spanlite.agent.collector.messages import resource

        devices = self._devices() if self._with_devices else {}
        self._named_devices = bool(devices)
        return {
            "cupti_version": "0",
            "session": secrets.token_hex(8),
            **devices,
            **resource(self._options),
            "resource.spanlite.collector.state": "observing",
        }

    @staticmethod
    def _devices() -> dict[str, str]:
        from spanlite.agent.collector.cupti import find_cuda, gpus

        return gpus(find_cuda())

    def _send_names(self, link: Link) -> Sent:
        """Those that the agent does not know yet; every number of a record taken before has its text by now."""
        upto = len(self._texts)
        new = enumerate(self._texts[self._names_sent : upto], self._names_sent + 1)
        sent = link.send(wire.NAMES, wire.names(new)) if upto > self._names_sent else Sent.SENT
        self._names_sent = upto
        return sent

    def _fold_losses(self) -> None:
        for reason, tally in (("value", self.value), ("full", self.full), ("series_cap", self.series_cap)):
            self._lose(reason, tally.take())

    def _lose(self, reason: str, number: int) -> None:
        if number:
            self._lost[reason] = self._lost.get(reason, 0) + number

"""Emitting what is ready: at once or by a pace, with an account, checkpoints, and an end that can be gone on from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spanlite.replay.checkpoint import Account, Checkpoint, write_checkpoint
from spanlite.replay.deliveries import DURATION, LATE, Deliveries, Ready
from spanlite.replay.moments import Moment
from spanlite.replay.ports import Sink
from spanlite.runtime.clock import Clock

IN_FLIGHT = 64
CHECKPOINT_NS = 1_000_000_000
_PATIENCE_S = 10.0
"""How long an early end waits for what is on its way."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where checkpoints go.

    Attributes:
        path: the file.
        settings: what the replay was called with.
        offset_ns: by how much times are moved.
        every_ns: how often.
    """

    path: Path
    settings: Mapping[str, object]
    offset_ns: int
    every_ns: int = CHECKPOINT_NS


class Emission:
    """One run's way to a sink, as a context: left without an error and after `finish`, all is there for good.

    Left otherwise, a checkpoint is written if one is kept, and what cannot be gone on from is removed.
    """

    def __init__(
        self, sink: Sink, account: Account, clock: Clock, *, keeping: Keeping | None = None, in_flight: int = IN_FLIGHT
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._keeping = keeping
        self._deliveries = Deliveries(sink, account, most=in_flight)
        self._handed: deque[Ready] = deque()
        self._kept_ns = clock.monotonic_ns()
        self._state: Mapping[str, int] = {}
        self._complete = False

    @property
    def account(self) -> Account:
        """What has been acknowledged so far."""
        return self._deliveries.account

    def __enter__(self) -> Emission:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._complete:
            try:
                self._keep()
            finally:
                self._sink.close(complete=False)

    def handed(self, items: Iterable[Ready]) -> Iterator[Ready]:
        """The items, remembered until they are emitted: those that are passed over were left out for being late."""
        for ready in items:
            self._handed.append(ready)
            yield ready

    def emit(self, ready: Ready, moment: Moment | None = None) -> None:
        """Hands an item on, let go at that moment if a pacer did; those handed out before it are given up.

        Raises:
            SpanliteError: the sink takes no more.
        """
        while self._handed:
            oldest = self._handed.popleft()
            if oldest is ready:
                break
            self._deliveries.give_up(oldest, LATE)
        self._deliveries.send(ready, moment)
        self._deliveries.settle()
        if self._keeping is not None and self._clock.monotonic_ns() - self._kept_ns >= self._keeping.every_ns:
            self._keep()

    def drain(self, stopped: Callable[[], bool] = lambda: True) -> bool:
        """Waits for what is on its way, after a stop for at most ten seconds; whether all of it is acknowledged."""
        deadline_ns: int | None = None
        while not self._deliveries.drain(0.2):
            now_ns = self._clock.monotonic_ns()
            if deadline_ns is None and stopped():
                deadline_ns = now_ns + round(_PATIENCE_S * 1e9)
            if deadline_ns is not None and now_ns > deadline_ns:
                return False
        return True

    def finish(self, due_spans: int | None = None) -> None:
        """All was emitted and acknowledged: makes it whole.

        Args:
            due_spans: where it was ended by its duration, how many spans were due by then; what is missing is lost.

        Raises:
            SpanliteError: it cannot be made whole.
        """
        for ready in self._handed:
            self._deliveries.give_up(ready, LATE if due_spans is None else DURATION)
        account = self._deliveries.settle()
        if due_spans is not None and (missing := due_spans - account.spans - sum(account.lost.values())) > 0:
            self._deliveries.miss(missing, DURATION)
        self._keep()
        self._sink.close(complete=True)
        self._complete = True

    def conclude(self) -> None:
        """Says in the checkpoint that nothing is left to do, not even what follows the emission."""
        self._write(complete=True)

    def _keep(self) -> None:
        if self._keeping is not None:
            self._state = self._sink.sync()
            self._write(complete=False)
            self._kept_ns = self._clock.monotonic_ns()

    def _write(self, *, complete: bool) -> None:
        if self._keeping is not None:
            facts = (self._keeping.settings, self._keeping.offset_ns, self.account, self._state)
            write_checkpoint(self._keeping.path, Checkpoint(*facts, complete=complete))

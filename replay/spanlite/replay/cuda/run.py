"""One run: due times of kernels, fed to the GPU ahead of time, and how late they began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.replay.ahead import ReadAhead
from spanlite.replay.cuda.launches import Launches
from spanlite.replay.cuda.library import Enactor, Stand
from spanlite.replay.cuda.timeline import Rows, Timeline
from spanlite.replay.pacing.lateness import Lateness
from spanlite.replay.pacing.schedule import Chunk, Due, Schedule, scheduled
from spanlite.replay.pacing.settings import Pace
from spanlite.runtime.clock import Clock

_CHUNKS_AHEAD = 16
_LEAD_NS = 100_000_000
_LOOK_S = 0.005
_REPORT_NS = 1_000_000_000


@dataclass
class Enacted:
    """A run that has ended, or runs; read = launched + all that was lost (after a stop, no more is read).

    Attributes:
        ended: `finished` or `stopped`.
        launched, started: kernels handed to CUDA, and those that the GPU said had begun.
        lost: kernels not launched by reason: `does_not_fit`, `stopped`.
        lengthened: kernels that are shorter than this GPU's shortest of their shape.
        lateness: from due to the start on the GPU; an early start counts as 0.
        early: kernels that began before they were due.
        most_early_ns: by how much at most.
        signed_ns: sum of all, early ones below 0: their mean is the bias.
        took_ns: from time 0 to the end of the last kernel.
    """

    ended: str = "finished"
    launched: int = 0
    started: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    lengthened: int = 0
    lateness: Lateness = field(default_factory=Lateness)
    early: int = 0
    most_early_ns: int = 0
    signed_ns: int = 0
    took_ns: int = 0

    def add(self, late_ns: Int64) -> None:
        """Counts kernels that have begun."""
        if not len(late_ns):
            return
        self.lateness.add(np.maximum(late_ns, 0).tolist())
        self.early += int((late_ns < 0).sum())
        self.most_early_ns = max(self.most_early_ns, -int(late_ns.min()))
        self.signed_ns += int(late_ns.sum())
        self.started += len(late_ns)


@dataclass(frozen=True)
class Watch:
    """Who looks at a run.

    Attributes:
        stopped: ends it once it is true.
        progress: is told where it stands, once a second.
    """

    stopped: Callable[[], bool] = lambda: False
    progress: Callable[[Stand, Lateness], object] | None = None


def due_kernels(timeline: Timeline, pace: Pace) -> Iterator[Due[Rows]]:
    """All kernels of all turns, and when they are due."""

    def turn(number: int) -> Iterator[Chunk[Rows]]:  # noqa: ARG001  # each turn is the same
        return (Chunk(rows.start_ns, rows) for rows in timeline.rows())  # type: ignore[arg-type]  # a column of items

    return scheduled(Schedule(pace), turn)


def enact(
    timeline: Timeline,
    launches: Launches,
    enactor: Enactor,
    pace: Pace,
    clock: Clock,
    *,
    ahead_ns: int,
    start_ns: int | None = None,
    watch: Watch | None = None,
) -> Enacted:
    """Launches every kernel so that it begins when it is due.

    Args:
        timeline: which kernels.
        launches: what they are on this GPU.
        enactor: the GPU.
        pace: when.
        clock: the time.
        ahead_ns: how long before its time a kernel may be handed to CUDA, if the one before it is still to end.
        start_ns: time 0, monotonic; by default 0.1 s after the first kernels have been read.
        watch: who looks.

    Raises:
        ReplayError: the GPU failed.
        ArchiveError: a file is damaged or gone.
    """
    return _Run(launches, enactor, clock, watch or Watch()).play(due_kernels(timeline, pace), ahead_ns, start_ns)


class _Run:
    def __init__(self, launches: Launches, enactor: Enactor, clock: Clock, watch: Watch) -> None:
        self._launches, self._enactor, self._clock, self._watch = launches, enactor, clock, watch
        self._done = Enacted()
        self._offered = 0
        self._told_ns = clock.monotonic_ns()
        self._recent = Lateness()

    def play(self, due: Iterator[Due[Rows]], ahead_ns: int, start_ns: int | None) -> Enacted:
        enactor, done = self._enactor, self._done
        begun = False
        with ReadAhead(due, most=_CHUNKS_AHEAD) as made:
            for chunk in made:
                if not begun:
                    start_ns = self._clock.monotonic_ns() + _LEAD_NS if start_ns is None else start_ns
                    enactor.begin(start_ns, ahead_ns)
                    begun = True
                if not self._feed(chunk):
                    break
            while begun and not enactor.drained:
                self._look()
        if begun and start_ns is not None:
            done.took_ns = max(self._clock.monotonic_ns() - start_ns, 0)
        self._look()
        done.launched = enactor.stand.launched
        done.lost["stopped"] += self._offered - done.launched
        done.lost += Counter()  # without what is 0
        return done

    def _feed(self, chunk: Due[Rows]) -> bool:
        """Hands on a chunk; false if it was told to stop."""
        rows: Rows = chunk.items  # type: ignore[assignment]  # a column of items
        launch = self._launches.of_kernel[rows.kernel]
        fits = launch >= 0
        self._done.lost["does_not_fit"] += len(rows) - int(fits.sum())
        self._done.lengthened += int((fits & (rows.duration_ns < self._launches.least_ns[rows.kernel])).sum())
        due_ns, rows, launch = chunk.due_ns[fits], rows[fits], launch[fits]
        self._offered += len(rows)
        while len(rows):
            taken = self._enactor.feed(due_ns, rows.duration_ns, rows.queue, launch)
            due_ns, rows, launch = due_ns[taken:], rows[taken:], launch[taken:]
            if not self._look(pause=not taken):
                return False
        return True

    def _look(self, *, pause: bool = True) -> bool:
        """Takes what is told; false once it is to stop."""
        if pause:
            self._clock.sleep_s(_LOOK_S)
        late_ns = self._enactor.started()
        self._done.add(late_ns)
        self._recent.add(np.maximum(late_ns, 0).tolist())
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._told_ns >= _REPORT_NS:
            if self._watch.progress:
                self._watch.progress(self._enactor.stand, self._recent)
            self._told_ns, self._recent = now_ns, Lateness()
        if self._watch.stopped() and self._done.ended != "stopped":
            self._done.ended = "stopped"
            self._enactor.stop()
        return self._done.ended != "stopped"

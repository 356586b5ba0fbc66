"""Samples and spans of one GPU, held back until both are there: then each sample is given to whom it belongs.

Samples come within a tenth of a second, spans when their process has flushed them. A sample is settled once every
process that used the GPU lately has told of work a second later than it, or when it is 5 s old. A span that comes
after that is counted as late; it may have deprived a sample of its owner, or another kernel of being alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.counters.joining import FATES as JOINED
from spanlite.agent.counters.joining import IDLE, OWNED, join
from spanlite.agent.counters.samples import SM_ACTIVE, Samples, no_samples
from spanlite.contract.columns import Int32, Int64

LATEST_NS = 5 * 10**9
"""After which a sample waits no longer."""
KEPT_NS = 10 * 10**9
SLACK_NS = 10**9
"""Records of one process come in no order: what began earlier may end, and be told of, later. So long it may take."""
SILENT_NS = 60 * 10**9
"""A process that told of nothing for so long is no longer waited for."""
MOST_SPANS = 1 << 20
COPY, UNSEEN, INCOMPLETE = len(JOINED), len(JOINED) + 1, len(JOINED) + 2
FATES = (*JOINED, "copy", "unseen", "incomplete")
NOBODY = -1
"""Instead of a kernel's number: work on SMs that is none, such as a memory set."""
_ACTIVE_PERCENT = 1.0
"""Of SM time, above which somebody must have run."""


@dataclass(slots=True)
class _Session:
    """A process that used the GPU: its newest end, when it was heard of, and since when spans of it are missing."""

    newest_ns: int
    heard_ns: int
    gaps_since_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """Work on a GPU's SMs, of one process.

    Attributes:
        start_ns, end_ns: shape (n,).
        kernel: number of each, or NOBODY.
    """

    start_ns: Int64
    end_ns: Int64
    kernel: Int32

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, rows: NDArray[np.bool_]) -> Spans:
        """The rows of a mask."""
        return Spans(self.start_ns[rows], self.end_ns[rows], self.kernel[rows])


@dataclass(frozen=True, slots=True)
class Settled:
    """Samples that wait no longer.

    Attributes:
        fate: uint8, index into FATES.
        kernel: number of the kernel that owns each; NOBODY for all but OWNED.
    """

    samples: Samples
    fate: NDArray[np.uint8]
    kernel: Int32


class Hold:
    """Any thread may call. Times are Unix ns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples = no_samples(1)
        self._active = 0
        self._spans: list[Spans] = []
        self._sessions: dict[int, _Session] = {}
        self._settled_ns = -(1 << 62)
        self._blind_ns = -(1 << 62)

    def begin(self, metrics: tuple[str, ...]) -> int:
        """Sampling begins, with these metrics; what was still held is given up: how many samples that is."""
        with self._lock:
            given_up = len(self._samples)
            self._samples, self._active = no_samples(len(metrics)), metrics.index(SM_ACTIVE)
            return given_up

    def give_up(self) -> int:
        """Forgets the samples that are held; how many that is."""
        with self._lock:
            given_up = len(self._samples)
            self._samples = self._samples.take(slice(0, 0))
            return given_up

    def add(self, samples: Samples) -> int:
        """Later samples than those before. Returns how many older ones were given up, since nobody fetched them.

        Where these are earlier, since the clock was set back, all before are given up.
        """
        with self._lock:
            held = self._samples
            if len(held) and len(samples) and samples.start_ns[0] < held.end_ns[-1]:
                self._samples = samples
                return len(held)
            joined = self._samples.joined(samples)
            old = int(np.searchsorted(joined.end_ns, joined.end_ns[-1:] - KEPT_NS)[0]) if len(joined) else 0
            self._samples = joined.take(slice(old, None))
            return old

    def offer(self, session: int, spans: Spans, *, complete: bool, now_ns: int) -> int:
        """Spans of a process, in any order. Returns how many of them are late.

        Args:
            complete: whether all that the process ran meanwhile is told of.
        """
        first, newest = int(spans.start_ns.min()), int(spans.end_ns.max())
        with self._lock:
            known = self._sessions.setdefault(session, _Session(newest, now_ns))
            if not complete and known.gaps_since_ns is None:
                known.gaps_since_ns = min(first, known.newest_ns)
            known.newest_ns, known.heard_ns = max(known.newest_ns, newest), now_ns
            if self._room(len(spans), now_ns):
                self._spans.append(spans)
            else:
                self._blind_ns = max(self._blind_ns, newest)
            return int((spans.start_ns < self._settled_ns).sum())

    def settle(self, now_ns: int) -> Settled:
        """Gives out the samples that need not wait any longer, and forgets the spans of their time."""
        with self._lock:
            for silent in [key for key, one in self._sessions.items() if one.heard_ns < now_ns - SILENT_NS]:
                del self._sessions[silent]
            until_ns = self._until(now_ns)
            count = int(np.searchsorted(self._samples.end_ns, until_ns, side="right"))
            samples, self._samples = self._samples.take(slice(0, count)), self._samples.take(slice(count, None))
            spans = self._gathered()
            gaps = [one.gaps_since_ns for one in self._sessions.values() if one.gaps_since_ns is not None]
            gaps_ns, blind_ns, active = min(gaps, default=1 << 62), self._blind_ns, self._active
            held_ns = min(until_ns, int(self._samples.start_ns[0])) if len(self._samples) else until_ns
            self._spans = [spans.take(spans.end_ns > held_ns)]
        return _settle(samples, samples.values[:, active], spans, gaps_ns, blind_ns)  # offers do not wait for it

    def _until(self, now_ns: int) -> int:
        """The end of what is settled now; it goes back only where the clock was set back."""
        newest = [min(one.newest_ns, now_ns) for one in self._sessions.values()]
        until_ns = max(now_ns - LATEST_NS, min(newest, default=now_ns - LATEST_NS) - SLACK_NS)
        self._settled_ns = until_ns if self._settled_ns > now_ns else max(until_ns, self._settled_ns)
        return self._settled_ns

    def _room(self, more: int, now_ns: int) -> bool:
        """Whether so many spans can be held as well, once those are gone whose samples must have been settled."""
        if sum(map(len, self._spans)) + more > MOST_SPANS:
            spans = self._gathered()
            self._spans = [spans.take(spans.end_ns > now_ns - KEPT_NS)]
        return sum(map(len, self._spans)) + more <= MOST_SPANS

    def _gathered(self) -> Spans:
        nothing: Int64 = np.zeros(0, dtype=np.int64)
        parts = [Spans(nothing, nothing, nothing.astype(np.int32)), *self._spans]
        return Spans(
            np.concatenate([part.start_ns for part in parts]),
            np.concatenate([part.end_ns for part in parts]),
            np.concatenate([part.kernel for part in parts]),
        )


def _settle(samples: Samples, active: NDArray[np.float64], spans: Spans, gaps_since_ns: int, blind_ns: int) -> Settled:
    joined = join(samples, spans.start_ns, spans.end_ns)
    fate = joined.fate.copy()
    kernel = np.full(len(samples), NOBODY, dtype=np.int32)
    owned = fate == OWNED
    kernel[owned] = spans.kernel[joined.owner[owned]]
    fate[owned & (kernel == NOBODY)] = COPY
    fate[(fate == IDLE) & (active > _ACTIVE_PERCENT)] = UNSEEN
    fate[(fate != IDLE) & ((samples.end_ns > gaps_since_ns) | (samples.start_ns < blind_ns))] = INCOMPLETE
    kernel[fate != OWNED] = NOBODY
    return Settled(samples, fate, kernel)

"""One GPU opened for sampling, with as many metrics as fit, by time or by cycles; and the order of what it gives."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import numpy as np

from spanlite.agent.counters.library import Decoded, Device, Versions
from spanlite.agent.counters.samples import METRICS, NEEDED, Samples
from spanlite.agent.counters.states import NOT_SUPPORTED
from spanlite.contract.errors import CountersError

HARDWARE_BYTES = 128 << 20
"""Six metrics of a busy H200 filled 32 MiB between two decodings at 1 kHz."""
_ROOM_NS = 500_000_000
"""One decoding holds what is sampled in so long; CUPTI took 52 ms on an H200 to empty an image of 4,096 samples."""
_CYCLES_A_NS = 1.5
"""Of the system clock, about: only chips that know no other trigger need it."""
_ANEW_NS = 10**9
"""Samples that are so much older than the last ones mean that the clock was set back."""


class Opened(Protocol):
    """library.Sampling, or what stands for it in tests."""

    def decode(self) -> Decoded: ...

    def close(self) -> None: ...


class Counters(Protocol):
    """library.CountersLibrary, likewise."""

    versions: Versions

    def probe(self, device: int) -> Device: ...

    def passes(self, device: int, metrics: tuple[str, ...]) -> int: ...

    def open(
        self,
        device: int,
        metrics: tuple[str, ...],
        *,
        interval: int,
        cycles: bool = False,
        hardware_bytes: int,
        capacity: int,
    ) -> Opened: ...


class Reading:
    """A device that is being sampled.

    Args:
        interval_ns: between samples.

    Raises:
        CountersError: it is not allowed, not possible, or somebody else samples.
    """

    def __init__(self, library: Counters, device: int, interval_ns: int) -> None:
        self.metrics = _fitting(library, device)
        self._opened = self._open(library, device, interval_ns)

    def _open(self, library: Counters, device: int, interval_ns: int) -> Opened:
        room = max(_ROOM_NS // interval_ns, 1)
        try:
            return library.open(
                device, self.metrics, interval=interval_ns, hardware_bytes=HARDWARE_BYTES, capacity=room
            )
        except CountersError as error:
            if error.result != NOT_SUPPORTED:
                raise
        cycles = round(interval_ns * _CYCLES_A_NS)
        return library.open(
            device, self.metrics, interval=cycles, cycles=True, hardware_bytes=HARDWARE_BYTES, capacity=room
        )

    def decode(self) -> Decoded:
        """What has been sampled since.

        Raises:
            CountersError: CUPTI says no; close it.
        """
        return self._opened.decode()

    def close(self) -> None:
        """Ends it.

        Raises:
            CountersError: CUPTI did not end it as it should; it is ended all the same.
        """
        self._opened.close()


class InOrder:
    """Takes samples that follow each other, and counts those that never came."""

    def __init__(self) -> None:
        self._end_ns: int | None = None
        self.lost: Counter[str] = Counter()
        """Samples by reason, since the caller took them away."""

    def anew(self) -> None:
        """What comes next follows nothing: meanwhile nobody sampled."""
        self._end_ns = None

    def take(self, samples: Samples, *, overflow: bool) -> Samples:
        """The samples that are later than all before, each later than the one before it.

        Args:
            overflow: what is missing was lost since the GPU's buffer was full.
        """
        if self._end_ns is not None and len(samples) and int(samples.end_ns[0]) < self._end_ns - _ANEW_NS:
            self.anew()
        if not len(samples):
            return samples
        before = samples.start_ns[0] if self._end_ns is None else np.int64(self._end_ns)
        latest = np.maximum.accumulate(np.concatenate(([before], samples.end_ns)))[:-1]
        keep = samples.start_ns >= latest
        self.lost["order"] += int((~keep).sum())
        samples = samples if keep.all() else samples.take(keep)
        if len(samples):
            ends = np.concatenate(([before], samples.end_ns[:-1]))
            missing = np.rint((samples.start_ns - ends) / max(1.0, float(np.median(samples.duration_ns))))
            self.lost["overflow" if overflow else "gap"] += int(missing.sum())
            self._end_ns = int(samples.end_ns[-1])
        return samples


def _fitting(library: Counters, device: int) -> tuple[str, ...]:
    """As many of METRICS as one pass takes.

    Raises:
        CountersError: not even those that are needed, or the device cannot be asked.
    """
    chosen: tuple[str, ...] = ()
    for metric in METRICS:
        try:
            fits = library.passes(device, (*chosen, metric)) == 1
        except CountersError:
            if metric in NEEDED:
                raise
            continue  # this chip has no such counter
        if fits:
            chosen = (*chosen, metric)
        elif metric in NEEDED:
            raise CountersError(-4, f"{metric} does not fit one pass with {', '.join(chosen) or 'nothing else'}")
    return chosen

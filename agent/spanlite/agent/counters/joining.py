"""Samples of a GPU's counters × the kernels that ran on it: which sample is whose.

A sample is a kernel's where one execution of it lasted over the whole interval and nothing else ran on the GPU's SMs
in it, not even for a part of it. All other samples are nobody's: idle, partial (one kernel, which began or ended
inside), shared (several, at once or one after the other).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.counters.samples import Samples
from spanlite.contract.columns import Int64

IDLE, OWNED, PARTIAL, SHARED = 0, 1, 2, 3
FATES = ("idle", "owned", "partial", "shared")


@dataclass(frozen=True, slots=True)
class Joined:
    """One entry a sample.

    Attributes:
        fate: uint8, one of IDLE, OWNED, PARTIAL, SHARED.
        owner: int64 row of the span that has it, -1 for all but OWNED.
    """

    fate: NDArray[np.uint8]
    owner: Int64


def join(samples: Samples, start_ns: Int64, end_ns: Int64) -> Joined:
    """Gives each sample its owner.

    Spans may come in any order and overlap; those that end where they start meet nothing.

    Args:
        samples: in order, none overlapping another.
        start_ns, end_ns: of the spans of one GPU, shape (m,).
    """
    count = len(samples)
    # The samples that a span meets are neighbours: from the first that ends after its start to the last that starts
    # before its end. A difference at both edges, summed up, counts the spans that meet each sample, and adds up their
    # rows: where the count is 1, the sum is the row.
    first = np.searchsorted(samples.end_ns, start_ns, side="right")
    past = np.searchsorted(samples.start_ns, end_ns, side="left")
    meets = np.flatnonzero((past > first) & (end_ns > start_ns))
    number = _summed(first[meets], past[meets], np.ones(len(meets)), count)
    row = _summed(first[meets], past[meets], meets.astype(np.float64), count)
    alone = number == 1
    owner = np.where(alone, row, -1)
    whole = np.zeros(count, dtype=np.bool_)
    whole[alone] = (start_ns[owner[alone]] <= samples.start_ns[alone]) & (end_ns[owner[alone]] >= samples.end_ns[alone])
    fate = np.where(number == 0, IDLE, np.where(whole, OWNED, np.where(alone, PARTIAL, SHARED)))
    return Joined(fate.astype(np.uint8), np.where(whole, owner, -1))


def _summed(first: Int64, past: Int64, weight: NDArray[np.float64], count: int) -> Int64:
    """Sum over spans of their weight in each sample; exact, as rows are far below 2^26 and their sums below 2^53."""
    begun = np.bincount(first, weight, count + 1)
    ended = np.bincount(past, weight, count + 1)
    return np.cumsum(begun - ended)[:count].astype(np.int64)

"""Keeps one trace in N, whole: the same ones in every process of a node, of the cluster, and after every restart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import SpanColumns, Table
from spanlite.contract.errors import UsageError
from spanlite.contract.ids import mix64

MOST = 1 << 16
"""The largest N: weights have 32 bits, and windows need some of them as well."""
_HEAVIEST = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was kept.

    Attributes:
        columns: the kept rows, those of traces N times as heavy.
        left_out: rows that were not.
        capped: kept rows whose weight would not have fitted 32 bits.
    """

    columns: SpanColumns
    left_out: int
    capped: int


class HeadSampler:
    """Args:
    one_in: N; 1 keeps everything.

    Raises:
        UsageError: N is no number from 1 to 65536.
    """

    def __init__(self, one_in: int = 1) -> None:
        if not 1 <= one_in <= MOST:
            raise UsageError(f"one trace in {one_in} cannot be kept; write a number from 1 to {MOST}")
        self.one_in = one_in

    def keeps(self, ids: Table | NDArray[np.void]) -> NDArray[np.bool_]:
        """Which traces are kept, shape (t,).

        The hash is that of `contract.ids`: with the id as two big-endian words, mix64(high xor mix64(low)); those are
        kept for which it is a multiple of N. So who keeps one in 2·N keeps a subset.

        Args:
            ids: of dtype V16, shape (t,).
        """
        words = np.ascontiguousarray(ids).view(">u8").reshape(-1, 2).astype(np.uint64)
        hashed = mix64(words[:, 0] ^ mix64(words[:, 1]))
        return np.asarray(hashed % np.uint64(self.one_in) == 0)

    def sample(self, columns: SpanColumns) -> Sampled:
        """Keeps the rows of the kept traces, which then stand for all of them, and rows without a trace as they are."""
        if self.one_in == 1:
            return Sampled(columns, 0, 0)
        traced = columns.trace >= 0
        keep = np.append(self.keeps(columns.traces["id"]), True)[columns.trace]  # -1 is the place after the end
        weight = columns.weight.astype(np.uint64) * np.where(traced, np.uint64(self.one_in), np.uint64(1))
        capped = keep & (weight > _HEAVIEST)
        weighted = replace(columns, weight=np.minimum(weight, _HEAVIEST).astype(np.uint32))
        return Sampled(weighted.take(keep), int((~keep).sum()), int(capped.sum()))

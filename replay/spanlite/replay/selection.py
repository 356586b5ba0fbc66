"""Which spans a replay takes: tests on values that repeat are made once a value, not once a span."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, fields
from fnmatch import translate
from re import compile as pattern
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import UInt64
from spanlite.contract.errors import UsageError
from spanlite.contract.ids import mix64
from spanlite.replay.runs import id_codes, numbers, text_codes

Mask = NDArray[np.bool_]
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """All conditions hold for a span that is taken; of several values of one condition one must.

    Attributes:
        from_ns, to_ns: first start taken, and first one that is not; Unix nanoseconds.
        traces: trace ids, 16 bytes each.
        hosts, gpus: as columns `host` and `gpu_uuid` hold them.
        kernels: patterns (`*`, `?`, `[…]`) of the kernel's id or its full name.
        stages: patterns of the stage; `""` for spans outside all stages.
        least_ns: shortest duration.
        whole_traces: also every span of a trace that has one that is taken.
        share: of all traces, those whose id hashes to less; 1 takes all. Whole traces are thinned, on all nodes alike;
            spans outside traces batch by batch.
        share_seed: another one takes other traces.
    """

    from_ns: int = _LOWEST
    to_ns: int = _HIGHEST
    traces: tuple[bytes, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    least_ns: int = 0
    whole_traces: bool = False
    share: float = 1.0
    share_seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"a sample of {self.share:g} of all traces is none; write a share such as 10% or 0.1")

    @property
    def everything(self) -> bool:
        """Whether no condition leaves any span out."""
        conditions = [field for field in fields(self) if field.name not in ("whole_traces", "share_seed")]
        return all(getattr(self, field.name) == field.default for field in conditions)

    @property
    def columns(self) -> list[str]:
        """The columns that `mask` reads."""
        asked = {
            "start_ns": self.from_ns != _LOWEST or self.to_ns != _HIGHEST,
            "trace_id": bool(self.traces) or self.share < 1,
            "producer": self.share < 1,
            "batch_sequence": self.share < 1,
            "host": bool(self.hosts),
            "gpu_uuid": bool(self.gpus),
            "kernel": bool(self.kernels),
            "name": bool(self.kernels),
            "stage": bool(self.stages),
            "duration_ns": self.least_ns > 0,
        }
        return [name for name, wanted in asked.items() if wanted]

    def mask(self, table: Any) -> Mask:
        """Which rows of a table with `columns` meet the conditions themselves, shape (n,)."""
        taken = np.ones(len(table), dtype=bool)
        if self.from_ns != _LOWEST or self.to_ns != _HIGHEST:
            start = numbers(table["start_ns"])
            taken &= (start >= self.from_ns) & (start < self.to_ns)
        if self.least_ns > 0:
            taken &= numbers(table["duration_ns"]) >= self.least_ns
        if self.traces:
            taken &= among(table["trace_id"], set(self.traces))
        if self.share < 1:
            taken &= self._sampled(table)
        for name, wanted in (("host", self.hosts), ("gpu_uuid", self.gpus)):
            if wanted:
                taken &= _matching(table[name], wanted.__contains__)
        if self.kernels:
            matches = _any_of(self.kernels)
            taken &= _matching(table["kernel"], matches) | _matching(table["name"], matches)
        if self.stages:
            taken &= _matching(table["stage"], _any_of(self.stages))
        return taken

    def _sampled(self, table: Any) -> Mask:
        most = np.uint64(min(int(self.share * 2.0**64), 2**64 - 1))
        seed = np.uint64(self.share_seed & (2**64 - 1))
        trace, traces = id_codes(table["trace_id"])
        producer, producers = id_codes(table["producer"])
        of_trace = np.append(_hash(traces, seed) < most, False)
        taken: Mask = of_trace[trace]
        outside = np.flatnonzero(trace < 0)
        if len(outside):
            sequence = numbers(table["batch_sequence"])[outside]
            taken[outside] = mix64(_hash(producers, seed)[producer[outside]] ^ mix64(sequence)) < most
        return taken

    def may_hold(self, least_start: int, most_start: int) -> bool:
        """Whether rows with starts in a closed range may meet the conditions; never so of those of a whole trace."""
        return most_start >= self.from_ns and least_start < self.to_ns


EVERYTHING = Selection()


def among(column: Any, ids: Set[bytes]) -> Mask:
    """Which rows of a column of 16-byte ids hold one of `ids`."""
    codes, values = id_codes(column)
    return np.array([*(value.tobytes() in ids for value in values), False], dtype=bool)[codes]


def _hash(ids: NDArray[np.void], seed: np.uint64) -> UInt64:
    """A hash of ids of 16 bytes, evenly spread, whatever their bytes are."""
    words = ids.view("<u8").reshape(-1, 2)
    return mix64(mix64(words[:, 0] ^ seed) ^ words[:, 1])


def _matching(column: Any, matches: Callable[[str], bool]) -> Mask:
    codes, values = text_codes(column)
    return np.array([*map(matches, values), matches("")], dtype=bool)[codes]


def _any_of(patterns: Sequence[str]) -> Callable[[str], bool]:
    compiled = [pattern(translate(text)) for text in patterns]
    return lambda text: any(one.match(text) for one in compiled)

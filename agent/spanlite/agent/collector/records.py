"""One pass over the records of a buffer: how many spans, and which kernel names. No loop per kernel in Python."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from spanlite.agent.collector.abi import CONCURRENT_KERNEL, KERNEL, MAX_LIMIT_REACHED, MEMCPY, MEMSET, SUCCESS

_NAME = 104
"""Offset of a kernel's name pointer, in all layouts that are known."""
_ALIGNMENT = 8
_LONGEST = 1 << 16
_KINDS = 256
_AT_ONCE = 8
"""Records that a run of kernels is first tried for; four times as many each time that all were kernels."""
_COPIES = (MEMCPY, MEMSET)
_KERNELS = (KERNEL, CONCURRENT_KERNEL)


class Walked(NamedTuple):
    """What a buffer holds.

    Attributes:
        whole: bytes of whole records; less than was valid where the rest is none.
        spans: kernels, copies and memory sets among them.
        names: name pointers of the kernels.
    """

    whole: int
    spans: int
    names: set[int]


class RecordSource(Protocol):
    """CUPTI, as far as it tells where a record ends."""

    def record_after(self, buffer: int, valid: int, record: int) -> tuple[int, int]: ...


class Walker:
    """Walks buffers; sizes are learnt from CUPTI at the first record of each kind.

    Attributes:
        sizes: kind → bytes of a record.
    """

    def __init__(self, cupti: RecordSource) -> None:
        self._cupti = cupti
        self.sizes: dict[int, int] = {}

    def walk(self, memory: memoryview, address: int) -> Walked:
        """All records of a buffer.

        Args:
            memory: its valid bytes.
            address: where they lie.
        """
        valid = len(memory)
        aligned = memory[: valid - valid % _ALIGNMENT]
        words, halves = aligned.cast("Q"), aligned.cast("I")
        sizes = self.sizes
        at, spans = 0, 0
        names: set[int] = set()
        while at + _ALIGNMENT <= valid:
            kind = halves[at >> 2]
            if not 0 < kind < _KINDS:
                break
            size = sizes.get(kind) or self._learn(address, valid, at, kind)
            if not size or size > valid - at:
                break
            after = at + size
            if kind in _KERNELS:
                if size < _NAME + 8:
                    break
                if after + size <= valid and halves[after >> 2] == kind:
                    count = _run(halves, at, size, kind)
                    after = at + count * size
                    names.update(words[(at + _NAME) >> 3 : after >> 3 : size >> 3])
                    spans += count
                else:
                    names.add(words[(at + _NAME) >> 3])
                    spans += 1
            elif kind in _COPIES:
                spans += 1
            at = after
        return Walked(at, spans, names)

    def _learn(self, address: int, valid: int, at: int, kind: int) -> int:
        result, after = self._cupti.record_after(address, valid, address + at)
        if result == SUCCESS and after > address + at:
            size = after - address - at
        elif result == MAX_LIMIT_REACHED:
            size = valid - at  # the last record of the buffer
        else:
            return 0
        if size < _ALIGNMENT or size % _ALIGNMENT or size > _LONGEST:
            return 0
        self.sizes[kind] = size
        return size


def _run(halves: memoryview, at: int, size: int, kind: int) -> int:
    """How many records of one kind and size follow each other from a place on; at least one."""
    step, first = size // 4, at // 4
    most = (len(halves) - first) // step
    found, tried = 1, _AT_ONCE
    while found < most:
        kinds = halves[first + found * step : first + min(found + tried, most) * step : step].tolist()
        same = kinds.count(kind)
        if same < len(kinds):
            return found + next(number for number, other in enumerate(kinds) if other != kind)
        found += len(kinds)
        tried *= 4
    return found

"""Finds where every record of an activity buffer starts, many records at a time.

A record's length follows from its kind alone, so the next record is only known once this one was read: a chain. To
step along it with whole arrays, the buffer is cut into lanes that are walked in lockstep. Where a lane's first record
starts is guessed: from every place where one could start a little before the cut, the chains are followed up to the
cut; those that run into bytes that are no kind die, those that hit the true chain become one with it, and the place
where most of them arrive is the guess. The guesses are then *proved*: the walk of each lane has to end where the next
lane began, and the first lane began at byte 0. A lane whose guess was wrong is walked again from where its predecessor
ended. So the result is the chain itself, whatever the bytes hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from spanlite.agent.layouts import ALIGNMENT, KIND_LIMIT, Layout
from spanlite.contract.errors import LayoutError

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

# Measured on recordings: with a run-up of 256 words no guess was wrong, with 128 up to one in four; half the square
# root of the words, at most 1024, was within 10 % of the best number of lanes for buffers of 1 to 36 MiB.
_RUN_UP_WORDS = 256
_STARTS = 32
_MAX_LANES = 1024
_WORDS_PER_LANE = 2 * _RUN_UP_WORDS
_SMALL_WORDS = 4096
_UNROLL = 8
_ROUNDS = 8
"""More rounds of correction than this mean bytes made to mislead; then one record after the other is the faster way."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the records of a buffer are, in the order of the buffer.

    Attributes:
        offsets: bytes from the start of the buffer, int64, one a record.
        kinds: activity kind, uint8, one a record.
    """

    offsets: _Ints
    kinds: npt.NDArray[np.uint8]


def walk(data: bytes | memoryview, layout: Layout) -> Walk:
    """The starts and kinds of all records.

    Raises:
        LayoutError: the last record is cut, or a kind has no known size; its ``offset`` is the byte where that record
            starts.
    """
    words = np.frombuffer(data, np.dtype("<u4"), count=len(data) // ALIGNMENT * 2)
    found = _walk_small(words, layout.words) if words.size < _SMALL_WORDS else _walk_lanes(words, layout.words)
    at, end = found if found is not None else _walk_small(words, layout.words)
    kinds = words.take(at).astype(np.uint8)
    if end < words.size:
        raise _bad_kind(end * 4, int(words[end]), layout)
    if end > words.size or len(data) % ALIGNMENT:
        last = int(at[-1]) * 4 if end > words.size else end * 4
        raise LayoutError(
            f"the record at byte {last} is cut: the buffer ends at byte {len(data)}; "
            "read the file again, or pass exactly the bytes that CUPTI said were valid",
            offset=last,
        )
    return Walk(at * 4, kinds)


def _bad_kind(offset: int, kind: int, layout: Layout) -> LayoutError:
    if kind == 0 or kind >= KIND_LIMIT:
        hint = "the bytes are no records of this version: check the CUPTI version, or pass only the valid bytes"
    else:
        hint = "give its size along with the version, or update spanlite"
    return LayoutError(
        f"at byte {offset}: records of kind {kind} have no known size in CUPTI {layout.version}; {hint}", offset=offset
    )


def _walk_small(words: _Words, sizes: _Ints) -> tuple[_Ints, int]:
    """The chain record by record: for small buffers, and for bytes made to mislead the guesses.

    Returns:
        Starts in words, and where the chain ends: the buffer's size, more where the last record is cut, less where a
        kind has no size.
    """
    step_of, size = sizes.tolist(), words.size
    kinds = np.minimum(words[::2], KIND_LIMIT).tolist()
    at, starts = 0, []
    while at < size:
        step = step_of[kinds[at >> 1]]
        if step == 0:
            break
        starts.append(at)
        at += step
    return np.array(starts, np.int64), at


def _walk_lanes(words: _Words, sizes: _Ints) -> tuple[_Ints, int] | None:
    """The chain by lanes, as `_walk_small` returns it; None where the guesses stay wrong for too long."""
    lanes = min(_MAX_LANES, isqrt(words.size) // 2, words.size // _WORDS_PER_LANE)
    cuts = np.arange(lanes + 1, dtype=np.int64) * (words.size // lanes // 2 * 2)
    cuts[-1] = words.size
    begins = np.concatenate((np.zeros(1, np.int64), _guess(words, sizes, cuts[1:-1])))
    steps, exits = _lockstep(words, sizes, begins, cuts[1:])
    for _ in range(_ROUNDS):
        dead = exits < cuts[1:]
        wrong = np.flatnonzero((exits[:-1] != begins[1:]) & ~dead[:-1]) + 1
        if wrong.size == 0:
            if dead.any():
                return np.zeros(0, np.int64), int(exits[dead.argmax()])
            # Lane after lane; taking by number is several times faster here than choosing by mask.
            places = np.ascontiguousarray(steps.T)
            return places.ravel().take(np.flatnonzero(places < cuts[1:, None])), int(exits[-1])
        begins[wrong] = exits[wrong - 1]
        again, exits[wrong] = _lockstep(words, sizes, begins[wrong], cuts[1:][wrong])
        if len(again) > len(steps):
            steps = np.concatenate((steps, np.broadcast_to(cuts[1:], (len(again) - len(steps), lanes))))
        steps[:, wrong] = cuts[1:][wrong]
        steps[: len(again), wrong] = again
    return None


def _guess(words: _Words, sizes: _Ints, cuts: _Ints) -> _Ints:
    """For each cut, the place at or after it where most chains from before it arrive."""
    lane = np.arange(cuts.size).repeat(_STARTS)
    at = (cuts[:, None] - _RUN_UP_WORDS + 2 * np.arange(_STARTS)).ravel()
    votes = np.zeros(cuts.size * _STARTS, np.int64)
    while at.size:
        step = sizes.take(words.take(at), mode="clip")
        at += step
        ahead = at - cuts.take(lane)
        landed = np.flatnonzero((ahead >= 0) & (step > 0))
        place = np.minimum(ahead[landed] >> 1, _STARTS - 1)
        votes += np.bincount(lane[landed] * _STARTS + place, minlength=votes.size)
        on = np.flatnonzero((ahead < 0) & (step > 0))
        at, lane = at[on], lane[on]
    best: _Ints = votes.reshape(-1, _STARTS).argmax(axis=1)
    return cuts + 2 * best


def _lockstep(words: _Words, sizes: _Ints, begins: _Ints, ends: _Ints) -> tuple[_Ints, _Ints]:
    """Walks every lane until it is at or past its end, or at a kind without a size.

    Returns:
        Places of [steps, lanes], standing still once a lane is through; and where each lane came to stand.
    """
    rows = [begins]
    at = begins
    while True:
        for _ in range(_UNROLL):
            step = sizes.take(words.take(at, mode="clip"), mode="clip")
            step *= at < ends
            at = at + step
            rows.append(at)
        if not step.any():
            return np.array(rows), at

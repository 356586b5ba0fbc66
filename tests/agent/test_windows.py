"""Weights of spans that were traced in windows: they add up to what was launched, for each kernel too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.windows import WINDOW, Windows, unpack_windows
from spanlite.contract.errors import FrameError


def window(first: int, last: int, launched: int, traced: int) -> bytes:
    """One as it comes."""
    return np.array([(first % 2**32, last % 2**32, launched, traced, 2, 0)], dtype=WINDOW).tobytes()


def windows(*several: bytes, seed: int = 1) -> Windows:
    """Those that have come."""
    found = Windows(seed)
    found.add(unpack_windows(b"".join(several)))
    return found


def test_outside_of_all_windows_a_span_stands_for_itself() -> None:
    """The first id belongs to the reading at the window's begin, and the last to its end."""
    assert windows(window(100, 110, 50, 10)).weights(np.arange(99, 113)).tolist() == [1, 1, *[5] * 10, 1, 1]


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    extra=st.lists(st.integers(0, 10_000), min_size=6, max_size=6),
    begin=st.sampled_from([0, 1, 2**31 - 50, 2**32 - 400, 2**32 - 1]),
    cuts=st.lists(st.integers(0, 1800), max_size=5),
    seed=st.integers(0, 2**63),
)
def test_the_weights_of_each_window_add_up(
    sizes: list[int], extra: list[int], begin: int, cuts: list[int], seed: int
) -> None:
    """However the spans are cut into buffers, and where the counter begins anew at zero."""
    several, ids, expected, at = [], [], [], begin
    for size, more in zip(sizes, extra, strict=False):
        several.append(window(at, at + size, size + more, size))
        ids.append(np.arange(at + 1, at + size + 1) % 2**32)
        expected.append(size + more)
        at += size + 7
    found = windows(*several, seed=seed)
    everything = np.concatenate(ids)
    parts = np.split(everything, sorted(min(cut, len(everything)) for cut in cuts))
    weight = np.concatenate([found.weights(part) for part in parts])
    ends = np.cumsum([len(one) for one in ids])
    for end, one, total, size in zip(ends, ids, expected, sizes, strict=False):
        those = weight[end - len(one) : end]
        assert those.sum() == total
        assert set(those.tolist()) <= {total // size, total // size + 1}


def test_kernels_that_take_turns_are_weighted_alike() -> None:
    """Weights 1 and 2 in turn would make every second kernel twice as frequent as it is."""
    found = windows(window(0, 100_000, 150_000, 100_000))
    weight = found.weights(np.arange(1, 100_001))
    assert weight.sum() == 150_000
    # 50,000 of them, drawn without putting back from half ones and half twos: a standard deviation of 79.
    assert abs(int(weight[::2].sum()) - 75_000) < 5 * 79


def test_a_window_that_comes_again_is_the_same() -> None:
    """After a new HELLO the last windows are told once more: their spans go on where they were."""
    found = windows(window(0, 4, 6, 4))
    first = found.weights(np.array([1, 2]))
    found.add(unpack_windows(window(0, 4, 6, 4)))
    assert first.sum() + found.weights(np.array([3, 4])).sum() == 6


@pytest.mark.parametrize(
    "payload",
    [window(0, 4, 6, 4)[:-1], window(0, 4, 3, 4), window(0, 4, 6, 0), window(0, 4, 2**32, 4)],
)
def test_what_cannot_be_is_refused(payload: bytes) -> None:
    """A share above one, of nothing, or beyond the counter would make weights that are none."""
    with pytest.raises(FrameError):
        unpack_windows(payload)

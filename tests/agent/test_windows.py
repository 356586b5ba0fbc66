"""Weights of spans that were traced in windows: they add up to what was launched, for each kernel too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.windows import WINDOW, Windows, unpack_windows
from spanlite.contract.columns import SamplingMode
from spanlite.contract.errors import FrameError


def window(open_ns: int, launched: int, traced: int, mode: SamplingMode = SamplingMode.DUTY_CYCLE) -> bytes:
    """One as it comes."""
    return np.array([(open_ns, launched, traced, mode, 0)], dtype=WINDOW).tobytes()


def windows(*several: bytes, seed: int = 1) -> Windows:
    """Those that have come."""
    found = Windows(seed)
    found.add(unpack_windows(b"".join(several)))
    return found


def test_a_span_belongs_to_the_last_window_that_opened_before_it_starts() -> None:
    """Before all of them, and from where everything is traced again, it stands for itself."""
    full = window(300, 1, 1, SamplingMode.FULL)
    found = windows(full, window(200, 70, 10), window(100, 50, 10))
    assert found.weights(np.array([99, 100, 199, 200, 299, 300, 10**9])).tolist() == [1, 5, 5, 7, 7, 1, 1]


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    extra=st.lists(st.integers(0, 10_000), min_size=6, max_size=6),
    cuts=st.lists(st.integers(0, 1800), max_size=5),
    seed=st.integers(0, 2**63),
)
def test_the_weights_of_each_window_add_up(sizes: list[int], extra: list[int], cuts: list[int], seed: int) -> None:
    """However the spans are cut into buffers, and in which order they come."""
    several, starts, expected = [], [], []
    for number, (size, more) in enumerate(zip(sizes, extra, strict=False)):
        several.append(window(1000 * number, size + more, size))
        starts.append(np.arange(1000 * number, 1000 * number + size))
        expected.append(size + more)
    found = windows(*several, seed=seed)
    everything = np.random.default_rng(seed).permutation(np.concatenate(starts))
    parts = np.split(everything, sorted(min(cut, len(everything)) for cut in cuts))
    weight = np.concatenate([found.weights(part) for part in parts])
    for number, (total, size) in enumerate(zip(expected, sizes, strict=False)):
        those = weight[everything // 1000 == number]
        assert those.sum() == total
        assert set(those.tolist()) <= {total // size, total // size + 1}


def test_kernels_that_take_turns_are_weighted_alike() -> None:
    """Weights 1 and 2 in turn would make every second kernel twice as frequent as it is."""
    found = windows(window(1, 150_000, 100_000))
    weight = found.weights(np.arange(1, 100_001))
    assert weight.sum() == 150_000
    # 50,000 of them, drawn without putting back from half ones and half twos: a standard deviation of 79.
    assert abs(int(weight[::2].sum()) - 75_000) < 5 * 79


def test_a_window_that_comes_again_is_the_same() -> None:
    """After a new HELLO the last windows are told once more: their spans go on where they were."""
    found = windows(window(0, 6, 4))
    first = found.weights(np.array([1, 2]))
    found.add(unpack_windows(window(0, 6, 4)))
    assert first.sum() + found.weights(np.array([3, 4])).sum() == 6


@pytest.mark.parametrize(
    "payload",
    [window(0, 6, 4)[:-1], window(0, 3, 4), window(0, 6, 0), window(0, 2**32, 4)],
)
def test_what_cannot_be_is_refused(payload: bytes) -> None:
    """A share above one, of nothing, or beyond the counter would make weights that are none."""
    with pytest.raises(FrameError):
        unpack_windows(payload)

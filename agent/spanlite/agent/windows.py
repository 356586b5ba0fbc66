"""What a span stands for in a process that is traced in windows: weights that add up to what was launched.

A window is a range of correlation ids, those of the calls that were made while kinds were on, and says how many calls
were made since the window before it. A span of the window stands for launched / traced executions. Weights are whole
numbers (decision 3), so they alternate: the first k spans of a window have k · launched // traced together. Which span
gets which is drawn by lot, else a kernel that takes every second turn would always get the smaller one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, UInt32
from spanlite.contract.errors import FrameError

WINDOW = np.dtype(
    [("first", "<u4"), ("last", "<u4"), ("launched", "<u8"), ("traced", "<u8"), ("mode", "<u4"), ("zero", "<u4")]
)
"""Correlation ids in (first, last], calls since the last window closed, those of them while it was open."""
KEPT = 256
_HEAVIEST = (1 << 32) - 1


def unpack_windows(payload: bytes) -> NDArray[np.void]:
    """Windows of dtype WINDOW.

    Raises:
        FrameError: reason windows.
    """
    if len(payload) % WINDOW.itemsize:
        raise FrameError("windows", f"{len(payload)} bytes are not a whole number of {WINDOW.itemsize}-byte windows")
    windows = np.frombuffer(payload, dtype=WINDOW)
    if ((windows["traced"] == 0) | (windows["launched"] < windows["traced"])).any():
        raise FrameError("windows", "a window in which more was traced than launched, or nothing at all")
    if (windows["launched"] // np.maximum(windows["traced"], 1) >= _HEAVIEST).any() or (
        windows["launched"] >> np.uint64(32)
    ).any():
        raise FrameError("windows", "a window that stands for more than 2^32 calls")
    return windows


class Windows:
    """The last windows of one process, and how many spans of each have been weighted.

    Args:
        seed: of the lots.
    """

    def __init__(self, seed: int) -> None:
        self._lots = np.random.default_rng(seed)
        self._windows = np.zeros(0, dtype=WINDOW)
        self._given = np.zeros(0, dtype=np.int64)

    def __bool__(self) -> bool:
        return len(self._windows) > 0

    def add(self, windows: NDArray[np.void]) -> None:
        """More of them; one that comes again, after another HELLO, is the same."""
        new = windows[~np.isin(windows["last"], self._windows["last"])]
        self._windows = np.concatenate((self._windows, new))[-KEPT:]
        self._given = np.concatenate((self._given, np.zeros(len(new), dtype=np.int64)))[-KEPT:]

    def weights(self, correlation: Int64) -> UInt32:
        """Weight of each span, shape (n,): 1 outside all windows.

        Args:
            correlation: shape (n,), 32 bits of each, as CUPTI wrote them.
        """
        weight = np.ones(len(correlation), dtype=np.uint32)
        number = correlation.astype(np.uint32)
        if not len(correlation) or not self:
            return weight
        order = np.argsort(self._windows["last"], kind="stable")
        last = self._windows["last"][order]
        # The counter wraps: a window may lie on both sides of zero, so membership is asked by difference.
        at = order[np.searchsorted(last, number) % len(last)]
        window = self._windows[at]
        size = window["last"] - window["first"]
        inside = np.flatnonzero((number - window["first"] - np.uint32(1)) < size)
        by_window = inside[np.argsort(at[inside], kind="stable")]
        which, begin, count = np.unique(at[by_window], return_index=True, return_counts=True)
        for one, where, many in zip(which.tolist(), begin.tolist(), count.tolist(), strict=True):
            weight[by_window[where : where + many]] = self._shares(one, many)
        return weight

    def _shares(self, window: int, count: int) -> UInt32:
        """Weights of the next `count` spans of a window."""
        launched, traced = int(self._windows["launched"][window]), int(self._windows["traced"][window])
        given = int(self._given[window])
        self._given[window] += count
        whole, rest = divmod(launched, traced)
        steps = np.arange(given, given + count + 1, dtype=np.uint64) * np.uint64(rest) // np.uint64(traced)
        return self._lots.permutation((np.diff(steps) + np.uint64(whole)).astype(np.uint32))

"""What a span stands for in a process that is traced in windows: weights that add up to what was launched.

A window says when kinds came on, how many calls were made since the window before it, and how many of those while it
was open. What is recorded was launched while it was open, so it starts between its opening and that of the next one;
such a span stands for launched / traced executions. Weights are whole numbers (decision 3), so they alternate: the
first k spans of a window have k * launched // traced together. Which span gets which is drawn by lot, else a kernel
that takes every second turn would always get the smaller one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, SamplingMode, UInt32
from spanlite.contract.errors import FrameError

WINDOW = np.dtype([("open_ns", "<i8"), ("launched", "<u8"), ("traced", "<u8"), ("mode", "<u4"), ("zero", "<u4")])
"""CUPTI's clock as kinds came on, calls since the last window closed, those of them while it was open, SamplingMode."""
KEPT = 256
_MOST = 1 << 32


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
    if (windows["launched"] >= _MOST).any():
        raise FrameError("windows", f"a window that stands for {int(windows['launched'].max())} calls, 2^32 or more")
    return windows


class Windows:
    """The last windows of one process, and how many spans of each have been weighted.

    Args:
        seed: of the lots.

    Attributes:
        sampled: some of them stood for more than themselves.
    """

    def __init__(self, seed: int) -> None:
        self._lots = np.random.default_rng(seed)
        self._windows = np.zeros(0, dtype=WINDOW)
        self._given = np.zeros(0, dtype=np.int64)
        self.sampled = False

    def add(self, windows: NDArray[np.void]) -> None:
        """More of them; one that comes again, after another HELLO, is the same."""
        new = windows[~np.isin(windows["open_ns"], self._windows["open_ns"])]
        everything = np.concatenate((self._windows, new))
        given = np.concatenate((self._given, np.zeros(len(new), dtype=np.int64)))
        order = np.argsort(everything["open_ns"], kind="stable")[-KEPT:]
        self._windows, self._given = everything[order], given[order]
        self.sampled = self.sampled or bool((windows["mode"] != SamplingMode.FULL).any())

    def weights(self, start_ns: Int64) -> UInt32:
        """Weight of each span, shape (n,): 1 before all windows.

        Args:
            start_ns: shape (n,), by CUPTI's clock.
        """
        weight = np.ones(len(start_ns), dtype=np.uint32)
        if not self.sampled or not len(start_ns):
            return weight
        at = np.searchsorted(self._windows["open_ns"], start_ns, side="right") - 1
        by_window = np.argsort(at, kind="stable")
        which, begin, count = np.unique(at[by_window], return_index=True, return_counts=True)
        for one, where, many in zip(which.tolist(), begin.tolist(), count.tolist(), strict=True):
            if one >= 0:
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

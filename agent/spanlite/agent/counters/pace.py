"""How often samples are fetched, and how many are asked for: never more than a fifth of a core for decoding them."""

from __future__ import annotations

PERIOD_S = 0.0625
"""16 times a second, where decoding is quick."""
MOST_SHARE = 0.2
_STRAIN_MOST = 20
_OVERFLOW_STRAIN = 7
_SLOWEST = 64


class Pace:
    """Waits four times as long as the last decoding took; where that lasts, takes fewer samples.

    Attributes:
        factor: of the interval between samples: 1, or 2, 4 … where decoding is too slow for more.
    """

    def __init__(self) -> None:
        self.factor = 1
        self._strain = 0
        self._wait_s = PERIOD_S

    @property
    def wait_s(self) -> float:
        """Until the next decoding."""
        return self._wait_s

    def took(self, cost_ns: int) -> bool:
        """What fetching took. True where from now on the interval is twice as long: sampling must be opened anew."""
        self._wait_s = max(PERIOD_S, cost_ns / 1e9 * (1 / MOST_SHARE - 1))
        return self._strained(1 if self._wait_s > PERIOD_S else -1)

    def overflowed(self) -> bool:
        """The GPU's buffer was full; likewise."""
        return self._strained(_OVERFLOW_STRAIN)

    def _strained(self, more: int) -> bool:
        self._strain = max(0, self._strain + more)
        if self._strain < _STRAIN_MOST or self.factor >= _SLOWEST:
            return False
        self.factor *= 2
        self._strain = 0
        return True

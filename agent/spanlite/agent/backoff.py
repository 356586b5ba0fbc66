"""How long to wait before the next try."""

from __future__ import annotations

from random import Random


class Backoff:
    """Doubles from `first_s` to `most_s`.

    Each wait is a random part of that, from a half to the whole: the agents of a fleet must not come back in step.
    """

    def __init__(self, first_s: float = 0.2, most_s: float = 30.0, random: Random | None = None) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._random = random or Random()  # noqa: S311  # jitter is no secret
        self._whole_s = first_s

    def next_s(self) -> float:
        """The next wait."""
        whole_s, self._whole_s = self._whole_s, min(2 * self._whole_s, self._most_s)
        return whole_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It worked: the next failure starts small."""
        self._whole_s = self._first_s

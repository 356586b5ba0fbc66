"""A limit that delays: due' = max(due, previous + cost), with an allowance for bursts."""

from __future__ import annotations

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.contract.errors import ReplayError
from spanlite.replay.pacing.rates import Exact, fits
from spanlite.replay.pacing.settings import Limit


class Limiter:
    """Reckons in tokens that the rate has given since the start, so that it may change and nothing is rounded.

    With u the tokens at an item's due time, w its weight, f what all before it have used up (a token not taken in time
    is lost): g = max(u, f) is the item's place, it goes when max(u, g - burst) is reached, and f becomes g + w. With c,
    the weights before it, g - c is a running maximum of u - c.
    """

    def __init__(self, limit: Limit) -> None:
        self._form = limit.rate.form
        self._burst = limit.burst * self._form.unit
        self._used = 0

    def delayed(self, due_ns: Int64, weights: Int64) -> Int64:
        """Due times under the limit.

        Args:
            due_ns: ascending, not before those of the call before, shape (n,), n ≥ 1.
            weights: 0 or more, shape (n,).

        Raises:
            ReplayError: a weight is negative, or an item would be due in more than 292 years.
        """
        if len(weights) != len(due_ns) or weights.min() < 0:
            raise ReplayError(
                f"{len(due_ns)} items have {len(weights)} weights, the least {weights.min()}; write 0 or more"
            )
        base, reached = self._form.amount(due_ns)
        used = max(self._used - base, 0)
        cost, reached = self._costs(weights, used + int(reached[-1]), reached)
        before = np.cumsum(cost) - cost
        start = reached - before
        start[0] = max(int(start[0]), used)
        place = np.maximum.accumulate(start) + before
        self._used = base + int(place[-1]) + int(cost[-1])
        if not fits(self._burst) and place.dtype != object:
            place = place.astype(object)
        return self._form.reached(base, np.maximum(reached, place - self._burst))

    def _costs(self, weights: Int64, most: int, reached: Exact) -> tuple[Exact, Exact]:
        """Weights in the form's unit, as int64 if all sums fit."""
        unit = self._form.unit
        if reached.dtype == np.int64 and fits(most + int(weights.max()) * unit * len(weights)) and fits(unit):
            return weights * unit, reached
        return weights.astype(object) * unit, reached.astype(object)

"""How unevenly keys that are spread by a hash load partitions and subtasks.

n keys in p bins by a hash: each bin holds a Poisson number of keys with mean n/p, and the fullest of p such bins is the
one that must not be overloaded. Keys of unequal rates are as uneven as fewer equal ones: n / (1 + cv²) of them, cv
being the rates' standard deviation over their mean. benchmarks/bench_key_skew.py compares this with what Kafka's and
Flink's hashes do to real keys.
"""

from __future__ import annotations

import math
from statistics import NormalDist

MOST_PARALLELISM = 1 << 15
"""Flink's largest maximum parallelism."""
_ODDS = 0.1
"""Chance that the fullest bin holds more than is said."""
_LARGE = 1e5


def hottest_share(keys: float, bins: int, spread: float = 0.0) -> float:
    """Part of the whole load that the fullest bin carries, in 1/bins … 1.

    Args:
        keys: how many; at least 1.
        bins: partitions or subtasks.
        spread: sigma of the keys' rates, which are lognormal; 0 for equal ones.
    """
    if bins == 1:
        return 1.0
    equal = max(keys * math.exp(-spread * spread), 1.0)  # 1 + cv² of a lognormal is exp(sigma²)
    return min(1.0, max(_fullest(equal / bins, bins) / equal, 1 / bins))


def parallelism(load: float, keys: float, spread: float, *, mean: float, hottest: float) -> int:
    """Fewest subtasks, each with a core of its own, that carry a keyed load; for the fullest's sake no more than keys.

    Args:
        load: cores that are busy in all.
        keys, spread: as in `hottest_share`.
        mean: share of a core that the average subtask may be busy.
        hottest: share of a core that the fullest one may be busy.
    """
    least = max(1, math.ceil(load / mean))
    most = max(least, math.ceil(keys))
    low, high = least, most
    while low < high:
        middle = (low + high) // 2
        if load * hottest_share(keys, middle, spread) <= hottest:
            high = middle
        else:
            low = middle + 1
    return low


def max_parallelism(subtasks: int) -> int:
    """Key groups for a job that begins with so many subtasks: a power of two, at least 16 a subtask where Flink allows.

    Subtasks get whole groups, so with 16 or more the fullest has at most 1/16 more of them; and the job can grow by 4
    with 4 groups a subtask left. The number is fixed with the first checkpoint.
    """
    return min(MOST_PARALLELISM, max(128, power_of_two(16 * subtasks)))


def power_of_two(least: float) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, math.ceil(least) - 1).bit_length()


def _fullest(mean: float, bins: int) -> int:
    """Smallest k with bins · P(X > k) ≤ _ODDS for a Poisson X."""
    if mean > _LARGE:  # Cornish and Fisher's expansion is exact to less than a key here
        z = -NormalDist().inv_cdf(_ODDS / bins)
        return math.ceil(mean + z * math.sqrt(mean) + (z * z - 1) / 6)
    k = math.ceil(mean + 12 * math.sqrt(mean) + 30)
    term = math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
    above = 0.0
    while k > 0 and bins * (above + term) <= _ODDS:
        above += term
        term *= k / mean
        k -= 1
    return k

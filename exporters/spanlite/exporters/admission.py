"""Which label sets get a series of their own."""

from __future__ import annotations

from typing import NamedTuple

from spanlite.contract.points import OTHER


class HotKey(NamedTuple):
    """Labels of a series: `what` is its kernel, stage or copy direction."""

    gpu_uuid: str
    what: str
    namespace: str
    pod: str
    container: str


class Admission:
    """Gives the first `cap` label sets of a family their own series, and folds later ones, for good.

    A decision never changes: were a heavy newcomer to push out a light series, the light one's counter would vanish
    and that of "other" would jump. What is folded keeps its GPU and loses kernel and workload, so the number of
    series is bounded by cap + GPUs whatever pods come and go.
    """

    def __init__(self, cap: int, *, folded: str | None = OTHER) -> None:
        """Args: cap: label sets; folded: what `what` becomes beyond it, None to keep it (it is bounded itself)."""
        self._cap = cap
        self._folded = folded
        self._own: set[HotKey] = set()
        self._capped: set[HotKey] = set()

    @property
    def capped(self) -> int:
        """Label sets folded so far."""
        return len(self._capped)

    def place(self, key: HotKey) -> HotKey:
        """The label set under which `key` is counted."""
        if key in self._own:
            return key
        if key not in self._capped and len(self._own) < self._cap:
            self._own.add(key)
            return key
        self._capped.add(key)
        return HotKey(key.gpu_uuid, key.what if self._folded is None else self._folded, "", "", "")

"""Counts of an operator as Flink metrics, for Flink's own reporters; they start again from 0 with each attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyflink.datastream import RuntimeContext


class Counters:
    """Brings Flink's counters up to what an operator has counted."""

    def __init__(self, context: RuntimeContext) -> None:
        self._group = context.get_metrics_group().add_group("spanlite")
        self._counters: dict[str, Any] = {}
        self._told: dict[str, int] = {}

    def update(self, counts: Mapping[str, int]) -> None:
        """Args: counts: name → what the operator's count stands at; it never falls."""
        for name, count in counts.items():
            grown = count - self._told.get(name, 0)
            if grown:
                if name not in self._counters:
                    self._counters[name] = self._group.counter(name)
                self._counters[name].inc(grown)
                self._told[name] = count

"""The agent's own counters: every span that came in is sent or dropped for a reason that is counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from threading import Lock

from spanlite.contract import catalogue

_DROPPED = re.compile("dropped[.]([a-z][a-z_]{0,31})")
_OBSERVATION = "observation_"
"""How reasons begin that are of observations; those have counters of their own as well."""
_COUNT = re.compile("[0-9]{1,18}")


class AgentCounts:
    """Counters of one agent; any thread may add and read.

    spans received = spans sent + Σ spans dropped + spans sampled out, at every moment at which no buffer is being
    worked on.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._plain: Counter[str] = Counter()
        self._labelled: dict[str, Counter[str]] = {}

    def add(self, metric: catalogue.MetricSpec, amount: int = 1, label: str | None = None) -> None:
        """Adds to a metric of the catalogue; `label` is the value of its only label."""
        with self._lock:
            if label is None:
                self._plain[metric.name] += amount
            else:
                self._labelled.setdefault(metric.name, Counter())[label] += amount

    def add_told(self, said: Mapping[str, str]) -> None:
        """Spans that never came, as a STATS frame tells: what others dropped counts as received and dropped.

        Args:
            said: `dropped.REASON` → how many; whatever else stands there is passed over.
        """
        for key, value in said.items():
            dropped = _DROPPED.fullmatch(key)
            if dropped and _COUNT.fullmatch(value) and int(value):
                self.add(catalogue.AGENT_SPANS_RECEIVED, int(value))
                self.add(catalogue.AGENT_SPANS_DROPPED, int(value), dropped[1])
                if dropped[1].startswith(_OBSERVATION):
                    self.add(catalogue.AGENT_OBSERVATIONS_RECEIVED, int(value))
                    self.add(catalogue.AGENT_OBSERVATIONS_DROPPED, int(value), dropped[1].removeprefix(_OBSERVATION))

    def value(self, metric: catalogue.MetricSpec, label: str | None = None) -> int:
        """What a counter stands at; without a label the sum over its labels."""
        with self._lock:
            labelled = self._labelled.get(metric.name, Counter())
            return self._plain[metric.name] + (labelled.total() if label is None else labelled[label])

    def by_label(self, metric: catalogue.MetricSpec) -> dict[str, int]:
        """A labelled counter by its label."""
        with self._lock:
            return dict(self._labelled.get(metric.name, Counter()))

    def counters(self) -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
        """All of them, for the exporter."""
        with self._lock:
            samples: dict[str, list[tuple[Mapping[str, str], float]]] = {
                name: [({}, value)] for name, value in self._plain.items()
            }
            for name, by_label in self._labelled.items():
                (label,) = catalogue.CATALOGUE[name].labels
                samples[name] = [({label: value}, count) for value, count in sorted(by_label.items())]
            return samples

"""Which processes are traced although that costs them more than their budget: one of each group.

Being traced, or only prepared for it, costs a program about a microsecond a launch for good, which is little in most
and too much in those that do nothing but launch. Ranks and replicas of one program do the same work, so one of them
speaks for all: the first that comes, until it ends; then the next. The others are left untouched until the one that
speaks has found the price to be within its budget; then all are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

SPEAK, REST = b"\x11", b"\x13"
"""What a collector is told; one byte each, whenever it changes."""
STANDS_FOR = "spanlite.stands_for"
"""Of batches' resource attributes: `Speakers.stands_for`, where it is more than 1."""
BUDGET = "spanlite.collector.budget_ppm"
"""Of HELLO's resource attributes: a collector that has it listens to words."""
_ALREADY = frozenset({"full", "duty"})


def group_of(resource: Mapping[str, str]) -> str:
    """The group of a process: what runs, for whom; its ranks and replicas share it."""
    who = resource.get("service.name") or resource.get("workload") or resource.get("process.executable.name", "")
    return "/".join((resource.get("k8s.namespace.name", ""), resource.get("slurm.job.id", ""), who))


class Speakers:
    """The groups on this node. `tell` passes a word on to one process; it must not wait."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._members: dict[str, dict[int, Callable[[bytes], None]]] = {}
        self._speaker: dict[str, int] = {}
        self._open: set[str] = set()
        self._resting: set[int] = set()

    def join(self, number: int, resource: Mapping[str, str], tell: Callable[[bytes], None]) -> None:
        """A process has come. One that is being traced already, by another agent's word, goes on.

        Args:
            number: of its connection.
        """
        group = group_of(resource)
        with self._lock:
            self._members.setdefault(group, {})[number] = tell
            speaker = self._speaker.setdefault(group, number)
            already = resource.get("spanlite.collector.sampling") in _ALREADY
            speaks = speaker == number or already or group in self._open
            if not speaks:
                self._resting.add(number)
            tell(SPEAK if speaks else REST)

    def priced(self, number: int, *, affordable: bool) -> None:
        """A process has found out whether being traced is within its budget; what the one that speaks says counts."""
        with self._lock:
            group = self._group(number)
            if group is None or self._speaker[group] != number:
                return
            if not affordable:
                self._open.discard(group)
            elif group not in self._open:
                self._open.add(group)
                for other, tell in self._members[group].items():
                    if other != number:
                        self._resting.discard(other)
                        tell(SPEAK)

    def stands_for(self, number: int) -> int:
        """For how many processes its spans stand: for itself, and for those of its group that rest for it."""
        with self._lock:
            group = self._group(number)
            if group is None or self._speaker[group] != number:
                return 1
            return 1 + len(self._resting & self._members[group].keys())

    def _group(self, number: int) -> str | None:
        return next((name for name, members in self._members.items() if number in members), None)

    def leave(self, number: int) -> None:
        """It has gone; where it spoke, the one that has waited longest does from now on."""
        with self._lock:
            group = self._group(number)
            if group is None:
                return
            members = self._members[group]
            del members[number]
            self._resting.discard(number)
            if self._speaker[group] != number:
                return
            if not members:
                del self._members[group], self._speaker[group]
                self._open.discard(group)
                return
            self._speaker[group] = next(iter(members))
            if group not in self._open:
                self._resting.discard(self._speaker[group])
                members[self._speaker[group]](SPEAK)

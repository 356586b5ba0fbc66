"""The metrics job in memory: both stages over keyed state that survives crashes, driven step by step.

As in a stream engine, the state of all operators and the input's positions are saved together, with nothing on the way
between the stages; a crash takes both back to there, and what went out before stays out. What comes after a crash may
come in another order, but for that within each partition.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from hypothesis import strategies as st

from spanlite.contract.point_codec import decode_point
from spanlite.contract.points import Point, Series
from spanlite.pipeline.foldstage import Dead, FoldStage, Late, Piece
from spanlite.pipeline.routing import producer_of
from spanlite.pipeline.totalstage import TotalStage, Update
from spanlite.pipeline.windows import WindowPolicy

EPOCH = 7


class Store:
    """Keyed state of one operator: whoever drives it sets `key` first."""

    def __init__(self, saved: dict[tuple[str, Any], Any]) -> None:
        self.key: bytes | str = ""
        self.saved = saved


class _Memory:
    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name

    @property
    def _at(self) -> tuple[str, Any]:
        return self._name, self._store.key

    def clear(self) -> None:
        self._store.saved.pop(self._at, None)


class MemoryValue(_Memory):
    """keyed.Value."""

    def get(self) -> bytes | None:
        value: bytes | None = self._store.saved.get(self._at)
        return value

    def put(self, value: bytes) -> None:
        self._store.saved[self._at] = value


class MemoryLog(_Memory):
    """keyed.Log."""

    def read(self) -> list[bytes]:
        return list(self._store.saved.get(self._at, []))

    def append(self, value: bytes) -> None:
        self._store.saved.setdefault(self._at, []).append(value)

    def replace(self, values: Sequence[bytes]) -> None:
        self._store.saved[self._at] = list(values)


class MemoryTable(_Memory):
    """keyed.Table."""

    def values(self) -> Iterable[bytes]:
        return list(self._store.saved.get(self._at, {}).values())

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._store.saved.setdefault(self._at, {}).update(pairs)


class _Saved(NamedTuple):
    fold: dict[Any, Any]
    total: dict[Any, Any]
    position: dict[bytes, int]


class Job:
    """Both stages over an input of partitions, one a producer.

    Attributes:
        updates, late, dead: all that went out, in order, also what went out before a crash and then once more.
    """

    def __init__(self, messages: Iterable[bytes], policy: WindowPolicy, *, top_k: int = 1000) -> None:
        self._policy, self._top_k = policy, top_k
        self._input: dict[bytes, list[bytes]] = defaultdict(list)
        for message in messages:
            self._input[producer_of(message)].append(message)
        self.producers = list(self._input)
        self.gpus: list[str] = []
        self.updates: list[Update] = []
        self.late: list[Late] = []
        self.dead: list[Dead] = []
        self._checkpoint = _Saved({}, {}, dict.fromkeys(self.producers, 0))
        self.crash()

    def take(self, producer: bytes) -> None:
        """The next message of a producer goes into the first stage, if there is one."""
        at = self.position[producer]
        if at < len(self._input[producer]):
            self.position[producer] = at + 1
            self.fold_store.key = producer
            self._send(producer, self.fold.take(producer, self._input[producer][at]))

    def drain(self, producer: bytes) -> None:
        """A producer is idle."""
        self.fold_store.key = producer
        self._send(producer, self.fold.drain(producer))
        self.fold.release(producer)

    def pass_on(self, producer: bytes) -> None:
        """The oldest piece that is on the way from a producer reaches the second stage."""
        if self._way[producer]:
            piece = self._way[producer].popleft()
            self.total_store.key = piece.gpu_uuid
            self.total.take(piece.partial)
            if piece.gpu_uuid not in self.gpus:
                self.gpus.append(piece.gpu_uuid)

    def emit(self, gpu_uuid: str) -> None:
        """The second stage tells of a GPU's series that changed."""
        self.total_store.key = gpu_uuid
        self.updates += self.total.emit(gpu_uuid)

    def checkpoint(self) -> None:
        """Saves state and positions, once nothing is on the way."""
        self._land()
        self._checkpoint = _Saved(*deepcopy((self.fold_store.saved, self.total_store.saved, self.position)))

    def settle(self) -> None:
        """Saves everything with all of it told."""
        self._land()
        for gpu_uuid in self.gpus:
            self.emit(gpu_uuid)
        self.checkpoint()

    def crash(self) -> None:
        """Operators and all that is on the way are gone; they begin again from the last checkpoint."""
        fold, total, self.position = deepcopy(tuple(self._checkpoint))
        self.fold_store, self.total_store = Store(fold), Store(total)
        self._way: dict[bytes, deque[Piece]] = defaultdict(deque)
        progress, pending = MemoryValue(self.fold_store, "progress"), MemoryLog(self.fold_store, "pending")
        self.fold = FoldStage(self._policy, progress, pending)
        waiting, kept = MemoryLog(self.total_store, "waiting"), MemoryTable(self.total_store, "kept")
        self.total = TotalStage(self._policy.width_ns, self._top_k, EPOCH, waiting, kept)

    def finish(self) -> None:
        """The input ends: what is left is taken, every window closed, every series told."""
        for producer in self.producers:
            while self.position[producer] < len(self._input[producer]):
                self.take(producer)
            self.drain(producer)
        self.settle()

    def step(self, what: str, which: int) -> None:
        """One of STEPS, on the producer or GPU of a number."""
        if what in ("checkpoint", "crash", "settle"):
            getattr(self, what)()
        elif what == "emit" and self.gpus:
            self.emit(self.gpus[which % len(self.gpus)])
        elif what != "emit" and self.producers:
            {"take": self.take, "drain": self.drain, "pass": self.pass_on}[what](
                self.producers[which % len(self.producers)]
            )

    def _send(self, producer: bytes, outputs: Iterable[Piece | Late | Dead]) -> None:
        lists: dict[type, Callable[[Any], None]] = {
            Piece: self._way[producer].append,
            Late: self.late.append,
            Dead: self.dead.append,
        }
        for output in outputs:
            lists[type(output)](output)

    def _land(self) -> None:
        for producer in self.producers:
            while self._way[producer]:
                self.pass_on(producer)


STEPS = (*["take"] * 5, "pass", "pass", "emit", "drain", "checkpoint", "settle", "crash")
schedules = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), min_size=10, max_size=60)
"""Steps for `Job.step`."""


def topic(updates: Iterable[Update]) -> dict[Series, Point]:
    """What a compacted topic keeps of them: the last point of each series."""
    newest = {update.key: update.point for update in updates}
    return {point.series: point for point in map(decode_point, newest.values())}

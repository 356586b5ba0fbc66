"""Any redelivery, any crash, any compaction: each span once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, make_columns
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.archive.flush import flush_new
from spanlite.pipeline.archive.ledger import Ledger
from spanlite.pipeline.archive.local import LocalStore
from spanlite.pipeline.archive.verify import verify
from tests.pipeline.archive.crashes import KilledError, Span, SteppingStore, kill_at, visible_spans

HOUR_NS = 3_600_000_000_000
TRACES = 4


@dataclass(frozen=True)
class Row:
    """A span: its hour, and its trace (0 = none), whose start the agent says in this batch or not."""

    hour: int
    trace: int
    told: bool


rows = st.builds(Row, st.integers(0, 2), st.integers(0, TRACES), st.booleans())
batches_of_rows = st.lists(st.tuples(st.integers(0, 2), st.lists(rows, min_size=1, max_size=4)), min_size=1, max_size=6)
choices = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@dataclass(frozen=True)
class Flush:
    """The batches at these places, modulo their number, come; the writer may be killed at a step."""

    chosen: list[int]
    killed_at: int


@dataclass(frozen=True)
class Compact:
    """A compaction that may be killed at a step, and in the midst of which batches come."""

    killed_at: int
    flush_at: int
    chosen: list[int]


steps = st.integers(0, 12)
events = st.lists(
    st.one_of(st.builds(Flush, choices, steps), st.builds(Compact, steps, steps, choices)), min_size=1, max_size=5
)


def make_batches(specs: list[tuple[int, list[Row]]]) -> list[Batch]:
    """Batches of up to three producers, numbered as they come."""
    made: list[Batch] = []
    sequences: Counter[int] = Counter()
    first_rows: Counter[int] = Counter()
    for producer, spans in specs:
        entries = sorted({(row.trace, row.told) for row in spans if row.trace})
        traces = np.zeros(len(entries), dtype=TRACE)
        traces["id"] = np.array([bytes([trace]) * 16 for trace, _ in entries], dtype="V16")
        traces["start_ns"] = [HOUR_NS * (trace % 3) + trace if told else 0 for trace, told in entries]
        index = [entries.index((row.trace, row.told)) if row.trace else -1 for row in spans]
        start = [HOUR_NS * row.hour + 1000 * at for at, row in enumerate(spans)]
        tables = (("", "k"), np.zeros(1, CONFIG), np.zeros(1, PLACE), np.zeros(1, NODE), traces)
        columns = make_columns(np.array(start), np.full(len(spans), 10), tables=tables, trace=np.array(index))
        made.append(
            Batch(
                producer=bytes([producer]) * 16,
                sequence=sequences[producer],
                session=producer,
                first_row=first_rows[producer],
                emit_ns=0,
                columns=columns,
                resource={},
            )
        )
        sequences[producer] += 1
        first_rows[producer] += len(spans)
    return made


def spans_of(batches: list[Batch]) -> Counter[Span]:
    return Counter((b.producer, b.sequence, b.first_row + at) for b in batches for at in range(len(b.columns)))


@dataclass
class World:
    """An archive, its writer, and what was seen of it."""

    root: Path
    batches: list[Batch]
    buckets: int
    ledger: Ledger = field(default_factory=Ledger)
    seen: Counter[Span] = field(default_factory=Counter)

    def look(self) -> None:
        """No span twice, and none gone that was there."""
        spans = visible_spans(self.root)
        assert not spans or max(spans.values()) == 1
        assert self.seen <= spans
        self.seen = spans

    def stepping(self, *actions: Callable[[int], None]) -> SteppingStore:
        """A store that is looked at in each step, and where other things may happen."""

        def at_step(step: int) -> None:
            self.look()
            for act in actions:
                act(step)

        return SteppingStore(self.root, at_step)

    def flush(self, event: Flush, *actions: Callable[[int], None]) -> None:
        """Batches come; a killed writer starts again, knowing nothing."""
        chosen = [self.batches[at % len(self.batches)] for at in event.chosen]
        store = self.stepping(*actions, kill_at(event.killed_at))
        try:
            result = flush_new(store, chosen, buckets=self.buckets, ledger=self.ledger)
        except KilledError:
            self.ledger = Ledger()
        else:
            assert result.spans_written + result.spans_skipped == sum(len(batch.columns) for batch in chosen)
        self.look()

    def compact(self, event: Compact) -> None:
        """Another process compacts; in one of its steps batches come."""

        def flush(step: int) -> None:
            if step == event.flush_at:
                self.flush(Flush(event.chosen, 0))

        with suppress(KilledError):
            compact(self.stepping(flush, kill_at(event.killed_at)))
        self.look()


@pytest.fixture(autouse=True)
def without_fsync() -> Iterator[None]:
    """Processes die here, the machine does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(specs=batches_of_rows, buckets=st.sampled_from([1, 2]), history=events)
def test_each_span_is_there_once_whatever_happens(specs: Any, buckets: int, history: list[Any]) -> None:
    """Redelivery in any grouping, killed writers and compactions, flushes within compactions: once, never twice."""
    batches = make_batches(specs)
    with TemporaryDirectory() as folder:
        world = World(Path(folder), batches, buckets)
        for event in history:
            if isinstance(event, Flush):
                world.flush(event)
            elif any(Path(folder).iterdir()):
                world.compact(event)
        flush_new(LocalStore(world.root), batches, buckets=buckets, ledger=Ledger())
        assert visible_spans(world.root) == spans_of(batches)
        compact(world.root)
        assert visible_spans(world.root) == spans_of(batches)
        assert verify(world.root).problems == [
            f"{world.root}/{path.relative_to(world.root)}: left by a writer that was killed; "
            "remove it if no writer is running"
            for path in sorted(world.root.rglob(".*.tmp"))
        ]


BATCHES = make_batches(
    [
        (0, [Row(0, 1, told=True), Row(1, 2, told=False)]),
        (0, [Row(0, 1, told=False), Row(2, 0, told=False), Row(1, 2, told=False)]),
        (1, [Row(1, 2, told=True), Row(0, 0, told=False)]),
        (0, [Row(2, 3, told=False), Row(0, 0, told=False)]),
    ]
)


def test_a_flush_killed_at_each_step_is_completed_in_other_groups(tmp_path: Path) -> None:
    """Every step of the writer, until one is not reached any more; then the same batches come one by one, and all."""
    for step in range(1, 100):
        world = World(tmp_path / str(step), BATCHES, 2)
        world.flush(Flush([0, 1, 2], step))
        killed = world.seen != spans_of(BATCHES[:3])
        for at in (3, 1, 0, 2):
            world.flush(Flush([at], 0))
        assert world.seen == spans_of(BATCHES)
        world.flush(Flush([3, 2, 1, 0], 0))
        assert world.seen == spans_of(BATCHES)
        if not killed:
            break
    assert step > 10


NEAR = make_batches(
    [(at % 2, [Row(0, 1, told=False), Row(0, 0, told=False)] + [Row(1, 2, told=True)] * (at == 0)) for at in range(4)]
)
"""Nearly all in one hour."""


@pytest.mark.parametrize("fresh", [False, True], ids=["ledger of before", "new ledger"])
def test_batches_that_come_at_each_step_of_a_compaction_count_once(tmp_path: Path, *, fresh: bool) -> None:
    """Old and new batches come while a compaction is at each of its steps, and it dies there or goes on."""
    for dies in (False, True):
        for step in range(1, 100):
            world = World(tmp_path / f"{dies}-{step}", NEAR, 1)
            world.flush(Flush([0, 1], 0))
            world.flush(Flush([2], 0))
            if fresh:
                world.ledger = Ledger()
            world.compact(Compact(step if dies else 0, step, [3, 1]))
            came = world.seen == spans_of(NEAR)
            world.flush(Flush([3, 2, 1, 0], 0))
            assert world.seen == spans_of(NEAR)
            world.compact(Compact(0, 0, [0]))
            assert world.seen == spans_of(NEAR)
            if not came:
                break
        assert step > 5


def test_a_compaction_at_each_step_of_a_flush_changes_nothing(tmp_path: Path) -> None:
    """A whole compaction by another process between any two steps of the writer."""
    for step in range(1, 100):
        world = World(tmp_path / str(step), BATCHES, 1)
        world.flush(Flush([0, 1], 0))
        world.flush(Flush([2], 0))
        done: list[int] = []

        def between(now: int, step: int = step, root: Path = world.root, done: list[int] = done) -> None:
            if now == step:
                done.append(len(compact(root)))

        world.flush(Flush([3, 0, 1, 2], 0), between)
        assert world.seen == spans_of(BATCHES)
        if not done:
            break
        assert done[0] >= 1
    assert step > 3

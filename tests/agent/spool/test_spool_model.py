"""The spool against a model of it: crashes, torn tails, flipped bytes and a full spool at any moment.

The guarantee: a record that was taken and is neither acknowledged nor counted as lost comes back, unaltered and in
order, after every crash. One that was acknowledged comes again at most after a crash, and not even then once a tick has
passed and everything before it is acknowledged, too. A loss is told of once.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spanlite.agent.counts import AgentCounts
from spanlite.agent.outlet import Item
from spanlite.agent.spool.settings import Fsync, Policy, SpoolSettings
from spanlite.agent.spool.spool import Spool
from spanlite.contract import catalogue
from tests.agent.spool.items import item, lost, segments

_LIMIT_BYTES = 64 << 10


class SpoolMachine(RuleBasedStateMachine):
    """The model: items by sequence that wait, and those that are acknowledged but may come again after a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.generation = 0
        self.number = 0
        self.policy = Policy.OLDEST
        self.waiting: dict[int, Item] = {}
        self.done: dict[int, Item] = {}
        self.reopen()

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.root)

    @property
    def folder(self) -> Path:
        return self.root / str(self.generation)

    def reopen(self) -> dict[int, Item]:
        """Opens the folder as a new process does; everything that comes, in the order in which it comes."""
        self.counts = AgentCounts()
        chosen = SpoolSettings(_LIMIT_BYTES, self.policy, Fsync.NEVER, segment_bytes=16 << 10, recent_bytes=20_000)
        self.spool = Spool(self.folder, self.counts, chosen)
        self.taken_spans = self.acked_spans = self.at = 0
        came: dict[int, Item] = {}
        while found := self.spool.fetch(max(came, default=-1) + 1):
            assert found.sequence not in came
            came[found.sequence] = found.item
        self.fetched = dict(came)
        return came

    def synced(self) -> None:
        """The cursor is on disk: what is acknowledged before the first that waits does not come again."""
        first = min(self.waiting, default=self.spool.end)
        self.done = {at: one for at, one in self.done.items() if at > first}

    @rule(size=st.integers(8, 12_000), spans=st.integers(0, 9000))
    def append(self, size: int, spans: int) -> None:
        one = item(self.number, size=size, spans=spans)
        self.number += 1
        sequence, before = self.spool.end, lost(self.counts)
        problem = self.spool.append(one)
        if problem is not None:
            assert (problem, self.policy) == ("spool_full", Policy.NEWEST)
            assert self.spool.end == sequence
            return
        self.taken_spans += spans
        self.waiting[sequence] = one
        if lost(self.counts) != before:
            assert self.policy is Policy.OLDEST
            first = self.spool.fetch(0)
            assert first is not None
            gone = {at: self.waiting.pop(at) for at in sorted(self.waiting) if at < first.sequence}
            records, spans_lost = lost(self.counts)[1], lost(self.counts)[0]
            assert records["spool_full"] - before[1].get("spool_full", 0) == len(gone)
            told = spans_lost.get("spool_full", 0) - before[0].get("spool_full", 0)
            assert told == sum(one.spans for one in gone.values())
            self.synced()

    @rule(count=st.integers(1, 12))
    def fetch(self, count: int) -> None:
        """In order, with none left out but those that were acknowledged."""
        for _ in range(count):
            due = min((at for at in self.waiting if at >= self.at), default=None)
            found = self.spool.fetch(self.at)
            if due is None:
                assert found is None
                return
            assert found is not None
            assert (found.sequence, found.item) == (due, self.waiting[due])
            self.fetched[found.sequence] = found.item
            self.at = found.sequence + 1

    @precondition(lambda self: self.fetched)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """In any order; of one that was dropped meanwhile it is told so."""
        sequence = data.draw(st.sampled_from(sorted(self.fetched)))
        one = self.fetched.pop(sequence)
        spans = self.spool.ack(sequence)
        assert spans == (one.spans if sequence in self.waiting else None)
        if self.waiting.pop(sequence, None):
            self.acked_spans += one.spans
            self.done[sequence] = one

    @rule()
    def rewind(self) -> None:
        """What was fetched and not acknowledged comes again."""
        self.at = 0

    @rule()
    def tick(self) -> None:
        self.spool.tick()
        self.synced()

    @rule(policy=st.sampled_from(Policy))
    def close_and_open(self, policy: Policy) -> None:
        self.spool.close()
        self.synced()
        self.policy = policy
        self.check_nothing_lost(self.reopen())

    def leave_behind(self) -> None:
        """The process is killed: the files stay as they are at this moment."""
        old = self.folder
        self.generation += 1
        shutil.copytree(old, self.folder)
        self.spool.close()

    @rule()
    def crash(self) -> None:
        self.leave_behind()
        self.check_nothing_lost(self.reopen())

    def check_nothing_lost(self, came: dict[int, Item]) -> None:
        assert list(came) == sorted(came)
        assert came.items() >= self.waiting.items()
        assert came.items() <= {**self.waiting, **self.done}.items()
        assert lost(self.counts) == ({}, {})
        self.waiting = came
        self.done = {at: one for at, one in self.done.items() if at not in came}

    @rule(tear=st.integers(1, 9000))
    def crash_with_a_torn_end(self, tear: int) -> None:
        """Of the newest file the end is missing: all before it comes, and a record that is cut through is counted."""
        self.leave_behind()
        files = segments(self.folder)
        if files:
            with files[-1].open("r+b") as stream:
                stream.truncate(max(files[-1].stat().st_size - tear, 0))
        came = self.reopen()
        missing = sorted(set(self.waiting) - set(came))
        assert missing == sorted(self.waiting)[len(self.waiting) - len(missing) :]
        assert {**self.waiting, **self.done}.items() >= came.items()
        assert set(lost(self.counts)[1]) <= {"spool_torn", "spool_corrupt"}  # the latter where a bit had flipped before
        assert sum(lost(self.counts)[1].values()) <= 1
        self.waiting, self.done = came, {}

    @rule(data=st.data())
    def flip(self, data: st.DataObject) -> None:
        """A bit of a file changes while nobody runs: at most one record is lost, and counted; all others come."""
        self.spool.close()
        self.synced()
        files = segments(self.folder)
        if files:
            file = data.draw(st.sampled_from(files))
            damaged = bytearray(file.read_bytes())
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            file.write_bytes(damaged)
        came = self.reopen()
        gone = {at: one for at, one in self.waiting.items() if at not in came}
        assert {**self.waiting, **self.done}.items() >= came.items()
        assert len(gone) <= 1
        if gone:
            spans, records = lost(self.counts)
            ((at, one),) = gone.items()
            assert sum(records.values()) == 1
            last = at == max({**self.waiting, **self.done})  # behind the last one nothing tells its spans
            assert sum(spans.values()) == one.spans or last
        self.waiting = came
        self.done = {}

    @invariant()
    def adds_up(self) -> None:
        """taken + recovered = acknowledged + dropped + waiting, in spans, at every moment."""
        recovered = self.counts.value(catalogue.AGENT_SPANS_RECOVERED)
        dropped = self.counts.value(catalogue.AGENT_SPANS_DROPPED)
        assert self.taken_spans + recovered == self.acked_spans + dropped + self.spool.spans
        assert self.spool.spans == sum(one.spans for one in self.waiting.values())
        assert self.spool.state().records == len(self.waiting)

    @invariant()
    def stays_within_its_limit(self) -> None:
        assert sum(path.stat().st_size for path in segments(self.folder)) <= _LIMIT_BYTES


SpoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestSpool = SpoolMachine.TestCase
